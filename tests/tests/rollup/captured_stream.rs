//! The records of a real client give exactly the usage that it was granted, however they are delivered.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::Arc,
};

use proptest::prelude::*;
use rand::{SeedableRng as _, rngs::StdRng};
use tidegate_sandbox::{
    mapping::StreamRecord,
    pump::{self, Chaos, Pump},
};
use tidegate_tests::rollup::prelude::*;

const SNAPSHOTS: usize = 242;

fn size(batch_size: usize) -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add(batch_size - 1)
}

/// Adds poison behind every twentieth record: its twin with no valid key. Also returns the poison.
fn with_poison(records: Vec<StreamRecord>) -> anyhow::Result<(Vec<StreamRecord>, BTreeSet<String>)> {
    let (mut all, mut poison) = (Vec::new(), BTreeSet::new());
    for (at, record) in records.into_iter().enumerate() {
        all.push(record.clone());
        if at % 20 == 19 {
            let mut twin: Value = serde_json::from_str(&record.json)?;
            let sequence = (record.sequence.parse::<u128>()? + 1).to_string();
            twin["dynamodb"]["SequenceNumber"] = json!(sequence);
            twin["dynamodb"]["Keys"]["SK"] = json!({"S": "#STATE"});
            twin["dynamodb"]["Keys"]["PK"] = json!({"S": format!("TQ5vSMvQTm4/BUCKET#twin#api#none-{at}")});
            let json = twin.to_string();
            poison.insert(json.clone());
            all.push(StreamRecord { sequence, json: json.into() });
        }
    }
    Ok((all, poison))
}

/// Delivers the captured stream with faults and checks every snapshot. Returns the faults.
async fn check(batch_size: usize, rate: f64, seed: u64) -> anyhow::Result<BTreeMap<pump::Fault, usize>> {
    let scene = RollupScene::with_faults(FaultRates::spread(rate), seed).await?;
    let chaos = (rate > 0.0).then(|| Chaos {
        rate,
        http: scene.http.clone(),
        queue: Arc::clone(&scene.services.queue),
        rng: StdRng::seed_from_u64(seed),
    });
    let (records, poison) =
        if rate > 0.0 { with_poison(captured_records()?)? } else { (captured_records()?, BTreeSet::new()) };
    let mut pump = Pump::new(Arc::clone(&scene.function), size(batch_size), chaos);
    pump.deliver(records, |_| ()).await?;
    pump.finish().await?;

    let truth = captured_truth()?;
    assert_eq!(truth.iter().count(), SNAPSHOTS);
    let differences = scene.usage().await?.differences(&truth);
    assert!(differences.is_empty(), "batches of {batch_size}, faults {rate}, seed {seed}:\n{}", differences.join("\n"));
    let parked = scene.services.queue.messages().into_iter().map(|message| message.body).collect::<BTreeSet<_>>();
    assert_eq!(parked, poison, "every poison record is parked whole, and nothing else is");
    Ok(pump.tally().faults.clone())
}

#[tokio::test]
async fn records_count_once_per_stream() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let label = "2026-01-01T00:00:00.000";
    for (later, times) in [(label, 1), (label, 1), ("2026-01-01T00:00:00.001", 2), (label, 2)] {
        let mut pump = Pump::new(Arc::clone(&scene.function), size(100), None);
        let records = captured_records()?.into_iter().map(|StreamRecord { sequence, json }| {
            assert!(json.contains(label));
            StreamRecord { sequence, json: json.replace(label, later).into() }
        });
        pump.deliver(records, |_| ()).await?;
        let mut truth = captured_truth()?;
        for (snapshot, usage) in captured_truth()?.iter().filter(|_| times == 2) {
            usage.tokens.iter().for_each(|(limit, tokens)| truth.add_tokens(snapshot, limit, *tokens));
            (0..usage.events).for_each(|_| truth.add_event(snapshot));
        }
        let differences = scene.usage().await?.differences(&truth);
        assert!(differences.is_empty(), "{later}:\n{}", differences.join("\n"));
    }
    Ok(())
}

#[tokio::test]
async fn one_batch_is_one_write_a_snapshot() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let mut pump = Pump::new(Arc::clone(&scene.function), size(10_000), None);
    pump.deliver(captured_records()?, |_| ()).await?;
    assert_eq!(scene.http.writes(), SNAPSHOTS as u64);
    let report = &pump.tally().report;
    assert_eq!((report.records, report.changes, report.not_ours), (651, 636, 15));
    Ok(())
}

#[tokio::test]
async fn every_kind_of_fault_is_survived() -> anyhow::Result<()> {
    assert!(check(100, 0.0, 0).await?.is_empty());
    let faults = check(10, 0.4, 1).await?;
    for fault in pump::Fault::ALL {
        assert!(faults.get(&fault).is_some_and(|count| *count > 0), "no {fault} in {faults:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_delivery_is_exact(batch_size in 5..700_usize, rate in 0.05..0.7_f64, seed: u64) {
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(check(batch_size, rate, seed)).map_err(|error| TestCaseError::fail(format!("{error:#}")))?;
    }
}
