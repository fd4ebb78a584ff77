//! Sequence numbers: the order of a stream's records.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
};

/// A DynamoDB stream record's sequence number: a decimal string of up to 40 digits.
///
/// A `DynamoDB` number holds 38 digits, so a sequence number is stored as text, padded with zeros to
/// [`SequenceNumber::DIGITS`]: then the order of the texts, which is what a condition expression
/// compares, is the order of the numbers (by length, then by text).
///
/// AWS: [`StreamRecord.SequenceNumber`](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_StreamRecord.html).
#[derive(Clone, Copy)]
pub struct SequenceNumber {
    padded: [u8; Self::DIGITS],
    start: u8,
}

/// A text that is no sequence number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a sequence number of 21 to 40 digits")]
pub struct InvalidSequenceNumber {
    value: String,
}

impl SequenceNumber {
    /// The most digits that AWS gives a sequence number, and the length of the stored form.
    pub const DIGITS: usize = 40;
    /// The fewest digits that AWS gives a sequence number.
    pub const MIN_DIGITS: usize = 21;

    /// Reads a sequence number as a stream record carries it.
    ///
    /// # Errors
    /// [`InvalidSequenceNumber`], which quotes the text, unless it is 21 to 40 decimal digits.
    pub fn parse(text: &str) -> Result<Self, InvalidSequenceNumber> {
        let digits = text.as_bytes();
        if !(Self::MIN_DIGITS..=Self::DIGITS).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
            return Err(InvalidSequenceNumber { value: text.to_owned() });
        }
        let start = Self::DIGITS - digits.len();
        let mut padded = [b'0'; Self::DIGITS];
        padded[start..].copy_from_slice(digits);
        #[expect(clippy::cast_possible_truncation, reason = "start is at most 40 - 21")]
        Ok(Self { padded, start: start as u8 })
    }

    /// The text as the stream record carried it: what a batch item failure must name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.padded()[usize::from(self.start)..]
    }

    /// The stored form: 40 digits, whose order as text is the order of the numbers.
    #[must_use]
    pub fn padded(&self) -> &str {
        // The bytes are ASCII digits by construction, so the fallback is never taken.
        std::str::from_utf8(&self.padded).unwrap_or_default()
    }
}

impl PartialEq for SequenceNumber {
    fn eq(&self, other: &Self) -> bool {
        self.padded == other.padded
    }
}

impl Eq for SequenceNumber {}

impl PartialOrd for SequenceNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SequenceNumber {
    fn cmp(&self, other: &Self) -> Ordering {
        self.padded.cmp(&other.padded)
    }
}

impl Hash for SequenceNumber {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.padded.hash(state);
    }
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SequenceNumber({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn other_texts_are_refused_and_quoted() {
        let too_long = "1".repeat(41);
        for text in [
            "",
            "1",
            "12345678901234567890",
            &too_long,
            "10000000000000000000x",
            "-10000000000000000000",
            "1٣0000000000000000000",
        ] {
            let error = SequenceNumber::parse(text).unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn order_is_by_length_then_text(a in "[1-9][0-9]{20,39}", b in "[1-9][0-9]{20,39}") {
            let (x, y) = (SequenceNumber::parse(&a).unwrap(), SequenceNumber::parse(&b).unwrap());
            let expected = (a.len(), &a).cmp(&(b.len(), &b));
            prop_assert_eq!(x.cmp(&y), expected);
            prop_assert_eq!(x.padded().cmp(y.padded()), expected);
            prop_assert_eq!(x == y, a == b);
        }

        #[test]
        fn text_survives(text in "[0-9]{21,40}") {
            let sequence = SequenceNumber::parse(&text).unwrap();
            prop_assert_eq!(sequence.as_str(), &text);
            prop_assert_eq!(sequence.padded().len(), SequenceNumber::DIGITS);
            prop_assert_eq!(SequenceNumber::parse(sequence.padded()).unwrap(), sequence);
        }
    }
}
