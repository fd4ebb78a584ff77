//! Random numbers that a seed repeats, for the simulations of fleets and of tables.

use std::{ops::Range, time::Duration};

/// The generator `SplitMix64`, of Steele, Lea and Flood, [Fast Splittable Pseudorandom Number Generators][paper].
///
/// [paper]: https://doi.org/10.1145/2660193.2660195
#[derive(Clone, Debug)]
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number from 0 up to, but not including, 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what a float holds")]
    pub(crate) const fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) const fn happens(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    pub(crate) fn within(&mut self, bounds: &Range<Duration>) -> Duration {
        bounds.start + bounds.end.saturating_sub(bounds.start).mul_f64(self.unit())
    }

    /// Returns a number below `count`; 0 if `count` is 0.
    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below a usize")]
    pub(crate) const fn below(&mut self, count: usize) -> usize {
        if count == 0 { 0 } else { (self.bits() % count as u64) as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_generator() {
        let mut random = SeededRandom::new(1_234_567);
        let numbers = [random.bits(), random.bits(), random.bits()];
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut random = SeededRandom::new(1);
        let bounds = Duration::from_millis(20)..Duration::from_millis(80);
        for _ in 0..1_000 {
            assert!((0.0..1.0).contains(&random.unit()));
            assert!(bounds.contains(&random.within(&bounds)));
            assert!(random.below(3) < 3);
        }
        assert_eq!(random.below(0), 0);
        assert!(!random.happens(0.0));
        assert!(random.happens(1.0));
    }
}
