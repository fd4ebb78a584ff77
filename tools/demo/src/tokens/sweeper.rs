//! The function itself at a simulated time, and the event source mapping before it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;
use tidegate_aws::{client, emr::Clusters, tokens::Tokens};
use tidegate_domain::time::EpochMillis;
use token_sweeper::{TokenSweeper, config::Config, event::Event, handler::Handled};
use tokio::time::{Duration, Instant};

use super::{
    Tally,
    queue::{Queue, Received},
};
use tidegate_sandbox::faults::{FaultRates, FaultyHttp, sdk_config};

/// Time for an invocation: more than any needs here.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The part of deletes that go wrong.
const FAULTS: f64 = 0.1;
/// The part of invocations that crash between two deletes.
const CRASHES: f64 = 0.05;
/// The part of messages that come again although they are done with.
const REPEATED: f64 = 0.02;

/// `token-sweeper` behind a queue.
#[derive(Debug)]
pub(super) struct Sweeper {
    function: TokenSweeper,
    http: FaultyHttp,
    rng: StdRng,
    pub(super) queue: Queue,
    pub(super) tally: Tally,
}

impl Sweeper {
    /// The function with its defaults, which asks EMR in its reconciles.
    pub(super) fn new(base_name: &str, dynamodb: &str, emr: &str, seed: u64) -> anyhow::Result<Self> {
        let config = Config::read(|name| match name {
            "LIMITER_TABLES_BASE_NAME" => Some(base_name.to_owned()),
            "RECONCILE_EMR" => Some(true.to_string()),
            _ => None,
        })
        .context("the sweeper's defaults")?;
        let http = FaultyHttp::new(FaultRates::spread(FAULTS), seed);
        let emr = sdk_config(emr, FaultyHttp::new(FaultRates::default(), 0));
        let dynamodb = client::dynamodb(&sdk_config(dynamodb, http.clone()));
        let tokens = Tokens::new(dynamodb, &config.table, &config.index);
        let function = TokenSweeper::new(config, tokens, Clusters::new(client::emr(&emr)));
        let rng = StdRng::seed_from_u64(seed);
        Ok(Self { function, http, rng, queue: Queue::default(), tally: Tally::default() })
    }

    /// Hands over what is visible. `now` is in the queue's own time, `moment` the same for the function.
    pub(super) async fn poll(&mut self, now: i64, moment: EpochMillis) -> anyhow::Result<()> {
        let batch = self.queue.receive(now);
        if batch.is_empty() {
            return Ok(());
        }
        let records: Vec<_> = batch.iter().map(Received::record).collect();
        let Event::Batch(messages) = serde_json::from_value(json!({"Records": records}))? else {
            bail!("a batch is not taken for one");
        };
        let crash = self.rng.random_bool(CRASHES).then(|| self.rng.random_range(0..3));
        if let Some(writes) = crash {
            self.http.crash_after(writes);
        }
        let handled = tokio::select! {
            handled = self.function.handle(&messages, moment, Instant::now() + TIMEOUT) => Some(handled),
            () = self.http.crashed() => None,
        };
        self.http.heal();
        match handled {
            Some(handled) => self.settle(&batch, &handled)?,
            None => *self.tally.again.entry("invocation crashed").or_default() += batch.len(),
        }
        Ok(())
    }

    /// Deletes the messages that are not among the failures.
    fn settle(&mut self, batch: &[Received], Handled { report, decided, answer }: &Handled) -> anyhow::Result<()> {
        self.tally.report += report;
        let failures = &answer.as_ref().map_err(|unreportable| *unreportable)?.batch_item_failures;
        let failed: BTreeSet<_> = failures.iter().map(|failure| failure.item_identifier.as_str()).collect();
        for (message, decided) in batch.iter().zip(decided) {
            let name = decided.decision.name();
            if failed.contains(message.id().as_str()) {
                *self.tally.again.entry(name).or_default() += 1;
            } else if self.rng.random_bool(REPEATED) {
                *self.tally.again.entry("done with").or_default() += 1;
            } else {
                *self.tally.done.entry(name).or_default() += 1;
                self.queue.delete(message);
            }
        }
        Ok(())
    }

    pub(super) async fn reconcile(&mut self, moment: EpochMillis) -> anyhow::Result<()> {
        let reconciled = self.function.reconcile(moment, Instant::now() + TIMEOUT).await;
        self.tally.reconciled += &reconciled.report;
        reconciled.error.map_or(Ok(()), |error| Err(error).context("the reconcile failed"))
    }

    pub(super) fn into_tally(self) -> Tally {
        let faults: BTreeMap<_, _> = self.http.counts().iter().collect();
        Tally { sent: self.queue.sent(), unsettled: self.queue.len(), parked: self.queue.parked, faults, ..self.tally }
    }
}
