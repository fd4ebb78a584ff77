//! Demonstrations: each function at work on embedded services, compared with what must come of it.
//!
//! | module | holds |
//! |---|---|
//! | [`rollup`], [`traffic`], [`verdict`] | clients, the stream, `usage-rollup` under faults, and the comparison of every snapshot |
//! | [`keeper`] | the same clients without `bucket-keeper`, with one process of it, and with two |
//! | [`tokens`] | clients that start resources, with `token-sweeper` and without it |
//! | [`rates`], [`fleet`] | workers and `rate-aggregator`, simulated: the fleet's total against its cap |
//! | [`progress`], `sparkline` | bars and lines for the terminal |

pub mod fleet;
pub mod keeper;
pub mod progress;
pub mod rates;
pub mod rollup;
mod sparkline;
pub mod tokens;
pub mod traffic;
pub mod verdict;
