//! A request for capacity: what is announced, and how long to wait until it is there.

use std::{future::IntoFuture, time::Duration};

use futures::future::BoxFuture;
use tidegate_domain::throttle::CapacityKind;
use tracing::Instrument as _;

use super::{
    Coordinator,
    announcement::{Announcement, Held, whole_seconds},
    error::{CapacityError, NotReady},
    queue::warn_of,
    request::{Work, checked_id},
};
use crate::{metrics, operation_ids::random_id};

/// How long an announcement lasts by default.
const LASTING: Duration = Duration::from_mins(10);

/// How long a request waits by default.
const DEADLINE: Duration = Duration::from_mins(5);

/// A request for capacity on a table. It is sent when it is awaited.
///
/// Made by [`Coordinator::announce`].
#[must_use = "nothing is announced before the request is awaited"]
#[derive(Clone, Debug)]
pub struct AnnounceBuilder {
    coordinator: Coordinator,
    /// `None` stands for a random one.
    id: Option<String>,
    work: Work,
    deadline: Duration,
}

impl AnnounceBuilder {
    pub(super) fn new(coordinator: Coordinator, table: String, kind: CapacityKind, units: u64) -> Self {
        let work = Work {
            table,
            index: None,
            with_table: false,
            dimension: kind,
            units,
            for_seconds: whole_seconds(LASTING),
            caller: None,
            warm: false,
        };
        Self { coordinator, id: None, work, deadline: DEADLINE }
    }

    /// Announces the work for an index of the table instead of the table itself.
    pub fn index(mut self, name: impl Into<String>) -> Self {
        self.work.index = Some(name.into());
        self
    }

    /// Announces the work for the [index](Self::index) and for the table. Writes to an index come from writes to its table.
    pub fn with_table(mut self) -> Self {
        self.work.with_table = true;
        self
    }

    /// Sets the id: 1 to 128 letters, digits and `_ - . : / # @`. The default is random.
    ///
    /// The same id is the same announcement, in this process and in others: what drops or releases one, releases it for all.
    /// A job that is restarted with the id of its last run continues the announcement of that run. Do not give one id to
    /// requests that run at the same time.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets who announces, such as the name of a job: at most 128 characters. The function may limit what each caller announces.
    pub fn caller(mut self, caller: impl Into<String>) -> Self {
        self.work.caller = Some(caller.into());
        self
    }

    /// Sets how long the announcement lasts, in whole seconds. The time starts again with each invocation, so it counts from
    /// the one that finds the capacity ready. The default is 10 minutes.
    pub fn lasting(mut self, time: Duration) -> Self {
        self.work.for_seconds = whole_seconds(time);
        self
    }

    /// Sets how long to wait until the capacity is ready, and how long to repeat invocations that fail. The default is 5
    /// minutes. With a deadline of zero, the function is invoked once.
    ///
    /// No invocation begins after the deadline. An invocation that is running then is awaited, and an announcement that is not
    /// ready is released, so the request may return about a minute after the deadline. To return earlier, use
    /// [`tokio::time::timeout`], which drops the request: then the same happens in the background.
    pub fn deadline(mut self, time: Duration) -> Self {
        self.deadline = time;
        self
    }

    /// Lets the function raise the warm throughput of an on-demand table. This costs money, and AWS never lowers it again. The
    /// function refuses it unless its operator has allowed it.
    ///
    /// AWS: [warm throughput](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/warm-throughput.html).
    pub fn warm(mut self) -> Self {
        self.work.warm = true;
        self
    }

    #[cfg(feature = "fleet")]
    pub(crate) const fn kind(&self) -> CapacityKind {
        self.work.dimension
    }

    #[cfg(feature = "fleet")]
    pub(crate) const fn duration(&self) -> Duration {
        Duration::from_secs(self.work.for_seconds)
    }

    /// Sends the request, and waits until the capacity is ready.
    async fn send(self) -> Result<Announcement, CapacityError> {
        let Self { coordinator, id, work, deadline } = self;
        let clock = &coordinator.shared.clock;
        let end = clock.elapsed().saturating_add(deadline);
        work.check()?;
        let held = Held::new(&coordinator.shared, checked_id(id.unwrap_or_else(random_id))?);
        loop {
            let answer = held.queue.announce(&work, end).await?;
            if answer.ready {
                return Ok(Announcement::new(held, work, deadline, answer));
            }
            // Later than the function says, so that callers that were answered together do not come back together.
            let wait = answer.retry_after().map(|wait| wait.mul_f64(1.0 + fastrand::f64() / 4.0));
            let Some(wait) = wait.filter(|wait| clock.elapsed().saturating_add(*wait) < end) else {
                let not_ready = NotReady::new(held.queue.id(), answer);
                if let Err(error) = held.release().await {
                    warn_of(&not_ready.id, &error);
                }
                return Err(not_ready.into());
            };
            clock.sleep(wait).await;
        }
    }
}

impl IntoFuture for AnnounceBuilder {
    type Output = Result<Announcement, CapacityError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Work { table, index, dimension, .. } = &self.work;
        let span = tracing::debug_span!("announce", table, index, kind = %dimension);
        let announced = async move {
            let announced = self.send().await;
            metrics::announced(&announced);
            announced
        };
        Box::pin(announced.instrument(span))
    }
}
