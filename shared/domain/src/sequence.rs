//! Positions in a table's streams: the order of its records, also across streams.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
};

/// A DynamoDB stream record's sequence number: a decimal string of up to 40 digits.
///
/// A `DynamoDB` number holds 38 digits, so a sequence number is stored as text. Zeros pad it to
/// [`SequenceNumber::DIGITS`], so that the order of the texts, which a condition expression compares, is the order of the
/// numbers.
///
/// AWS: [number](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html#HowItWorks.DataTypes.Number).
///
/// AWS: [`StreamRecord.SequenceNumber`](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_StreamRecord.html).
#[derive(Clone, Copy)]
pub struct SequenceNumber {
    padded: [u8; Self::DIGITS],
    start: u8,
}

/// The label of a stream: the moment at which it was enabled, like `2026-01-01T00:00:00.000`. A table that is restored, or
/// whose stream is disabled and enabled again, gets another stream with a later label, whose sequence numbers may be lower.
///
/// AWS: [`StreamDescription.StreamLabel`](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_StreamDescription.html).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamLabel([u8; Self::LENGTH]);

/// A text that is not the label of a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a stream label like 2026-01-01T00:00:00.000")]
pub struct InvalidStreamLabel {
    value: String,
}

impl StreamLabel {
    /// Before every stream. Earlier versions stored watermarks without a label.
    const NONE: Self = Self(*b"0000-00-00T00:00:00.000");

    /// The length of every label. Labels of one length sort by their moments.
    const LENGTH: usize = 23;

    /// Parses a label.
    ///
    /// # Errors
    /// [`InvalidStreamLabel`], which quotes the text, unless it is a date and a time with milliseconds.
    pub fn parse(text: &str) -> Result<Self, InvalidStreamLabel> {
        let invalid = || InvalidStreamLabel { value: text.to_owned() };
        let bytes: [u8; Self::LENGTH] = text.as_bytes().try_into().map_err(|_| invalid())?;
        let fits = bytes.iter().zip(b"0000-00-00T00:00:00.000").all(|(byte, shape)| match shape {
            b'0' => byte.is_ascii_digit(),
            other => byte == other,
        });
        if fits { Ok(Self(bytes)) } else { Err(invalid()) }
    }

    /// Returns the label as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // The bytes are ASCII by construction, so the fallback is never taken.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for StreamLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for StreamLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamLabel({self})")
    }
}

/// A record's place in the streams of its table: every record of a later stream comes after all of an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The stream.
    pub stream: StreamLabel,
    /// The place in it.
    pub sequence: SequenceNumber,
}

impl Position {
    /// Returns the stored form, `{label}#{40 digits}`. Its order as text is the order of the positions.
    #[must_use]
    pub fn stored(&self) -> String {
        if self.stream == StreamLabel::NONE {
            return self.sequence.padded().to_owned();
        }
        format!("{}#{}", self.stream, self.sequence.padded())
    }

    /// Parses the stored form. `None` if the text is not one. Earlier versions stored digits without a label, which come
    /// before every stream.
    #[must_use]
    pub fn from_stored(text: &str) -> Option<Self> {
        let (stream, sequence) = match text.split_once('#') {
            Some((label, sequence)) => (StreamLabel::parse(label).ok()?, sequence),
            None => (StreamLabel::NONE, text),
        };
        Some(Self { stream, sequence: SequenceNumber::parse(sequence).ok()? })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of stream {}", self.sequence, self.stream)
    }
}

/// A text that is not a sequence number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a sequence number of 21 to 40 digits")]
pub struct InvalidSequenceNumber {
    value: String,
}

impl SequenceNumber {
    /// The most digits of a sequence number on AWS, and the length of the stored form.
    ///
    /// AWS: [`SequenceNumber`](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_StreamRecord.html).
    pub const DIGITS: usize = 40;
    /// The fewest digits of a sequence number on AWS.
    pub const MIN_DIGITS: usize = 21;

    /// Parses a sequence number of a stream record.
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

    /// Returns the text of the stream record, which a batch item failure must name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.padded()[usize::from(self.start)..]
    }

    /// Returns the stored form: 40 digits, whose order as text is the order of the numbers.
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

    #[test]
    fn other_labels_are_refused_and_quoted() {
        assert_eq!(StreamLabel::parse("2026-01-01T00:00:00.000").unwrap().as_str(), "2026-01-01T00:00:00.000");
        for text in ["", "2026-01-01T00:00:00Z", "2026-01-01 00:00:00.000", "2026-01-01T00:00:00.0000", "table/limits"]
        {
            let error = StreamLabel::parse(text).unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn a_watermark_without_a_label_comes_first() {
        let digits = format!("{:040}", 9);
        let old = Position::from_stored(&digits).unwrap();
        assert_eq!(old.stored(), digits);
        let stored = format!("2026-01-01T00:00:00.000#{:040}", 1);
        let new = Position::from_stored(&stored).unwrap();
        assert!(old < new && old.stored() < new.stored());
        for text in ["", "9", "2026#9", "2026-01-01T00:00:00.000#"] {
            assert_eq!(Position::from_stored(text), None, "{text}");
        }
    }

    fn label() -> impl Strategy<Value = StreamLabel> {
        "20[0-9]{2}-0[1-9]-[12][0-9]T[01][0-9]:[0-5][0-9]:[0-5][0-9]\\.[0-9]{3}"
            .prop_map(|label| StreamLabel::parse(&label).unwrap())
    }

    proptest! {
        /// A later stream's records come after all of an earlier one's, whatever their numbers.
        #[test]
        fn the_stored_order_is_by_stream_first(a in label(), b in label(), x in "[1-9][0-9]{20,39}", y in "[1-9][0-9]{20,39}") {
            let [x, y] = [x, y].map(|sequence| SequenceNumber::parse(&sequence).unwrap());
            let (first, second) = (Position { stream: a, sequence: x }, Position { stream: b, sequence: y });
            let expect = a.as_str().cmp(b.as_str()).then(x.cmp(&y));
            prop_assert_eq!(first.cmp(&second), expect);
            prop_assert_eq!(first.stored().cmp(&second.stored()), expect);
            prop_assert_eq!(Position::from_stored(&first.stored()), Some(first));
        }

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
