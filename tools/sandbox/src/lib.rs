//! Embedded services and what surrounds a function on AWS, in one process: for tests, demonstrations and benchmarks.
//!
//! | module | holds |
//! |---|---|
//! | [`dynamodb`], [`queue`], [`emr`], [`s3`], [`lambda`] | the embedded services |
//! | [`capacity`] | the control plane of tables: provisioned capacity, Application Auto Scaling and CloudWatch's metrics |
//! | [`services`] | a bucket table and a dead-letter queue, embedded or elsewhere, with their clients |
//! | [`functions`] | the stream functions on these services |
//! | [`faults`] | throttling, errors, broken connections and crashes under the SDK |
//! | [`gate`] | holds calls until a test lets them go |
//! | [`gateway`] | an endpoint that counts calls and consumed capacity, for clients in any language |
//! | [`stream`], [`mapping`] | the table's stream in Lambda's JSON, and the event source mapping by AWS's rules |
//! | [`pump`] | delivers a stream shard to a function, and injects faults into deliveries |
//! | [`records`] | stream records, dead letters and discarded batches |
//! | [`item`] | bucket items as clients write and read them |
//! | [`usage_totals`] | usage by snapshot, read as the clients' readers read it, and compared |
//! | [`runtime_api`], `process` | a function's binary as Lambda runs it (`process` on Linux) |
//! | [`moto`] | moto's server, an imitation of AWS by others |
//! | [`peer`] | a process that answers commands, such as a client in another language |
//! | [`loopback`] | servers on the loopback interface |

pub mod capacity;
mod cbor;
pub mod dynamodb;
pub mod emr;
pub mod faults;
pub mod functions;
pub mod gate;
pub mod gateway;
pub mod item;
pub mod lambda;
pub mod loopback;
pub mod mapping;
pub mod moto;
pub mod peer;
#[cfg(target_os = "linux")]
pub mod process;
pub mod pump;
pub mod python;
pub mod queue;
pub mod records;
pub mod runtime_api;
pub mod s3;
pub mod services;
pub mod stream;
pub mod usage_totals;
