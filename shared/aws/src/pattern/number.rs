//! Comparing numbers: integers exactly, whatever has a fraction or an exponent as a double.

use std::cmp::Ordering;

use serde_json::Number;

/// One side of a range of numbers, or the only number in it.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) comparison: Comparison,
    pub(super) number: Number,
}

impl Bound {
    pub(super) fn holds(&self, actual: &Number) -> bool {
        compare(actual, &self.number).is_some_and(|order| self.comparison.holds(order))
    }
}

/// How a number must compare with a bound.
#[derive(Clone, Copy, Debug)]
pub(super) enum Comparison {
    Equal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Comparison {
    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "=" => Self::Equal,
            "<" => Self::Less,
            "<=" => Self::AtMost,
            ">" => Self::Greater,
            ">=" => Self::AtLeast,
            _ => return None,
        })
    }

    /// Whether a range may begin like this.
    pub(super) fn is_lower(self) -> bool {
        matches!(self, Self::Greater | Self::AtLeast)
    }

    /// Whether a range may end like this.
    pub(super) fn is_upper(self) -> bool {
        matches!(self, Self::Less | Self::AtMost)
    }

    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

pub(super) fn are_equal(left: &Number, right: &Number) -> bool {
    compare(left, right).is_some_and(Ordering::is_eq)
}

pub(super) fn is_less(left: &Number, right: &Number) -> bool {
    compare(left, right).is_some_and(Ordering::is_lt)
}

fn compare(left: &Number, right: &Number) -> Option<Ordering> {
    match (left.as_i128(), right.as_i128()) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_compared_exactly_and_fractions_by_value() {
        let check = |left: &str, right: &str, expect| {
            let (left, right): (Number, Number) = (left.parse().unwrap(), right.parse().unwrap());
            assert_eq!(compare(&left, &right), Some(expect), "{left} and {right}");
            assert_eq!(compare(&right, &left), Some(expect.reverse()), "{right} and {left}");
        };
        check("9007199254740993", "9007199254740992", Ordering::Greater);
        check("18446744073709551615", "18446744073709551614", Ordering::Greater);
        check("18446744073709551615", "-9223372036854775808", Ordering::Greater);
        check("250", "250.0", Ordering::Equal);
        check("250", "2.5e2", Ordering::Equal);
        check("-0.0", "0", Ordering::Equal);
        check("-0.25", "-0.5", Ordering::Greater);
        check("3", "3.5", Ordering::Less);
    }
}
