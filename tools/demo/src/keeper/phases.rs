//! What the clients do, phase by phase. Each phase has a bucket of its own.

/// A limit, in whole tokens, and its period in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) capacity: i64,
    pub(crate) refill: i64,
    pub(crate) period: i64,
}

/// A load in acquires a second, which goes evenly from the first second's to the last second's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) seconds: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

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
pub(crate) const SURGE: &str = "surge";
pub(crate) const RAMP: &str = "ramp";
pub(crate) const IDLE: &str = "idle";

/// Shards of the idle bucket. The last one is drained, and nobody writes to the others.
pub(crate) const IDLE_SHARDS: u32 = 4;
/// How often the shard is drained, with a minute of rest after each time.
pub(crate) const DRAINS: usize = 2;
pub(crate) const RAMP_SHARDS: u32 = 4;

/// The phases with traffic. The steady one lasts so many seconds of simulated time.
pub(crate) fn with_traffic(seconds: u32) -> [Phase; 4] {
    let constant = |seconds, rate| Stretch { seconds, from: rate, to: rate };
    [
        // Four fifths of the limit.
        Phase {
            name: STEADY,
            terms: Terms { capacity: 2_000, refill: 400, period: 1_000 },
            tokens: 20,
            load: vec![constant(seconds, 16)],
        },
        // Fifteen times the limit until the bucket is empty and beyond, then nine tenths of it. Acquires of five tokens
        // let the limit run out and not a shard's write units, so that the bucket keeps its one shard.
        Phase {
            name: BURST,
            terms: Terms { capacity: 2_000, refill: 100, period: 1_000 },
            tokens: 5,
            load: vec![constant(3, 300), constant(9, 18)],
        },
        // The write units of the only shard run out when the bucket is nearly empty.
        Phase {
            name: SURGE,
            terms: Terms { capacity: 3_200, refill: 100, period: 1_000 },
            tokens: 1,
            load: vec![constant(3, 1_500)],
        },
        // From what one shard bears to what four need, always below the limit.
        Phase {
            name: RAMP,
            terms: Terms { capacity: 20_000, refill: 5_000, period: 1_000 },
            tokens: 1,
            load: vec![Stretch { seconds: 5, from: 100, to: 2_000 }, constant(2, 2_000)],
        },
    ]
}

/// The phase without traffic. A shard accrues its share in half of the minute that it rests after each drain.
pub(crate) fn idle() -> Phase {
    Phase { name: IDLE, terms: Terms { capacity: 400, refill: 400, period: 30_000 }, tokens: 1, load: Vec::new() }
}

impl Phase {
    /// The acquires of each second.
    pub(crate) fn by_second(&self) -> impl Iterator<Item = u32> {
        self.load.iter().flat_map(|stretch| (0..stretch.seconds).map(|second| stretch.rate(second)))
    }

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
