//! Values that patterns compare: ranges of IP addresses, and numbers.

use std::{
    cmp::Ordering,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use serde_json::Number;

/// A range of addresses, like `10.0.0.0/8` or `2001:db8::/32`: those that begin with the same bits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cidr {
    V4 { first: Ipv4Addr, mask: Ipv4Addr },
    V6 { first: Ipv6Addr, mask: Ipv6Addr },
}

impl Cidr {
    /// Returns `None` if the text is not a range. Bits of the address behind the prefix do not matter.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        // Not a sign, which an integer may have.
        if !length.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let length: u32 = length.parse().ok()?;
        Some(match address.parse().ok()? {
            IpAddr::V4(address) => {
                let mask = Ipv4Addr::from(u32::MAX.checked_shl(u32::BITS.checked_sub(length)?).unwrap_or(0));
                Self::V4 { first: address & mask, mask }
            }
            IpAddr::V6(address) => {
                let mask = Ipv6Addr::from(u128::MAX.checked_shl(u128::BITS.checked_sub(length)?).unwrap_or(0));
                Self::V6 { first: address & mask, mask }
            }
        })
    }

    /// Whether a text is an address of the range, in any of its spellings.
    pub(super) fn contains(self, text: &str) -> bool {
        match (self, text.parse()) {
            (Self::V4 { first, mask }, Ok(IpAddr::V4(address))) => address & mask == first,
            (Self::V6 { first, mask }, Ok(IpAddr::V6(address))) => address & mask == first,
            _ => false,
        }
    }
}

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

/// Compares integers exactly, and whatever has a fraction or an exponent as a double.
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
    fn a_range_has_the_addresses_with_its_prefix() {
        let check = |range: &str, address: &str, expect| {
            let cidr = Cidr::parse(range).unwrap();
            assert_eq!(cidr.contains(address), expect, "{address} in {range}");
        };
        check("192.168.4.0/22", "192.168.4.0", true);
        check("192.168.4.0/22", "192.168.7.255", true);
        check("192.168.4.0/22", "192.168.8.0", false);
        check("192.168.5.77/22", "192.168.6.1", true);
        check("0.0.0.0/0", "255.255.255.255", true);
        check("192.168.4.9/32", "192.168.4.9", true);
        check("192.168.4.9/32", "192.168.4.8", false);
        check("2001:db8:a::/47", "2001:db8:b:ffff::1", true);
        check("2001:db8:a::/47", "2001:0DB8:000A:0:0:0:0:1", true);
        check("2001:db8:a::/47", "2001:db8:c::", false);
        check("::/0", "ffff::", true);
        check("::1/128", "0:0:0:0:0:0:0:1", true);
        check("::1/128", "::2", false);
        check("0.0.0.0/0", "::1", false);
        check("::/0", "127.0.0.1", false);
        check("0.0.0.0/0", "127.0.0", false);
        check("0.0.0.0/0", "", false);
    }

    #[test]
    fn nothing_else_is_a_range() {
        let check = |text| assert!(Cidr::parse(text).is_none(), "{text}");
        check("");
        check("10.0.0.0");
        check("10.0.0.0/");
        check("10.0.0.0/33");
        check("10.0.0.0/+8");
        check("10.0.0.0/-1");
        check("10.0.0.0/8/8");
        check("10.0.0/8");
        check("::/129");
        check("::/99999999999");
        check("host/8");
    }

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
