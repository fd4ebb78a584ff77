//! The rule itself: whatever happens, workers never use more than the cap together.

use proptest::prelude::*;
use tidegate_domain::rates::Rates;

use crate::{
    rate,
    world::{Step, World},
};

/// The cap, in millionths of a unit.
const CAP: u64 = 1_000_000_000;

/// Makes a step of a random number. A history of numbers is much faster to generate than one of steps.
fn step(random: u64) -> Step {
    let mut rest = random;
    let mut below = |bound: u64| {
        let drawn = rest % bound;
        rest /= bound;
        drawn
    };
    let kind = below(64);
    let place = usize::try_from(below(4)).unwrap();
    match kind {
        0..6 => Step::Wait(i64::try_from(below(6_000)).unwrap()),
        6 => Step::Wait(i64::try_from(10_000 + below(60_000)).unwrap()),
        7..11 => {
            let most = [1, CAP / 4, 2 * CAP][usize::try_from(below(3)).unwrap()];
            Step::Want(place, below(most), below(most))
        }
        11..15 => Step::Report(place),
        15..19 => Step::Read(place),
        19..22 => Step::Plan(place % 2, if below(4) == 0 { u8::try_from(below(16)).unwrap() } else { 0 }),
        22..30 => Step::Deliver(usize::try_from(below(1_000)).unwrap(), below(5) == 0),
        30..32 => Step::Drop(usize::try_from(below(1_000)).unwrap()),
        32..38 => Step::Cycle(place),
        38..42 => Step::Aggregate(usize::from(below(5) == 0)),
        42..56 => Step::Round(i64::try_from(1_000 + below(5_000)).unwrap()),
        56..61 => Step::Network(place, below(2) == 0, below(2) == 0),
        61 => Step::RestartWorker(place),
        62 => Step::StopWorker(place),
        _ => Step::RestartAggregator(place % 2),
    }
}

/// How fast a clock is, in thousandths.
fn speed() -> impl Strategy<Value = i64> {
    prop_oneof![Just(990), Just(1000), Just(1010)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn workers_never_exceed_the_cap(
        history in prop::collection::vec(any::<u64>().prop_map(step), 1..250),
        speeds in prop::collection::vec(speed(), 2..=4),
        aggregators in [(speed(), -5_500..=5_500_i64), (speed(), -5_500..=5_500_i64)],
    ) {
        let mut world = World::new(Rates { read: rate(CAP), write: rate(CAP / 10) }, &speeds, aggregators);
        for step in history {
            world.step(&step);
            if let Err(error) = world.check() {
                prop_assert!(false, "{step:?}: {error}");
            }
            // Later, the aggregators' clocks differ by more than ten seconds from the store's.
            if world.now > 450_000 {
                break;
            }
        }
    }
}
