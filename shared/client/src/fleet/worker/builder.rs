//! The settings of a worker.

use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::Duration,
};

use tidegate_aws::rates::worker::WorkerFiles;
use tidegate_domain::{
    lease::{EQUAL_WEIGHT, START, holder::SlowStart},
    rates::{Rate, Rates},
    throttle::limit::{Limit, RateSteps},
};
use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, watch},
};

use super::{Task, Worker, status::View};
use crate::{
    clock::Clock,
    fleet::{InvalidUnits, Throttle, throttle},
};

/// The settings of a [`Worker`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `start`"]
pub struct WorkerBuilder {
    client: aws_sdk_s3::Client,
    bucket: String,
    prefix: String,
    name: Option<String>,
    caps: Option<(f64, f64)>,
    maximum: Option<(f64, f64)>,
    slow_start: Duration,
    weight: NonZeroU32,
    clock: Clock,
}

/// Why a worker cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A rate is not a number from 0 to 10 million.
    #[error(transparent)]
    Units(#[from] InvalidUnits),
    /// A cap is 0. Set the caps of reads and of writes, for workers that only read, too: they are the same for the whole fleet.
    #[error("the {field} is 0: expected what all workers of the fleet may use together")]
    Cap {
        /// Which cap.
        field: &'static str,
    },
    /// The name cannot be a part of a file's name.
    #[error("the worker's name is {name:?}: expected 1 to 200 of the characters a-z, A-Z, 0-9, \".\", \"-\" and \"_\"")]
    Name {
        /// The given name.
        name: String,
    },
    /// The prefix cannot be the beginning of an object's key.
    #[error("the prefix is {prefix:?}: expected the beginning of a key, like \"rates/\"")]
    Prefix {
        /// The given prefix.
        prefix: String,
    },
    /// `slow_start` is set, but neither `max` nor `caps` is.
    #[error("slow_start is set without max and without caps: the ramp needs a maximum to lead to")]
    SlowStart,
    /// There is no Tokio runtime here that the worker could run on.
    #[error("a worker must be started in a Tokio runtime")]
    NoRuntime,
}

impl WorkerBuilder {
    pub(super) fn new(client: aws_sdk_s3::Client, bucket: String, prefix: String) -> Self {
        let (name, caps, maximum, slow_start) = (None, None, None, Duration::ZERO);
        Self { client, bucket, prefix, name, caps, maximum, slow_start, weight: EQUAL_WEIGHT, clock: Clock::system() }
    }

    /// Sets what the workers of the fleet may use together, in capacity units a second. Of all workers' caps and that of
    /// `rate-aggregator`, the lowest applies. Both must be above 0.
    ///
    /// Without it, the cap is that of `rate-aggregator` or of the other workers. A fleet without a cap gets no leases.
    pub fn caps(mut self, read: f64, write: f64) -> Self {
        self.caps = Some((read, write));
        self
    }

    /// Sets what this worker may use at most, in capacity units a second. Without it, the maximum is the cap.
    pub fn max(mut self, read: f64, write: f64) -> Self {
        self.maximum = Some((read, write));
        self
    }

    /// Raises the limit from one unit a second to the maximum evenly over this time, for background work. A table's auto
    /// scaling can then follow it.
    pub fn slow_start(mut self, over: Duration) -> Self {
        self.slow_start = over;
        self
    }

    /// Sets the worker's weight: how many shares of the cap it gets. The default is 1.
    pub fn weight(mut self, weight: NonZeroU32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets what the worker's id begins with. The rest is random, because each run of a worker needs an id of its own.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Replaces the clock, for tests.
    #[cfg(feature = "test-util")]
    pub fn clock(mut self, clock: crate::ManualClock) -> Self {
        self.clock = Clock::Manual(clock);
        self
    }

    /// Starts the worker in a task of the current Tokio runtime.
    ///
    /// # Errors
    /// [`BuildError`] if a setting is invalid, or if no runtime is running.
    pub fn start(self) -> Result<Worker, BuildError> {
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let rates = |fields: [_; 2], (read, write)| {
            Ok::<_, InvalidUnits>(Rates {
                read: throttle::rate(fields[0], read)?,
                write: throttle::rate(fields[1], write)?,
            })
        };
        let cap = self.caps.map(|caps| rates(["read cap", "write cap"], caps)).transpose()?;
        for (field, cap) in cap.iter().flat_map(|cap| [("read cap", cap.read), ("write cap", cap.write)]) {
            if cap == Rate::default() {
                return Err(BuildError::Cap { field });
            }
        }
        let maximum = self.maximum.map(|maximum| rates(["read maximum", "write maximum"], maximum)).transpose()?;
        if !self.slow_start.is_zero() && maximum.is_none() && cap.is_none() {
            return Err(BuildError::SlowStart);
        }
        let unlimited = Rates { read: Rate::MAX, write: Rate::MAX };
        let maximum = maximum.or(cap).unwrap_or(unlimited);
        let id = worker_id(self.name)?;
        let mut prefix = self.prefix;
        if prefix.is_empty() || prefix.starts_with('/') || prefix.contains("://") {
            return Err(BuildError::Prefix { prefix });
        }
        if !prefix.ends_with('/') {
            prefix.push('/');
        }
        let slow_start = SlowStart { from: START, over: self.slow_start };
        let limit = Limit { maximum, slow_start, steps: RateSteps::constant(START) };
        let throttle = Throttle::new(limit, self.clock);
        let files = WorkerFiles::new(self.client, self.bucket, &prefix, id.clone());
        let (stop, stopped) = watch::channel(false);
        let view = Arc::new(Mutex::new(View::new(maximum)));
        let task = Task::new(files, &throttle, Arc::clone(&view), cap, self.weight);
        let task = runtime.spawn(task.run(stopped));
        Ok(Worker { id: id.into(), throttle, view, stop, task: AsyncMutex::new(Some(task)) })
    }
}

fn worker_id(name: Option<String>) -> Result<String, BuildError> {
    let random = format!("{:016x}", fastrand::u64(..));
    let Some(name) = name else { return Ok(random) };
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if name.is_empty() || name.len() > 200 || !name.bytes().all(is_valid) {
        return Err(BuildError::Name { name });
    }
    Ok(format!("{name}-{random}"))
}
