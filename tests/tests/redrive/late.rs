//! The stream of a real client, so late that every posting may be given up, by a function whose table fails
//! and which gives up soon: what is not counted is parked, and a redrive makes the books right.

use std::{collections::BTreeSet, num::NonZeroUsize, sync::Arc};

use aws_config::retry::RetryConfig;
use proptest::prelude::*;
use rand::{SeedableRng as _, rngs::StdRng};
use tidegate_aws::{client, snapshots::Snapshots, stream::StreamEvent};
use tidegate_domain::{redrive::Decision, time::EpochMillis};
use tidegate_local::{
    faults::{FaultRates, FaultyHttp, sdk_config},
    mapping::Settings,
    pump::{Chaos, Done, Function, Pump},
    queue::Message,
};
use tidegate_tests::{Scene, captured_records, captured_truth, poison::with_poison};
use tokio::time::Instant;
use usage_rollup::{handler::UsageRollup, report::Report};

use crate::scene::redriver_by;

/// 2026-01-02T00:00:00Z: many hours after the last record, and a day after none.
const NOW: i64 = 1_767_312_000_000;

/// The function at this moment.
#[derive(Debug)]
struct Late(UsageRollup);

impl Function for Late {
    type Report = Report;

    async fn handle(&self, event: &StreamEvent, deadline: Instant) -> Done<Report> {
        let handled = self.0.handle(event, now(), deadline).await;
        (handled.report, handled.answer)
    }
}

fn now() -> EpochMillis {
    EpochMillis::new(NOW).unwrap()
}

/// Delivers the captured stream with faults, redrives with faults, and checks every snapshot; how many postings were
/// given up, and how many letters told of records that were counted after all.
async fn check(batch_size: usize, rate: f64, seed: u64) -> anyhow::Result<(usize, usize)> {
    let scene = Scene::new(FaultRates::spread(rate), seed).await?;
    // No call is tried again, so many fail although they were done.
    let soon = sdk_config(&scene.services.endpoint, scene.http.clone()).into_builder();
    let soon = soon.retry_config(RetryConfig::standard().with_max_attempts(1)).build();
    let snapshots = Snapshots::new(client::dynamodb(&soon), &scene.services.table, 90);
    let function = Late(UsageRollup { snapshots, ..UsageRollup::clone(&scene.function) });
    let chaos = Chaos {
        rate,
        http: scene.http.clone(),
        queue: Arc::clone(&scene.services.queue),
        rng: StdRng::seed_from_u64(seed),
    };
    let batch_size = NonZeroUsize::new(batch_size).unwrap();
    let settings = Settings { batch_size, bisect: true, max_retries: None };
    let (records, poison) = with_poison(captured_records()?)?;
    let mut pump = Pump::new(Arc::new(function), settings, Some(chaos));
    pump.deliver(records, |_| ()).await?;
    pump.finish().await?;

    let http = FaultyHttp::new(FaultRates::spread(rate / 2.0), seed);
    let redriver = redriver_by(&scene, http);
    // What nothing came after waits until it is too old to be delivered.
    let early = redriver.run(now()).await?;
    let mut summary = redriver.run(EpochMillis::new(NOW + 2 * 86_400_000)?).await?;
    for (decision, count) in early.decisions {
        *summary.decisions.entry(decision).or_default() += count;
    }
    assert_eq!(summary.decisions.get(&Decision::Undecided), None, "{summary}");
    let left: BTreeSet<_> = scene.services.queue.messages().into_iter().map(|Message { body, .. }| body).collect();
    assert_eq!(left, poison, "nothing but poison stays: {summary}");
    let differences = scene.books().await?.differences(&captured_truth()?);
    assert!(differences.is_empty(), "batches of {batch_size}, faults {rate}, seed {seed}:\n{}", differences.join("\n"));
    let counted = summary.decisions.get(&Decision::AlreadyCounted).copied().unwrap_or_default();
    Ok((pump.tally().report.given_up, counted))
}

#[tokio::test]
async fn what_was_given_up_is_made_good() -> anyhow::Result<()> {
    let (given_up, counted) = check(25, 0.3, 1).await?;
    assert!(given_up > 20 && counted > 0, "{given_up} given up, {counted} counted after all");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn any_late_delivery_is_made_good(batch_size in 5..700_usize, rate in 0.05..0.5_f64, seed: u64) {
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(check(batch_size, rate, seed)).map_err(|error| TestCaseError::fail(format!("{error:#}")))?;
    }
}
