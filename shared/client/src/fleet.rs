//! Shares a table's capacity among the workers of a fleet, and limits what DynamoDB clients use.
//!
//! A [`Worker`] is a member of a fleet whose workers share a cap, in one process or in thousands. It holds a lease, and its
//! throttle keeps to it.
//!
//! A [`Throttle`] limits any client of `aws-sdk-dynamodb` in this process: all its reads together, and all its writes. It also
//! works without a fleet:
//!
//! ```no_run
//! use tidegate::fleet::Throttle;
//!
//! # async fn example(config: &aws_sdk_dynamodb::Config) -> Result<(), Box<dyn std::error::Error>> {
//! // 500 read and 100 write capacity units a second.
//! let throttle = Throttle::fixed(500.0, 100.0)?;
//! let client = throttle.client(config.clone());
//!
//! let mut pages = client.scan().table_name("orders").into_paginator().send();
//! while let Some(page) = pages.next().await {
//!     println!("{} items", page?.count());
//! }
//! # Ok(())
//! # }
//! ```

mod error;
mod throttle;
mod worker;

pub use self::{
    error::FilesError,
    throttle::{Admission, CapacityUse, Cost, InvalidUnits, Throttle, ThrottleUsage, Throttled},
    worker::{AnnouncementState, BuildError, CapacityStatus, LimitedBy, Worker, WorkerBuilder, WorkerStatus},
};
