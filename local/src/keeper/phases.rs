//! What the clients do, phase by phase: each on a bucket of its own.

/// A limit, in whole tokens, and its period in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) capacity: i64,
    pub(crate) refill: i64,
    pub(crate) period: i64,
}

/// Acquires: so many in the first second, so many in the last, and evenly in between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) seconds: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// A phase with traffic.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) terms: Terms,
    /// What each acquire takes, in whole tokens.
    pub(crate) tokens: i64,
    pub(crate) load: Vec<Stretch>,
}

pub(crate) const STEADY: &str = "steady";
pub(crate) const BURST: &str = "burst";
pub(crate) const RAMP: &str = "ramp";
pub(crate) const IDLE: &str = "idle";

/// The limit of each phase's bucket.
const LIMITS: [(&str, Terms); 4] = [
    (STEADY, Terms { capacity: 2_000, refill: 500, period: 1_000 }),
    (BURST, Terms { capacity: 2_000, refill: 100, period: 1_000 }),
    (RAMP, Terms { capacity: 20_000, refill: 5_000, period: 1_000 }),
    (IDLE, Terms { capacity: 400, refill: 400, period: 300_000 }),
];

/// Four fifths of the limit.
const STEADY_RATE: u32 = 400;
/// Five tokens each, so that it is the limit that runs out and not a shard's write units. Sharded, the bucket
/// would be refilled by its clients as if shard 0 were all of it, which is more than the limit allows.
const BURST_TOKENS: i64 = 5;
/// Of 100 tokens a second, 1,500 are wanted, until the bucket is empty and beyond...
const BURST_RATE: u32 = 300;
const BURST_SECONDS: u32 = 3;
/// ...and 90 from then on.
const AFTER_BURST_RATE: u32 = 18;
const AFTER_BURST_SECONDS: u32 = 9;
/// From what one shard bears easily to what takes four.
const RAMP_FROM: u32 = 100;
const RAMP_TO: u32 = 2_500;

/// Shards of the bucket that nobody writes to, of which the last one is drained.
pub(crate) const IDLE_SHARDS: u32 = 4;
/// For how long nobody does.
pub(crate) const IDLE_MINUTES: u32 = 7;
/// The shards that the ramp takes.
pub(crate) const RAMP_SHARDS: u32 = 4;

pub(crate) fn terms(phase: &str) -> Terms {
    let found = LIMITS.iter().find(|(name, _)| *name == phase);
    found.map_or(Terms { capacity: 0, refill: 1, period: 1 }, |(_, terms)| *terms)
}

/// The phases with traffic, of which the steady one takes this many seconds of simulated time and the ramp
/// half as many: two thirds of them to rise, the others at the top.
pub(crate) fn with_traffic(seconds: u32) -> [Phase; 3] {
    let constant = |seconds, rate| Stretch { seconds, from: rate, to: rate };
    let rise = Stretch { seconds: seconds.div_ceil(3), from: RAMP_FROM, to: RAMP_TO };
    let phase = |name, tokens, load| Phase { name, terms: terms(name), tokens, load };
    let burst = vec![constant(BURST_SECONDS, BURST_RATE), constant(AFTER_BURST_SECONDS, AFTER_BURST_RATE)];
    [
        phase(STEADY, 1, vec![constant(seconds, STEADY_RATE)]),
        phase(BURST, BURST_TOKENS, burst),
        phase(RAMP, 1, vec![rise, constant(seconds.div_ceil(6), RAMP_TO)]),
    ]
}

impl Phase {
    /// The acquires of each second.
    pub(crate) fn by_second(&self) -> impl Iterator<Item = u32> {
        self.load.iter().flat_map(|stretch| (0..stretch.seconds).map(|second| stretch.rate(second)))
    }

    /// All acquires.
    pub(crate) fn acquires(&self) -> u64 {
        self.by_second().map(u64::from).sum()
    }
}

impl Stretch {
    fn rate(self, second: u32) -> u32 {
        let steps = self.seconds.saturating_sub(1).max(1);
        (self.from * (steps - second.min(steps)) + self.to * second.min(steps)) / steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_goes_from_its_first_rate_to_its_last() {
        let stretch = Stretch { seconds: 5, from: 100, to: 500 };
        assert_eq!((0..5).map(|second| stretch.rate(second)).collect::<Vec<_>>(), [100, 200, 300, 400, 500]);
        assert_eq!(Stretch { seconds: 1, from: 7, to: 7 }.rate(0), 7);
    }
}
