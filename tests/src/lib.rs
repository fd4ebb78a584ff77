//! The test kit: each function on embedded services of its own, and what its scenarios use.

pub mod aggregator;
pub mod announcements;
pub mod client;
pub mod coordinator;
pub mod fleet;
pub mod fungible;
pub mod keeper;
pub mod metered;
pub mod python;
pub mod reservations;
pub mod rollup;
pub mod sweeper;
pub mod throttle;

use std::path::PathBuf;

use tidegate_domain::time::EpochMillis;
use tokio::time::{Duration, Instant};

/// What the scenarios of every function use.
pub mod prelude {
    pub use std::sync::atomic::{AtomicUsize, Ordering};

    pub use anyhow::{Context as _, ensure};
    pub use serde_json::{Value, json};
    pub use tidegate_domain::time::EpochMillis;
    pub use tidegate_sandbox::{
        faults::{Fault, FaultRates, FaultyHttp, sdk_config},
        item::{number, text},
        records::{event, failure},
    };
    pub use tokio::time::{Duration, Instant};

    pub use crate::{in_time, root, time};
}

/// The project's root.
pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

pub fn time(millis: i64) -> EpochMillis {
    EpochMillis::new(millis).expect("a moment of the calendar")
}

/// A deadline that is far away.
pub fn in_time() -> Instant {
    Instant::now() + Duration::from_mins(1)
}
