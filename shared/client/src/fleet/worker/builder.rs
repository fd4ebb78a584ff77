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
    throttle::{
        CapacityKind,
        limit::{Limit, RampStart, RateSteps},
    },
};
use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, watch},
};

#[cfg(feature = "capacity")]
use super::announcing;
use super::{Task, Worker, status::View};
#[cfg(feature = "capacity")]
use crate::capacity::AnnounceBuilder;
use crate::{
    clock::Clock,
    fleet::{InvalidUnits, Throttle, throttle},
};

/// The slow start of a worker whose announcement has failed, if it has no other.
const FALLBACK: Duration = Duration::from_mins(10);

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
    /// At most one for each kind of capacity.
    #[cfg(feature = "capacity")]
    announcements: Vec<AnnounceBuilder>,
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
    /// `slow_start` or `announce` is set, but neither `max` nor `caps` is.
    #[error("slow_start or announce is set without max and without caps: the ramp needs a maximum to lead to")]
    SlowStart,
    /// There is no Tokio runtime here that the worker could run on.
    #[error("a worker must be started in a Tokio runtime")]
    NoRuntime,
}

impl WorkerBuilder {
    pub(super) fn new(client: aws_sdk_s3::Client, bucket: String, prefix: String) -> Self {
        Self {
            client,
            bucket,
            prefix,
            name: None,
            caps: None,
            maximum: None,
            slow_start: Duration::ZERO,
            weight: EQUAL_WEIGHT,
            clock: Clock::system(),
            #[cfg(feature = "capacity")]
            announcements: Vec::new(),
        }
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

    /// Announces the work before the worker begins, instead of a [slow start](Self::slow_start). It takes a request of
    /// [`Coordinator::announce`](crate::capacity::Coordinator::announce) for the table that the worker uses. A second call for the
    /// same kind of capacity replaces the first one.
    ///
    /// Until the announced capacity is ready, the worker may use one unit a second of that kind. Then its maximum applies. If the
    /// announcement fails, or the capacity is not ready before the [deadline](AnnounceBuilder::deadline) of the request, the
    /// worker starts slowly as soon as the announcement is released: as `slow_start` says, or over 10 minutes. The log says why, and
    /// [`CapacityStatus::announcement`](super::CapacityStatus::announcement) that it is so.
    ///
    /// The worker renews the announcement while it runs, each time that half of its [time](AnnounceBuilder::lasting) has passed,
    /// and releases it when it stops or when nothing uses its throttle any more. If an invocation is running then, the release
    /// follows it in the background, so call [`Coordinator::flush`](crate::capacity::Coordinator::flush) before the process ends.
    ///
    /// Announcements add up, so each unit must be announced once. Either each worker announces its own share, with an id of
    /// its own, which is the default. Or one process announces for the whole fleet and then starts the workers, which announce
    /// nothing. For many workers, choose the second: the function limits the number of announcements.
    ///
    /// ```no_run
    /// use tidegate::{capacity::{CapacityKind, Coordinator}, fleet::Worker};
    ///
    /// # fn example(s3: aws_sdk_s3::Client, lambda: aws_sdk_lambda::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let coordinator = Coordinator::new(lambda, "tidegate-capacity-coordinator");
    /// let worker = Worker::builder(s3, "my-bucket", "rates/")
    ///     .caps(20_000.0, 5_000.0)
    ///     .max(1_500.0, 500.0)
    ///     .announce(coordinator.announce("orders", CapacityKind::Write, 500))
    ///     .start()?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "capacity")]
    pub fn announce(mut self, request: AnnounceBuilder) -> Self {
        self.announcements.retain(|announced| announced.kind() != request.kind());
        self.announcements.push(request);
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
        let announced = self.announced();
        if !(self.slow_start.is_zero() && announced.is_empty()) && maximum.is_none() && cap.is_none() {
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
        let over = if self.slow_start.is_zero() { FALLBACK } else { self.slow_start };
        let ramp = |kind| match announced.contains(&kind) {
            true => RampStart::Pending,
            false if self.slow_start.is_zero() => RampStart::Skipped,
            false => RampStart::default(),
        };
        let limit = Limit {
            maximum,
            slow_start: SlowStart { from: START, over },
            read_ramp: ramp(CapacityKind::Read),
            write_ramp: ramp(CapacityKind::Write),
            steps: RateSteps::constant(START),
        };
        let throttle = Throttle::new(limit, self.clock);
        let files = WorkerFiles::new(self.client, self.bucket, &prefix, id.clone());
        let (stop, stopped) = watch::channel(false);
        let view = Arc::new(Mutex::new(View::new(maximum, announced)));
        let task = Task::new(files, &throttle, Arc::clone(&view), cap, self.weight).run(stopped);
        #[cfg(feature = "capacity")]
        let task = announcing::beside(task, self.announcements, &throttle);
        let task = runtime.spawn(task);
        Ok(Worker { id: id.into(), throttle, view, stop, task: AsyncMutex::new(Some(task)) })
    }
}

impl WorkerBuilder {
    /// The kinds of capacity that the worker announces.
    #[cfg(feature = "capacity")]
    fn announced(&self) -> Vec<CapacityKind> {
        self.announcements.iter().map(AnnounceBuilder::kind).collect()
    }

    /// The kinds of capacity that the worker announces: without the feature `capacity`, none.
    #[cfg(not(feature = "capacity"))]
    #[expect(clippy::unused_self, reason = "it is a setting with the feature `capacity`")]
    const fn announced(&self) -> Vec<CapacityKind> {
        Vec::new()
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
