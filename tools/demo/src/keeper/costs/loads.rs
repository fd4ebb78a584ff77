//! The loads: one bucket each, and how its clients draw from it.

/// A bucket and its clients.
#[derive(Clone, Debug)]
pub struct Load {
    pub name: &'static str,
    /// What the keeper should do about it.
    pub aim: Aim,
    /// Tokens that the bucket holds at most.
    pub capacity: i64,
    /// Tokens that accrue in a period.
    pub refill: i64,
    /// The period, in milliseconds.
    pub period: i64,
    pub shards: u32,
    /// Tokens that each acquire takes.
    pub tokens: i64,
    /// What the clients do, over and over.
    pub stretches: Vec<Stretch>,
}

/// What the keeper should do about a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Save at least half of the slow paths.
    Halve,
    /// Write nothing.
    LeaveAlone,
    /// Do no harm. It can save little, because the load changes faster than the keeper can act, or exceeds the limit.
    NoHarm,
}

/// A Poisson process whose rate changes evenly.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// How long it takes.
    pub seconds: f64,
    /// Acquires a second at its beginning...
    pub from: f64,
    pub to: f64,
}

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60_000;

/// All loads, in the order of the table.
pub fn all() -> Vec<Load> {
    vec![
        Load::new("0.8/s on 60/min", Aim::Halve, (60, 60, MINUTE), &steady(0.8)),
        Load::new("16/s of 20 tokens on 400/s, capacity 2,000", Aim::Halve, (2_000, 400, SECOND), &steady(16.0)).of(20),
        Load::new("2.7/s of 500 tokens on 100,000/min", Aim::Halve, (100_000, 100_000, MINUTE), &steady(2.7)).of(500),
        Load::new("32/s on 40/s, capacity 40", Aim::LeaveAlone, (40, 40, SECOND), &steady(32.0)),
        Load::new("2/s wanted on 60/min", Aim::LeaveAlone, (60, 60, MINUTE), &steady(2.0)),
        Load::new("100/s on 125/s, capacity 125", Aim::LeaveAlone, (125, 125, SECOND), &steady(100.0)),
        Load::new("100/s on 7,500/min", Aim::Halve, (7_500, 7_500, MINUTE), &steady(100.0)),
        Load::new("2,000/s on 150,000/min, four shards", Aim::Halve, (150_000, 150_000, MINUTE), &steady(2_000.0))
            .over(4),
        Load::new(
            "bursts: 5 s of 100/s a minute, else 2/s, on 1,000/min",
            Aim::Halve,
            (1_000, 1_000, MINUTE),
            &[Stretch::constant(5.0, 100.0), Stretch::constant(55.0, 2.0)],
        ),
        Load::new(
            "bursts: 2 s of 300/s in 30 s, else 5/s, on 100/s, capacity 500",
            Aim::NoHarm,
            (500, 100, SECOND),
            &[Stretch::constant(2.0, 300.0), Stretch::constant(28.0, 5.0)],
        ),
        Load::new(
            "ramps: 10/s to 600/s and back in 5 min, on 45,000/min",
            Aim::Halve,
            (45_000, 45_000, MINUTE),
            &[Stretch { seconds: 150.0, from: 10.0, to: 600.0 }, Stretch { seconds: 150.0, from: 600.0, to: 10.0 }],
        ),
        Load::new(
            "ramps: 1/s to 20/s and back in 5 min, on 600/min",
            Aim::NoHarm,
            (600, 600, MINUTE),
            &[Stretch { seconds: 150.0, from: 1.0, to: 20.0 }, Stretch { seconds: 150.0, from: 20.0, to: 1.0 }],
        ),
    ]
}

fn steady(rate: f64) -> [Stretch; 1] {
    [Stretch::constant(60.0, rate)]
}

impl Load {
    fn new(name: &'static str, aim: Aim, (capacity, refill, period): (i64, i64, i64), stretches: &[Stretch]) -> Self {
        Self { name, aim, capacity, refill, period, shards: 1, tokens: 1, stretches: stretches.to_vec() }
    }

    fn of(self, tokens: i64) -> Self {
        Self { tokens, ..self }
    }

    fn over(self, shards: u32) -> Self {
        Self { shards, ..self }
    }

    /// Acquires a second at a moment, in seconds.
    pub(super) fn rate(&self, at: f64) -> f64 {
        let cycle: f64 = self.stretches.iter().map(|stretch| stretch.seconds).sum();
        let mut at = at % cycle;
        for Stretch { seconds, from, to } in &self.stretches {
            if at < *seconds {
                return from + (to - from) * at / seconds;
            }
            at -= seconds;
        }
        0.0
    }

    pub(super) fn highest_rate(&self) -> f64 {
        self.stretches.iter().flat_map(|stretch| [stretch.from, stretch.to]).fold(0.0, f64::max)
    }
}

impl Stretch {
    const fn constant(seconds: f64, rate: f64) -> Self {
        Self { seconds, from: rate, to: rate }
    }
}
