//! What a string may be compared with.

/// A text that a string must be, or begin or end with.
#[derive(Clone, Debug)]
pub(super) struct Part {
    place: Place,
    text: String,
    ignores_case: bool,
}

/// Which part of a string it is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Whole,
    Start,
    End,
}

impl Part {
    pub(super) fn exact(place: Place, text: &str) -> Self {
        Self { place, text: text.to_owned(), ignores_case: false }
    }

    /// Upper case is as good as lower case.
    pub(super) fn ignoring_case(place: Place, text: &str) -> Self {
        Self { place, text: lowercase(text).collect(), ignores_case: true }
    }

    pub(super) fn matches(&self, actual: &str) -> bool {
        let expected = self.text.as_str();
        match (self.place, self.ignores_case) {
            (Place::Whole, false) => actual == expected,
            (Place::Start, false) => actual.starts_with(expected),
            (Place::End, false) => actual.ends_with(expected),
            (Place::Whole, true) => lowercase(actual).eq(expected.chars()),
            (Place::Start, true) => starts_with(lowercase(actual), expected.chars()),
            (Place::End, true) => starts_with(lowercase(actual).rev(), expected.chars().rev()),
        }
    }
}

/// Letter by letter: [`str::to_lowercase`] would judge a sigma by its neighbours, and a prefix has fewer.
fn lowercase(text: &str) -> impl DoubleEndedIterator<Item = char> {
    text.chars().flat_map(char::to_lowercase)
}

fn starts_with(mut text: impl Iterator<Item = char>, mut start: impl Iterator<Item = char>) -> bool {
    start.all(|expected| text.next() == Some(expected))
}

/// A text in which `*` stands for any characters, or none.
#[derive(Clone, Debug)]
pub(super) struct Wildcard {
    /// Before the first `*`.
    start: String,
    /// Between one `*` and the next.
    middle: Vec<String>,
    /// The text behind the last `*`; `None` without a `*`.
    end: Option<String>,
}

impl Wildcard {
    /// Reads a wildcard. The error says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let mut literals = Vec::new();
        let mut literal = String::new();
        let mut after_star = false;
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            let is_star = character == '*';
            match character {
                '*' if after_star => return Err("expected no two * in a row"),
                '*' => literals.push(std::mem::take(&mut literal)),
                '\\' => match characters.next() {
                    Some(escaped @ ('*' | '\\')) => literal.push(escaped),
                    _ => return Err(r"expected * or \ behind each \"),
                },
                _ => literal.push(character),
            }
            after_star = is_star;
        }
        if literals.is_empty() {
            return Ok(Self { start: literal, middle: Vec::new(), end: None });
        }
        let start = literals.remove(0);
        Ok(Self { start, middle: literals, end: Some(literal) })
    }

    /// What lies between the ends takes the first place that it finds: no later one leaves more room.
    pub(super) fn matches(&self, actual: &str) -> bool {
        let Some(end) = &self.end else { return actual == self.start };
        let inner = actual.strip_prefix(self.start.as_str()).and_then(|rest| rest.strip_suffix(end.as_str()));
        let Some(mut rest) = inner else { return false };
        self.middle.iter().all(|literal| {
            let Some(found) = rest.find(literal.as_str()) else { return false };
            rest = &rest[found + literal.len()..];
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_is_ignored_in_all_scripts() {
        let check = |place, text, actual: &str, expect| {
            assert_eq!(Part::ignoring_case(place, text).matches(actual), expect, "{place:?}: {text} and {actual}");
        };
        check(Place::Whole, "Grün", "GRÜN", true);
        check(Place::Whole, "grün", "grun", false);
        check(Place::Whole, "maß", "MASS", false);
        check(Place::Whole, "tide", "tidegate", false);
        check(Place::Whole, "tidegate", "tide", false);
        check(Place::Start, "ΟΔΌΣ", "οδόσημο", true);
        check(Place::Start, "tide", "TideGate", true);
        check(Place::Start, "tide", "TID", false);
        check(Place::Start, "", "", true);
        check(Place::End, "ÉTÉ", "un été", true);
        check(Place::End, "gate", "tideGATE", true);
        check(Place::End, "gate", "ATE", false);
        // One letter that two characters are in lower case.
        check(Place::Whole, "İz", "i\u{307}Z", true);
        check(Place::End, "İz", "xi\u{307}z", true);
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        let check = |text, actual: &str, expect| {
            assert_eq!(Wildcard::parse(text).unwrap().matches(actual), expect, "{text} and {actual}");
        };
        check("", "", true);
        check("", "a", false);
        check("*", "", true);
        check("*", "größe", true);
        check("logs/*.gz", "logs/.gz", true);
        check("logs/*.gz", "logs/2026/11.gz", true);
        check("logs/*.gz", "logs.gz", false);
        check("aba*aba", "aba", false);
        check("aba*aba", "ababa", false);
        check("aba*aba", "abaaba", true);
        check("*ab*", "aab", true);
        check("a*b*a", "aba", true);
        check("a*b*a", "aa", false);
        check("*ab*abc", "ababc", true);
        check("*ab*abc", "abc", false);
        check(r"2\*3", "2*3", true);
        check(r"2\*3", "2x3", false);
        check(r"\**", "*2", true);
        check(r"\**", "2", false);
        check(r"c:\\*", r"c:\temp", true);
    }

    #[test]
    fn a_wildcard_is_well_formed() {
        let check = |text| assert!(Wildcard::parse(text).is_err(), "{text}");
        check("**");
        check("a**b");
        check("a***");
        check(r"\***");
        check(r"a\b");
        check(r"a\");
    }

    #[test]
    fn many_stars_take_no_long_time() {
        let wildcard = Wildcard::parse(&"*a".repeat(2_000)).unwrap();
        assert!(!wildcard.matches(&format!("{}b", "a".repeat(100_000))));
        assert!(wildcard.matches(&"a".repeat(100_000)));
    }
}
