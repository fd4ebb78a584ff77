//! Which acquires start when.

use std::time::Duration;

use serde::Serialize;

/// What the acquires of a load are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scenario {
    /// One request each
    Simple,
    /// One request each, as fast as the answers come, over all entities in turn
    MaxRps,
    /// One request and an estimate of tokens each, which is adjusted after a simulated call of a model
    LlmGateway,
    /// One request each; ten entities make nine tenths of them
    Whales,
}

/// Times at which the load is higher.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spikes {
    pub(crate) factor: f64,
    /// From one start to the next, in seconds.
    pub(crate) every: f64,
    /// In seconds.
    pub(crate) length: f64,
}

/// An acquire.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Request {
    /// After the start of the load.
    pub(crate) at_micros: u64,
    pub(crate) entity: String,
    /// Taken at first.
    pub(crate) tokens: u64,
    /// Taken afterwards; below zero, tokens are given back.
    pub(crate) adjust: i64,
    /// From the grant to the adjustment.
    pub(crate) hold_micros: u64,
}

/// The whales, and their share of the load.
const WHALES: usize = 10;
const WHALES_SHARE: f64 = 0.9;

/// The requests of a load in the order of their times. Arrivals are a Poisson process.
pub(crate) fn requests(
    scenario: Scenario,
    spikes: &Spikes,
    rate: f64,
    duration: Duration,
    entities: u32,
    seed: u64,
) -> Vec<Request> {
    if scenario == Scenario::MaxRps {
        return Vec::new();
    }
    let mut rng = fastrand::Rng::with_seed(seed);
    let shares = cumulative_shares(scenario, entities);
    let (mut at, mut requests) = (0.0, Vec::new());
    loop {
        // A spike ends each interval, so that caches are warm when the first one comes.
        let is_spike = at % spikes.every >= spikes.every - spikes.length;
        let rate = if is_spike { rate * spikes.factor } else { rate };
        at -= (1.0 - rng.f64()).ln() / rate;
        let offset = Duration::from_secs_f64(at);
        if offset >= duration {
            return requests;
        }
        let drawn = rng.f64();
        let number = shares.partition_point(|share| *share <= drawn).min(shares.len() - 1);
        let request = Request {
            at_micros: u64::try_from(offset.as_micros()).unwrap_or(u64::MAX),
            entity: entity(u32::try_from(number).unwrap_or(u32::MAX)),
            tokens: 0,
            adjust: 0,
            hold_micros: 0,
        };
        requests.push(if scenario == Scenario::LlmGateway { with_tokens(request, &mut rng) } else { request });
    }
}

/// The estimate of a call of a model, what it really takes, and how long it lasts.
fn with_tokens(request: Request, rng: &mut fastrand::Rng) -> Request {
    let estimate = rng.u32(200..2_000);
    let used = rng.u32(estimate / 4..estimate * 5 / 4);
    Request {
        tokens: estimate.into(),
        adjust: i64::from(used) - i64::from(estimate),
        hold_micros: rng.u64(50_000..500_000),
        ..request
    }
}

/// The name of an entity.
pub(crate) fn entity(number: u32) -> String {
    format!("entity-{number}")
}

/// For each entity, the share of the load of all entities up to it. The shares are proportional to 1, 1/2, 1/3, ...
fn cumulative_shares(scenario: Scenario, entities: u32) -> Vec<f64> {
    let mut weights: Vec<f64> = (1..=entities).map(|rank| 1.0 / f64::from(rank)).collect();
    if scenario == Scenario::Whales && weights.len() > WHALES {
        let (whales, others) = weights.split_at_mut(WHALES);
        let scale = |weights: &mut [f64], share: f64| {
            let sum: f64 = weights.iter().sum();
            for weight in weights {
                *weight *= share / sum;
            }
        };
        scale(whales, WHALES_SHARE);
        scale(others, 1.0 - WHALES_SHARE);
    }
    let total: f64 = weights.iter().sum();
    let mut sum = 0.0;
    for weight in &mut weights {
        sum += *weight / total;
        *weight = sum;
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Spikes = Spikes { factor: 1.0, every: 5.0, length: 1.0 };

    fn run(scenario: Scenario, spikes: &Spikes, seed: u64) -> Vec<Request> {
        requests(scenario, spikes, 1_000.0, Duration::from_secs(10), 16_000, seed)
    }

    fn of_entities(requests: &[Request], numbers: std::ops::Range<u32>) -> usize {
        let names: Vec<_> = numbers.map(entity).collect();
        requests.iter().filter(|request| names.contains(&request.entity)).count()
    }

    #[test]
    fn a_seed_gives_one_schedule() {
        assert_eq!(run(Scenario::LlmGateway, &CALM, 1), run(Scenario::LlmGateway, &CALM, 1));
        assert_ne!(run(Scenario::LlmGateway, &CALM, 1), run(Scenario::LlmGateway, &CALM, 2));
    }

    #[test]
    fn entities_follow_a_power_law() {
        let requests = run(Scenario::Simple, &CALM, 1);
        assert!((9_500..10_500).contains(&requests.len()), "{}", requests.len());
        assert!(requests.is_sorted_by_key(|request| request.at_micros));
        // The first of 16,000 has 1 in 10.3 parts.
        assert!((800..1_150).contains(&of_entities(&requests, 0..1)));
        let whales = run(Scenario::Whales, &CALM, 1);
        let share = of_entities(&whales, 0..10) * 100 / whales.len();
        assert!((88..=92).contains(&share), "{share} %");
    }

    #[test]
    fn spikes_raise_the_rate() {
        let requests = run(Scenario::Simple, &Spikes { factor: 3.0, ..CALM }, 1);
        let within = |seconds: std::ops::Range<u64>| {
            requests.iter().filter(|request| seconds.contains(&(request.at_micros / 1_000_000))).count()
        };
        assert!((2_800..3_200).contains(&within(4..5)), "{}", within(4..5));
        assert!((900..1_100).contains(&within(5..6)), "{}", within(5..6));
    }
}
