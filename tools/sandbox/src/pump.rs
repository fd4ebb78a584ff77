//! Delivery of a stream shard to the handler that Lambda runs, with injected faults.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
    num::NonZeroUsize,
    ops::AddAssign,
    sync::Arc,
    time::Duration,
};

use aws_lambda_events::streams::DynamoDbEventResponse;
use futures::future;
use rand::{RngExt as _, rngs::StdRng};
use serde_json::value::RawValue;
use tidegate_aws::{batch::BatchError, stream::StreamEvent};
use tokio::{task::JoinHandle, time::Instant};
use usage_rollup::{UsageRollup, handler::Handled};

use crate::{
    faults::FaultyHttp,
    mapping::{Answer, Mapping, StreamRecord},
    queue::EmbeddedQueue,
};

/// The timeout of an invocation: more than any needs here.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A function that is fed by a stream.
pub trait Function: Send + Sync + 'static {
    /// Its counts of an invocation.
    type Report: Debug + Default + for<'r> AddAssign<&'r Self::Report> + Send + 'static;

    /// Handles one batch.
    fn handle(&self, event: &StreamEvent, deadline: Instant) -> impl Future<Output = Done<Self::Report>> + Send;
}

/// The counts and the answer of an invocation.
pub type Done<R> = (R, Result<DynamoDbEventResponse, BatchError>);

impl Function for UsageRollup {
    type Report = usage_rollup::report::RollupReport;

    async fn handle(&self, event: &StreamEvent, deadline: Instant) -> Done<Self::Report> {
        let Handled { report, answer } = self.handle(event, deadline).await;
        (report, answer)
    }
}

/// Pumps a stream shard through a function.
#[derive(Debug)]
pub struct Pump<F: Function> {
    function: Arc<F>,
    mapping: Mapping,
    chaos: Option<Chaos>,
    /// Invocations that the mapping gave up and that still run.
    stalled: Vec<JoinHandle<Done<F::Report>>>,
    tally: Tally<F::Report>,
}

/// The faults to inject between the mapping and the function.
#[derive(Debug)]
pub struct Chaos {
    /// The share of deliveries that suffer a fault, from 0 to 1.
    pub rate: f64,
    /// The connection of the function to its table.
    pub http: FaultyHttp,
    /// The function's dead-letter queue.
    pub queue: Arc<EmbeddedQueue>,
    /// What draws the faults.
    pub rng: StdRng,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally<R> {
    /// The function's own counts, over all invocations that came to an end.
    pub report: R,
    /// Invocations that came to an end.
    pub invocations: u64,
    pub faults: BTreeMap<Fault, usize>,
}

/// What can go wrong with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The answer is lost: the whole batch is delivered again.
    Repeated,
    /// The tail of the batch is delivered again.
    TailRepeated,
    /// Two invocations have the same batch at the same time.
    Doubled,
    /// The mapping gives up the invocation, which continues beside the redelivery.
    Stalled,
    /// The invocation dies between two writes.
    Crashed,
    /// The batch is lost, and delivered again with another size.
    Recut,
    /// The invocation's deadline has already passed.
    Late,
    /// The dead-letter queue refuses messages.
    QueueDown,
}

impl Fault {
    pub const ALL: [Self; 8] = [
        Self::Repeated,
        Self::TailRepeated,
        Self::Doubled,
        Self::Stalled,
        Self::Crashed,
        Self::Recut,
        Self::Late,
        Self::QueueDown,
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Repeated => "batch delivered again, whole",
            Self::TailRepeated => "tail of a batch delivered again",
            Self::Doubled => "batch delivered twice at once",
            Self::Stalled => "batch delivered again beside a stalled invocation",
            Self::Crashed => "crash between two writes",
            Self::Recut => "batch cut differently",
            Self::Late => "invocation without time",
            Self::QueueDown => "dead-letter queue down",
        })
    }
}

impl<F: Function> Pump<F> {
    /// A pump for one stream shard; without `chaos`, every delivery goes well.
    pub fn new(function: Arc<F>, batch_size: NonZeroUsize, chaos: Option<Chaos>) -> Self {
        Self { function, mapping: Mapping::new(batch_size), chaos, stalled: Vec::new(), tally: Tally::default() }
    }

    /// What happened so far.
    pub fn tally(&self) -> &Tally<F::Report> {
        &self.tally
    }

    /// Delivers these records after the earlier ones, until all are done. Calls `done` with the number of records that each
    /// answer settled.
    pub async fn deliver(
        &mut self,
        records: impl IntoIterator<Item = StreamRecord>,
        done: impl Fn(usize),
    ) -> anyhow::Result<()> {
        self.mapping.offer(records);
        while let Some(batch) = self.mapping.batch().map(<[StreamRecord]>::to_vec) {
            let behind = self.mapping.behind();
            let answer = self.invoke(&batch).await?;
            self.mapping.answer(&answer);
            done(behind - self.mapping.behind());
        }
        Ok(())
    }

    /// Waits for the invocations that stalled.
    pub async fn finish(&mut self) -> anyhow::Result<()> {
        for stalled in std::mem::take(&mut self.stalled) {
            self.count(&stalled.await?);
        }
        Ok(())
    }

    async fn invoke(&mut self, batch: &[StreamRecord]) -> anyhow::Result<Answer> {
        let event = event(batch)?;
        let Some(fault) = self.draw() else { return Ok(self.handle(&event).await) };
        *self.tally.faults.entry(fault).or_default() += 1;
        match fault {
            Fault::Repeated => {
                self.handle(&event).await;
                Ok(Answer::Error)
            }
            Fault::TailRepeated => {
                let answer = self.handle(&event).await;
                self.handle(&self::event(&batch[batch.len() / 2..])?).await;
                Ok(answer)
            }
            Fault::Doubled => {
                let deadline = Instant::now() + TIMEOUT;
                let invocation = || self.function.handle(&event, deadline);
                let (first, second) = future::join(invocation(), invocation()).await;
                self.count(&second);
                Ok(self.count(&first))
            }
            Fault::Stalled => {
                let function = Arc::clone(&self.function);
                let stalled = async move { function.handle(&event, Instant::now() + TIMEOUT).await };
                self.stalled.push(tokio::spawn(stalled));
                Ok(Answer::Error)
            }
            Fault::Crashed => Ok(self.crash(&event).await),
            Fault::Recut => {
                let size = self.random(batch.len() * 2);
                self.mapping.recut(NonZeroUsize::MIN.saturating_add(size));
                Ok(Answer::Error)
            }
            Fault::Late => {
                let done = self.function.handle(&event, Instant::now()).await;
                Ok(self.count(&done))
            }
            Fault::QueueDown => {
                self.refuse_dead_letters(true);
                let answer = self.handle(&event).await;
                self.refuse_dead_letters(false);
                Ok(answer)
            }
        }
    }

    async fn handle(&mut self, event: &StreamEvent) -> Answer {
        let done = self.function.handle(event, Instant::now() + TIMEOUT).await;
        self.count(&done)
    }

    /// Kills the invocation after a few of its writes, unless it ends earlier.
    async fn crash(&mut self, event: &StreamEvent) -> Answer {
        let writes = self.random(4);
        let Some(http) = self.chaos.as_ref().map(|chaos| chaos.http.clone()) else { return Answer::Error };
        http.crash_after(writes);
        let done = tokio::select! {
            done = self.function.handle(event, Instant::now() + TIMEOUT) => Some(done),
            () = http.crashed() => None,
        };
        http.heal();
        done.map_or(Answer::Error, |done| self.count(&done))
    }

    fn refuse_dead_letters(&self, refuse: bool) {
        if let Some(chaos) = &self.chaos {
            chaos.queue.refuse(refuse);
        }
    }

    /// A random draw decides whether a delivery fails. The kinds of faults rotate, so every kind occurs.
    fn draw(&mut self) -> Option<Fault> {
        let chaos = self.chaos.as_mut()?;
        let suffered: usize = self.tally.faults.values().sum();
        chaos.rng.random_bool(chaos.rate).then(|| Fault::ALL[suffered % Fault::ALL.len()])
    }

    fn random(&mut self, below: usize) -> usize {
        self.chaos.as_mut().map_or(0, |chaos| chaos.rng.random_range(0..below))
    }

    fn count(&mut self, (report, answer): &Done<F::Report>) -> Answer {
        self.tally.invocations += 1;
        self.tally.report += report;
        match answer {
            Ok(response) => {
                let failures = response.batch_item_failures.iter().map(|failure| failure.item_identifier.clone());
                Answer::Failures(failures.collect())
            }
            Err(_) => Answer::Error,
        }
    }
}

/// The event of a batch, as Lambda hands it over.
fn event(batch: &[StreamRecord]) -> anyhow::Result<StreamEvent> {
    let records = batch.iter().map(|record| RawValue::from_string(record.json.to_string()));
    Ok(StreamEvent { records: records.collect::<Result<_, _>>()? })
}
