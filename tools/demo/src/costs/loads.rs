//! The loads: one bucket each, and how its clients draw from it.

use crate::exact_bucket::Terms;

/// A bucket and its clients.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) name: &'static str,
    pub(crate) expectation: Expectation,
    /// The period is in milliseconds.
    pub(crate) terms: Terms,
    pub(crate) shards: u32,
    /// Tokens that each acquire takes.
    pub(crate) tokens: i64,
    /// The rate of the acquires, which repeats.
    pub(crate) segments: Vec<LoadSegment>,
}

/// What the keeper should achieve with a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// Save at least half of the slow paths.
    Halve,
    /// Write nothing.
    LeaveAlone,
    /// Cause no harm. It can save little, because the load changes faster than the keeper can act, or exceeds the limit.
    NoHarm,
}

/// A Poisson process whose rate changes linearly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadSegment {
    pub(crate) seconds: f64,
    /// Acquires a second at the start.
    pub(crate) from: f64,
    /// Acquires a second at the end.
    pub(crate) to: f64,
}

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60_000;

/// All loads, in the order of the table.
pub(crate) fn all() -> Vec<Load> {
    vec![
        Load::new("0.8/s on 60/min", Expectation::Halve, (60, 60, MINUTE), &steady(0.8)),
        Load::new(
            "16/s of 20 tokens on 400/s, capacity 2,000",
            Expectation::Halve,
            (2_000, 400, SECOND),
            &steady(16.0),
        )
        .of(20),
        Load::new("2.7/s of 500 tokens on 100,000/min", Expectation::Halve, (100_000, 100_000, MINUTE), &steady(2.7))
            .of(500),
        Load::new("32/s on 40/s, capacity 40", Expectation::LeaveAlone, (40, 40, SECOND), &steady(32.0)),
        Load::new("2/s wanted on 60/min", Expectation::LeaveAlone, (60, 60, MINUTE), &steady(2.0)),
        Load::new("100/s on 125/s, capacity 125", Expectation::LeaveAlone, (125, 125, SECOND), &steady(100.0)),
        Load::new("100/s on 7,500/min", Expectation::Halve, (7_500, 7_500, MINUTE), &steady(100.0)),
        Load::new(
            "2,000/s on 150,000/min, four shards",
            Expectation::Halve,
            (150_000, 150_000, MINUTE),
            &steady(2_000.0),
        )
        .over(4),
        Load::new(
            "bursts: 5 s of 100/s a minute, else 2/s, on 1,000/min",
            Expectation::Halve,
            (1_000, 1_000, MINUTE),
            &[LoadSegment::constant(5.0, 100.0), LoadSegment::constant(55.0, 2.0)],
        ),
        Load::new(
            "bursts: 2 s of 300/s in 30 s, else 5/s, on 100/s, capacity 500",
            Expectation::NoHarm,
            (500, 100, SECOND),
            &[LoadSegment::constant(2.0, 300.0), LoadSegment::constant(28.0, 5.0)],
        ),
        Load::new(
            "ramps: 10/s to 600/s and back in 5 min, on 45,000/min",
            Expectation::Halve,
            (45_000, 45_000, MINUTE),
            &[
                LoadSegment { seconds: 150.0, from: 10.0, to: 600.0 },
                LoadSegment { seconds: 150.0, from: 600.0, to: 10.0 },
            ],
        ),
        Load::new(
            "ramps: 1/s to 20/s and back in 5 min, on 600/min",
            Expectation::NoHarm,
            (600, 600, MINUTE),
            &[LoadSegment { seconds: 150.0, from: 1.0, to: 20.0 }, LoadSegment { seconds: 150.0, from: 20.0, to: 1.0 }],
        ),
    ]
}

fn steady(rate: f64) -> [LoadSegment; 1] {
    [LoadSegment::constant(60.0, rate)]
}

impl Load {
    fn new(
        name: &'static str,
        expectation: Expectation,
        (capacity, refill, period): (i64, i64, i64),
        segments: &[LoadSegment],
    ) -> Self {
        let terms = Terms { capacity, refill, period };
        Self { name, expectation, terms, shards: 1, tokens: 1, segments: segments.to_vec() }
    }

    fn of(self, tokens: i64) -> Self {
        Self { tokens, ..self }
    }

    fn over(self, shards: u32) -> Self {
        Self { shards, ..self }
    }

    /// Acquires a second at a moment, in seconds.
    pub(crate) fn rate(&self, at: f64) -> f64 {
        let cycle: f64 = self.segments.iter().map(|segment| segment.seconds).sum();
        let mut at = at % cycle;
        for LoadSegment { seconds, from, to } in &self.segments {
            if at < *seconds {
                return from + (to - from) * at / seconds;
            }
            at -= seconds;
        }
        0.0
    }

    pub(crate) fn highest_rate(&self) -> f64 {
        self.segments.iter().flat_map(|segment| [segment.from, segment.to]).fold(0.0, f64::max)
    }
}

impl LoadSegment {
    const fn constant(seconds: f64, rate: f64) -> Self {
        Self { seconds, from: rate, to: rate }
    }
}
