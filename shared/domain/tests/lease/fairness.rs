//! Liveness: with steady wants and working calls, two rounds make the fleet fair and use the cap up.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_domain::{
    lease::{
        distributable,
        holder::{Allowance, Basis, LeaseHolder},
        ledger::{Ledger, Sighting},
    },
    rates::{Rate, Rates},
    time::EpochMillis,
};

use crate::{at, rate, weight};

struct Member {
    id: String,
    holder: LeaseHolder,
    wants: Rates,
    weight: u32,
}

/// The workers report one after the other, the aggregator plans, and all adopt.
fn round(members: &mut [Member], ledger: &mut Ledger, cap: Rates, second: u32) {
    let clock = Duration::from_secs(second.into());
    let now = at(i64::from(second) * 1000);
    let reports: Vec<_> = members
        .iter_mut()
        .map(|member| (member.id.clone(), member.holder.begin_report(member.wants, weight(member.weight), clock)))
        .collect();
    let sightings = reports.iter().map(|(worker, report)| Sighting { worker, written: now, report: Some(*report) });
    let terms = ledger.plan(sightings, cap, Rates::default(), now);
    for (member, (_, report)) in members.iter_mut().zip(&reports) {
        member.holder.confirm(report.number, clock);
        member.holder.adopt(&terms, report.number, clock);
    }
}

fn members(wants: &[(u64, u64, u32)]) -> Vec<Member> {
    let member = |(place, (read, write, weight)): (usize, &(u64, u64, u32))| Member {
        id: place.to_string(),
        holder: LeaseHolder::default(),
        wants: Rates { read: rate(*read), write: rate(*write) },
        weight: *weight,
    };
    wants.iter().enumerate().map(member).collect()
}

/// Checks that no worker has less than it wants while another has more by weight, and that the whole cap is given out.
fn check(held: &[(Rate, Rate, u32)], cap: Rate) -> Result<(), TestCaseError> {
    let weights: u64 = held.iter().map(|(_, _, weight)| u64::from(*weight)).sum();
    let sum: u64 = held.iter().map(|(has, _, _)| has.millionths()).sum();
    prop_assert!(sum <= cap.millionths());
    for (has, wants, weight) in held.iter().filter(|(has, wants, _)| has < wants) {
        prop_assert!(cap.millionths() - sum < weights, "{has:?} of {wants:?} with {} left", cap.millionths() - sum);
        for (more, _, by) in held {
            let (less, more) = (has.millionths() / u64::from(*weight), more.millionths().div_ceil(u64::from(*by)));
            prop_assert!(more <= less, "{less} and {more}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Rounds with other wants come first, so that the fleet holds something.
    #[test]
    fn two_rounds_make_a_fleet_fair(
        histories in prop::collection::vec(
            prop::collection::vec((0..400_u64, 0..400_u64, 1..4_u32), 6), 1..4),
        size in 1..=6_usize,
        cap in 1..600_u64,
    ) {
        let cap = Rates { read: rate(cap), write: rate(cap / 2) };
        let mut members = members(&histories[0][..size]);
        let mut ledger = Ledger::new(None, EpochMillis::EPOCH);
        let mut second = 1;
        for wants in &histories {
            for (member, (read, write, weight)) in members.iter_mut().zip(wants) {
                member.wants = Rates { read: rate(*read), write: rate(*write) };
                member.weight = *weight;
            }
            round(&mut members, &mut ledger, cap, second);
            second += 5;
        }
        round(&mut members, &mut ledger, cap, second);
        let held: Vec<_> = members
            .iter()
            .map(|member| (member.holder.allowance(Duration::from_secs(second.into())), member.wants, member.weight))
            .collect();
        // A worker adopts no grant of nothing.
        let leased = |allowance: &Allowance| match allowance.basis {
            Basis::Lease => allowance.rates,
            Basis::Start | Basis::SafeShare => Rates::default(),
        };
        let of = |kind: fn(Rates) -> Rate| -> Vec<_> {
            held.iter().map(|(allowance, wants, weight)| (kind(leased(allowance)), kind(*wants), *weight)).collect()
        };
        check(&of(|rates| rates.read), distributable(cap).read)?;
        check(&of(|rates| rates.write), distributable(cap).write)?;
    }
}

/// A fleet of the greatest size that is supported.
#[test]
fn ten_thousand_workers_share_a_cap() {
    let wants: Vec<_> = (0..10_000_u64).map(|place| (1 + place * 7_919 % 30_000, place % 40, 1)).collect();
    let mut members = members(&wants);
    let cap = Rates { read: rate(100_000_000), write: rate(100_000) };
    let mut ledger = Ledger::new(None, EpochMillis::EPOCH);
    for second in [1, 6] {
        round(&mut members, &mut ledger, cap, second);
    }
    let held = members.iter().map(|member| member.holder.allowance(Duration::from_secs(6)).rates);
    let (reads, writes) = held
        .fold((0, 0), |(reads, writes), rates| (reads + rates.read.millionths(), writes + rates.write.millionths()));
    assert!((97_990_001..=98_000_000).contains(&reads), "{reads}");
    assert!((88_001..=98_000).contains(&writes), "{writes}");
}
