//! Whether enough of a fleet is known to speak for all of it.

/// Of so many workers that report, one may be unknown.
const ONE_IN: usize = 10;

/// Whether the sums over the `active` workers may be published although those of the `unknown` ones are missing: a
/// tenth of both, at most, may be. Workers take what a sum lacks for room, and with more than that missing, the last
/// summary is nearer to the truth.
#[must_use]
pub const fn suffices(active: usize, unknown: usize) -> bool {
    unknown <= active / (ONE_IN - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_may_be_unknown() {
        let check = |active, unknown, expect| assert_eq!(suffices(active, unknown), expect, "{active} {unknown}");
        check(0, 0, true);
        check(1, 0, true);
        check(0, 1, false);
        check(8, 1, false);
        check(9, 1, true);
        check(17, 2, false);
        check(18, 2, true);
        check(900, 100, true);
        check(899, 100, false);
        check(usize::MAX, usize::MAX, false);
    }
}
