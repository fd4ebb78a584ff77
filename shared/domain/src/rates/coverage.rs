//! Whether enough workers of a fleet are known to publish a sum.

/// Of so many workers that report, one may be unknown.
const ONE_IN: usize = 10;

/// Returns whether the sums over the `active` workers may be published without the `unknown` workers. At most a tenth of all
/// may be unknown. Workers use up any capacity that the sum leaves free, so with more missing, the previous summary is
/// more accurate.
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
