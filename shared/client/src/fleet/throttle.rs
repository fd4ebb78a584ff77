//! The throttle of one process.

mod charge;
mod connector;
mod gate;
mod interceptor;
mod operations;
#[cfg(all(test, feature = "test-util"))]
mod tests;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use aws_sdk_dynamodb::{
    Client, Config,
    config::retry::{RetryPartition, TokenBucket},
};
#[cfg(feature = "capacity")]
use tidegate_domain::throttle::limit::RampStart;
use tidegate_domain::{
    lease::holder::SlowStart,
    rates::{Rate, Rates},
    throttle::{
        CapacityKind, Units, Usage,
        limit::{Limit, RateSteps},
    },
};

pub use self::{charge::Admission, connector::Throttled};
use self::{connector::ThrottledHttp, gate::Gate, interceptor::ThrottleInterceptor};
use crate::clock::Clock;

/// Limits the capacity units that callers use: reads and writes separately. Clones share the limit.
///
/// There are two ways to use it:
///
/// - [`client`](Self::client) returns an SDK client whose calls keep the limit.
/// - [`admit`](Self::admit) waits before a call, for as long as it takes.
///
/// # Limit
///
/// The throttle is a token bucket that holds what accrues in a tenth of a second. A call is charged an estimate before it is
/// sent, and the difference to what it consumed afterwards. So the bucket goes below zero after a call that cost more than
/// its estimate, and the next call waits until that is paid.
///
/// - Over a longer time, calls consume what the limit allows, if enough callers wait.
/// - In no second do calls consume more than the limit of a second and a burst: a fifth of a second of the limit, or a tenth
///   and the most expensive call, whichever is more. Calls that are under way at the same time and cost more than their
///   estimates are the exception, such as many first calls of a kind.
/// - Callers pass in the order in which they came. A caller that gives up, or whose future is dropped, passes its turn on. An
///   attempt of a client that waits too long loses its place.
/// - Nothing passes while the limit is 0.
///
/// # What a call costs
///
/// The client asks DynamoDB for the consumed capacity of each call. The estimate is the moving average of earlier calls of
/// the same operation on the same table, for each item of a batch or a transaction. For PartiQL, it is the average of the
/// same statement, apart from the values in it. The first call of its kind is charged a unit for each item, or two in a transaction. The first `Query`,
/// `Scan` or `SELECT` is charged a whole page of 1 MB: 128 units, or 256 if it is strongly consistent. AWS:
/// [capacity unit consumption](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html).
///
/// | call | cost |
/// |---|---|
/// | `GetItem`, `BatchGetItem`, `Query`, `Scan`, `TransactGetItems`, PartiQL `SELECT` | reads |
/// | `PutItem`, `UpdateItem`, `DeleteItem`, `BatchWriteItem`, `TransactWriteItems`, other PartiQL | writes |
/// | other operations | nothing |
///
/// Each attempt is charged, so retries are too. DynamoDB does not say what a failed call has consumed, such as a write whose
/// condition does not hold. Such a call, and one without a response, is charged its estimate. A call that DynamoDB
/// throttles, or does not authorize, costs nothing.
///
/// # Example
///
/// ```
/// use tidegate::fleet::Throttle;
///
/// let throttle = Throttle::fixed(500.0, 100.0)?;
/// let error = Throttle::fixed(500.0, -1.0).unwrap_err();
/// assert_eq!(error.to_string(), "invalid write limit -1: expected 0 to 10000000 capacity units a second");
/// # Ok::<(), tidegate::fleet::InvalidUnits>(())
/// ```
#[derive(Clone, Debug)]
pub struct Throttle {
    gate: Arc<Gate>,
}

impl Throttle {
    /// Creates a throttle of a fixed limit, in capacity units a second. 0 lets nothing pass.
    ///
    /// # Errors
    /// [`InvalidUnits`] if a limit is not a number from 0 to 10 million.
    pub fn fixed(read: f64, write: f64) -> Result<Self, InvalidUnits> {
        let rates = Rates { read: rate("read limit", read)?, write: rate("write limit", write)? };
        Ok(Self::new(Limit::constant(rates), Clock::system()))
    }

    /// Creates a throttle whose limit rises evenly from one value to another, over a time that begins now. A table's auto
    /// scaling can follow it. Each value is that of reads and that of writes, in capacity units a second.
    ///
    /// # Errors
    /// [`InvalidUnits`] if a limit is not a number from 0 to 10 million.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::fleet::Throttle;
    ///
    /// let throttle = Throttle::slow_start((500.0, 100.0), (5_000.0, 1_000.0), Duration::from_mins(30))?;
    /// # Ok::<(), tidegate::fleet::InvalidUnits>(())
    /// ```
    pub fn slow_start(from: (f64, f64), to: (f64, f64), over: Duration) -> Result<Self, InvalidUnits> {
        let from =
            Rates { read: rate("slow start's read limit", from.0)?, write: rate("slow start's write limit", from.1)? };
        let to = Rates { read: rate("read limit", to.0)?, write: rate("write limit", to.1)? };
        let limit = Limit { slow_start: SlowStart { from, over }, ..Limit::constant(to) };
        Ok(Self::new(limit, Clock::system()))
    }

    /// Replaces the clock, for tests. Call this before you clone the throttle.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn clock(self, clock: crate::ManualClock) -> Self {
        Self::new(self.gate.limit(), Clock::Manual(clock))
    }

    pub(crate) fn new(limit: Limit, clock: Clock) -> Self {
        Self { gate: Arc::new(Gate::new(limit, clock)) }
    }

    /// Sets the limit from now on. All times are those since the throttle was made.
    pub(crate) fn set_steps(&self, steps: RateSteps) {
        self.gate.set_steps(steps);
    }

    /// Sets when the ramp of a kind begins, in the time since the throttle was made.
    #[cfg(feature = "capacity")]
    pub(crate) fn set_ramp_start(&self, kind: CapacityKind, start: RampStart) {
        self.gate.set_ramp_start(kind, start);
    }

    /// Returns the time since the throttle was made.
    pub(crate) fn now(&self) -> Duration {
        self.gate.now()
    }

    pub(crate) fn limit(&self) -> Limit {
        self.gate.limit()
    }

    pub(crate) fn time_source(&self) -> &Clock {
        self.gate.clock()
    }

    pub(crate) fn usage_of(&self, kind: CapacityKind) -> Usage {
        self.gate.usage(kind)
    }

    pub(crate) fn downgrade(&self) -> WeakThrottle {
        WeakThrottle(Arc::downgrade(&self.gate))
    }

    /// Returns an SDK client whose calls keep the limit. It takes an SDK configuration, or a configuration of DynamoDB.
    ///
    /// A call waits for its turn before it is sent: for half of the attempt timeout if there is one, and for five seconds
    /// at most. Then the attempt fails with [`Throttled`], and the SDK treats that like a throttling error of DynamoDB: it backs
    /// off and retries, as often as its configuration says. A call may wait longer with [`admit`](Self::admit). Unless the configuration has a retry partition, throttling
    /// errors use up no quota of retries.
    ///
    /// The client needs a Tokio runtime. A call with an HTTP client of its own (`config_override`) does not wait, and adaptive
    /// retries would slow the client down further.
    ///
    /// A client has one throttle: one made from a throttled client's configuration keeps the new limit only.
    ///
    /// # Panics
    /// Where [`Client::from_conf`] panics.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use tidegate::fleet::Throttle;
    ///
    /// let config = aws_config::load_from_env().await;
    /// let client = Throttle::fixed(500.0, 100.0)?.client(&config);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn client(&self, config: impl Into<Config>) -> Client {
        let config = config.into();
        let http = config.http_client().or_else(connector::default_http);
        let mut builder = config.to_builder().interceptor(ThrottleInterceptor::new(&self.gate));
        if config.retry_partition().is_none() {
            // Otherwise, attempts that wait too long would use up the quota of retries of all clients in the region.
            let quota = TokenBucket::builder().throttling_retry_cost(0).build();
            builder = builder.retry_partition(RetryPartition::custom("tidegate").token_bucket(quota).build());
        }
        // Without an HTTP client, each call fails.
        builder.set_http_client(http.map(ThrottledHttp::shared));
        Client::from_conf(builder.build())
    }

    /// Waits until a call may be sent that costs `cost`, for as long as it takes.
    ///
    /// Attach the [`Admission`] to a call of a [`client`](Self::client) of this throttle, or settle it after a call of any
    /// other client. If it is dropped before, the throttle gets everything back.
    ///
    /// Cancel safe: a caller whose future is dropped leaves the line.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # use tidegate::fleet::{Cost, Throttle};
    /// # async fn example(throttle: Throttle, client: aws_sdk_dynamodb::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let admission = throttle.admit(Cost::read(128.0)?).await;
    /// let page = client.scan().table_name("orders").customize().interceptor(admission).send().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn admit(&self, cost: Cost) -> Admission {
        Admission::new(Gate::charge(&self.gate, cost.kind, cost.units).await)
    }

    /// Returns what was used since the throttle was made.
    #[must_use]
    pub fn usage(&self) -> ThrottleUsage {
        let [reads, writes] = [CapacityKind::Read, CapacityKind::Write].map(|kind| self.gate.usage(kind).into());
        ThrottleUsage { reads, writes }
    }
}

/// A throttle that may not be in use any more.
#[derive(Clone, Debug)]
pub(crate) struct WeakThrottle(Weak<Gate>);

impl WeakThrottle {
    /// Returns the throttle. `None` if nothing uses it any more.
    pub(crate) fn upgrade(&self) -> Option<Throttle> {
        self.0.upgrade().map(|gate| Throttle { gate })
    }
}

/// What a call costs, for [`Throttle::admit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    kind: CapacityKind,
    units: Units,
}

impl Cost {
    /// Creates the cost of a read, in read capacity units.
    ///
    /// # Errors
    /// [`InvalidUnits`] if it is not a number from 0 to 10 million.
    pub fn read(units: f64) -> Result<Self, InvalidUnits> {
        Ok(Self { kind: CapacityKind::Read, units: checked("read cost", units)? })
    }

    /// Creates the cost of a write, in write capacity units.
    ///
    /// # Errors
    /// [`InvalidUnits`] if it is not a number from 0 to 10 million.
    pub fn write(units: f64) -> Result<Self, InvalidUnits> {
        Ok(Self { kind: CapacityKind::Write, units: checked("write cost", units)? })
    }
}

/// What the callers of a throttle have used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ThrottleUsage {
    /// Read capacity.
    pub reads: CapacityUse,
    /// Write capacity.
    pub writes: CapacityUse,
}

/// What the callers of a throttle have used of one kind of capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CapacityUse {
    /// Capacity units that calls have consumed: what DynamoDB said, and the estimates of calls without such an answer.
    pub consumed: f64,
    /// The number of callers that had to wait.
    pub delayed: u64,
    /// The number of callers that wait now.
    pub waiting: usize,
}

impl From<Usage> for CapacityUse {
    fn from(Usage { consumed, delayed, waiting }: Usage) -> Self {
        Self { consumed: consumed.get(), delayed, waiting }
    }
}

/// An amount of capacity units that is out of range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("invalid {field} {value}: expected 0 to 10000000 capacity units{per_second}", per_second = if *.is_rate { " a second" } else { "" })]
#[non_exhaustive]
pub struct InvalidUnits {
    /// What the amount is for.
    pub field: &'static str,
    /// The amount.
    pub value: f64,
    is_rate: bool,
}

pub(crate) fn rate(field: &'static str, value: f64) -> Result<Rate, InvalidUnits> {
    Rate::new(value).map_err(|_| InvalidUnits { field, value, is_rate: true })
}

fn checked(field: &'static str, value: f64) -> Result<Units, InvalidUnits> {
    Units::new(value).ok_or(InvalidUnits { field, value, is_rate: false })
}
