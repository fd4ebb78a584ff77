//! Whatever goes wrong with deliveries and calls, in one process or two: no token appears from nowhere, no shard stays
//! missing, and the function comes to rest.

mod buckets;
mod clients;

use std::{num::NonZeroUsize, sync::Arc};

use futures::try_join;
use proptest::prelude::*;
use rand::{SeedableRng as _, rngs::StdRng};
use tidegate_sandbox::{
    functions::{TimedKeeper, bucket_keeper},
    pump::{self, Chaos, Done, Function as _, Pump, Tally},
    services::Services,
    stream::StreamReader,
};
use tidegate_tests::keeper::prelude::*;

use self::{
    buckets::StreamedBuckets,
    clients::{ENTITIES, Ledger},
};

const WAVES: i64 = 14;
/// Simulated time between two waves: not the refill's grain, and not whole seconds.
const STEP: i64 = 2_337;
/// Simulated time between two repairs.
const REPAIR: i64 = 61_003;

/// Two processes that share nothing, and handle the batches in turn.
struct TwoProcesses {
    processes: [Arc<TimedKeeper>; 2],
    batches: AtomicUsize,
}

impl pump::Function for TwoProcesses {
    type Report = KeeperReport;

    async fn handle(&self, event: &StreamEvent, deadline: Instant) -> Done<KeeperReport> {
        let batch = self.batches.fetch_add(1, Ordering::Relaxed);
        self.processes[batch % 2].handle(event, deadline).await
    }
}

struct Run {
    services: Services,
    function: Arc<TwoProcesses>,
    reader: StreamReader,
    buckets: StreamedBuckets,
    now: i64,
}

impl Run {
    async fn new(http: &FaultyHttp) -> anyhow::Result<Self> {
        let services = Services::embedded(None, "tidegate-test-buckets").await?;
        let reader = StreamReader::new(services.streams.clone(), services.stream_arn().await?);
        let processes = [bucket_keeper(&services, http, time(START))?, bucket_keeper(&services, http, time(START))?];
        let function = Arc::new(TwoProcesses { processes, batches: AtomicUsize::new(0) });
        for entity in ENTITIES {
            let put = services.dynamodb.put_item().table_name(&services.table);
            put.set_item(Some(item(&key(entity), &full(1)))).send().await?;
        }
        Ok(Self { services, function, reader, buckets: StreamedBuckets::default(), now: START })
    }

    fn wait(&mut self, millis: i64) {
        self.now += millis;
        for process in &self.function.processes {
            process.set_now(time(self.now));
        }
    }

    /// The records of the writes since the last call. The buckets must hold no more than has accrued by now.
    async fn records(&mut self) -> anyhow::Result<Vec<StreamRecord>> {
        let records: Vec<_> = self.reader.drain(time(self.now)).await?.into_values().flatten().collect();
        self.buckets.take(&records)?;
        self.buckets.check_bound(self.now - START)?;
        Ok(records)
    }

    /// Delivers all records until no more are written. Returns whether there were none.
    async fn settle(&mut self) -> anyhow::Result<bool> {
        let mut is_quiet = true;
        loop {
            let records = self.records().await?;
            if records.is_empty() {
                return Ok(is_quiet);
            }
            is_quiet = false;
            let (_, answer) = self.function.handle(&event(&records)?, in_time()).await;
            ensure!(answer?.batch_item_failures.is_empty(), "a delivery without faults failed");
        }
    }
}

/// Clients draw, and everything is delivered with faults. Returns what happened.
async fn check(batch_size: usize, rate: f64, seed: u64) -> anyhow::Result<Tally<KeeperReport>> {
    let http = FaultyHttp::new(FaultRates::spread(rate / 2.0), seed);
    let mut run = Run::new(&http).await?;
    let mut rng = StdRng::seed_from_u64(seed);
    let queue = Arc::clone(&run.services.queue);
    let chaos = Chaos { rate, http: http.clone(), queue, rng: StdRng::seed_from_u64(seed) };
    let batch_size = NonZeroUsize::MIN.saturating_add(batch_size - 1);
    let mut pump = Pump::new(Arc::clone(&run.function), batch_size, Some(chaos));

    let (mut ledger, mut waiting) = (Ledger::new(), run.records().await?);
    for _ in 0..WAVES {
        run.wait(STEP);
        // The clients are a wave ahead of the function.
        try_join!(
            clients::draw(&run.services, &mut rng, 25, &mut ledger),
            pump.deliver(std::mem::take(&mut waiting), |_| ()),
        )?;
        waiting = run.records().await?;
    }
    pump.deliver(waiting, |_| ()).await?;
    pump.finish().await?;

    // The next write to a bucket completes work that lost a race.
    run.wait(STEP);
    clients::touch(&run.services, &mut ledger).await?;
    run.settle().await?;
    let mut quiet = 0;
    for _ in 0..10 {
        run.wait(REPAIR);
        run.function.processes[0].repair(in_time()).await.complete?;
        quiet = if run.settle().await? { quiet + 1 } else { 0 };
    }
    ensure!(quiet >= 2, "the repair does not come to rest");
    run.buckets.check_shards()?;
    run.buckets.check_ledger(&ledger)?;
    let parked: BTreeSet<_> = run.services.queue.messages().into_iter().map(|message| message.body).collect();
    ensure!(run.buckets.poison == parked, "{:?} is poison, and parked is {parked:?}", run.buckets.poison);
    Ok(pump.tally().clone())
}

#[tokio::test]
async fn every_kind_of_fault_is_survived() -> anyhow::Result<()> {
    let Tally { report, faults, .. } = check(8, 0.4, 1).await?;
    for fault in pump::Fault::ALL {
        assert!(faults.get(&fault).is_some_and(|count| *count > 0), "no {fault} in {faults:?}");
    }
    let KeeperReport { parked, refilled, trimmed, lost, split, doubled, double_lost, .. } = report;
    let done = [parked, refilled, trimmed, lost, split, doubled + double_lost];
    assert!(done.iter().all(|count| *count > 0), "{report:?}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_delivery_is_survived(batch_size in 1..120_usize, rate in 0.05..0.6_f64, seed: u64) {
        let runtime = tokio::runtime::Runtime::new()?;
        let run = runtime.block_on(check(batch_size, rate, seed));
        run.map_err(|error| TestCaseError::fail(format!("{error:#}")))?;
    }
}
