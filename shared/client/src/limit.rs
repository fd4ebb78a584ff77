//! A limit, as an operator configures it.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use tidegate_domain::{bucket, state::Terms, tokens::Millitokens};

use crate::{error::InvalidRequest, names};

/// The most tokens of a limit: as many as other clients can store.
const MOST_TOKENS: u64 = 1_000_000_000_000_000;
/// The longest period, in seconds.
const LONGEST_PERIOD: u64 = 1_000_000_000;

/// The periods that have names.
const PERIODS: [(&str, u64); 4] = [("second", 1), ("minute", 60), ("hour", 3_600), ("day", 86_400)];

/// A limit: how many tokens come back in a period, and how many the bucket holds.
///
/// It can be written as `NAME=TOKENS/PERIOD` or `NAME=TOKENS/PERIOD:BURST`, where the period is `second`, `minute`, `hour`,
/// `day`, or a number of seconds like `300s`.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Limit;
///
/// let limit = Limit::per_minute("requests", 600).burst(1_000);
/// assert_eq!((limit.refill(), limit.period(), limit.capacity()), (600, Duration::from_secs(60), 1_000));
/// assert_eq!(limit.to_string(), "requests=600/minute:1000");
/// assert_eq!("requests=600/minute:1000".parse(), Ok(limit));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    name: String,
    refill: u64,
    period: Duration,
    burst: Option<u64>,
}

/// Why a limit cannot be configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLimit {
    /// No client accepts the name.
    #[error(transparent)]
    Name(#[from] InvalidRequest),
    /// An amount is zero, or more than can be stored.
    #[error("limit {limit:?}: the {field} is {value} tokens: expected 1 to {MOST_TOKENS}")]
    Tokens {
        /// The limit.
        limit: String,
        /// The amount: `refill` or `burst`.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The period is not a number of whole seconds that can be stored.
    #[error("limit {limit:?}: the period is {period:?}: expected 1 to {LONGEST_PERIOD} whole seconds")]
    Period {
        /// The limit.
        limit: String,
        /// The period.
        period: Duration,
    },
    /// A limit is given twice.
    #[error("limit {limit:?} is given twice")]
    Twice {
        /// The limit.
        limit: String,
    },
    /// There is no limit.
    #[error("no limits are given for {scope}: expected at least one")]
    Missing {
        /// What was to be limited.
        scope: String,
    },
    /// A text is no limit.
    #[error(
        "{text:?} is not a limit: expected NAME=TOKENS/PERIOD or NAME=TOKENS/PERIOD:BURST, where PERIOD is second, minute, \
         hour, day or a number of seconds like 300s"
    )]
    Syntax {
        /// The text.
        text: String,
    },
}

impl Limit {
    /// Creates a limit of `tokens` tokens per second.
    #[must_use]
    pub fn per_second(name: impl Into<String>, tokens: u64) -> Self {
        Self::per(name, tokens, Duration::from_secs(1))
    }

    /// Creates a limit of `tokens` tokens per minute.
    #[must_use]
    pub fn per_minute(name: impl Into<String>, tokens: u64) -> Self {
        Self::per(name, tokens, Duration::from_mins(1))
    }

    /// Creates a limit of `tokens` tokens per hour.
    #[must_use]
    pub fn per_hour(name: impl Into<String>, tokens: u64) -> Self {
        Self::per(name, tokens, Duration::from_hours(1))
    }

    /// Creates a limit of `tokens` tokens per day, which is 24 hours.
    #[must_use]
    pub fn per_day(name: impl Into<String>, tokens: u64) -> Self {
        Self::per(name, tokens, Duration::from_hours(24))
    }

    /// Creates a limit of `tokens` tokens in a period of whole seconds.
    #[must_use]
    pub fn per(name: impl Into<String>, tokens: u64, period: Duration) -> Self {
        Self { name: name.into(), refill: tokens, period, burst: None }
    }

    /// Sets how many tokens a full bucket holds. The default is what comes back in a period.
    #[must_use]
    pub fn burst(self, tokens: u64) -> Self {
        Self { burst: Some(tokens), ..self }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how many tokens come back in a period.
    #[must_use]
    pub const fn refill(&self) -> u64 {
        self.refill
    }

    /// Returns the period.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// Returns how many tokens a full bucket holds.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.burst.unwrap_or(self.refill)
    }

    /// Checks the limit.
    fn checked(&self) -> Result<(bucket::Limit<'static>, Terms), InvalidLimit> {
        let name = names::limit(&self.name)?;
        let millitokens = |field, value: u64| match i64::try_from(value) {
            Ok(tokens) if (1..=MOST_TOKENS).contains(&value) => Ok(Millitokens::new(tokens * 1000)),
            _ => Err(InvalidLimit::Tokens { limit: self.name.clone(), field, value }),
        };
        let terms = Terms {
            refill: millitokens("refill", self.refill)?,
            capacity: millitokens("burst", self.capacity())?,
            period: i64::try_from(self.period.as_millis())
                .ok()
                .filter(|_| (1..=LONGEST_PERIOD).contains(&self.period.as_secs()) && self.period.subsec_nanos() == 0)
                .ok_or_else(|| InvalidLimit::Period { limit: self.name.clone(), period: self.period })?,
        };
        Ok((name, terms))
    }

    pub(crate) fn of(name: &bucket::Limit<'_>, terms: &Terms) -> Self {
        let tokens = |amount: Millitokens| u64::try_from(amount.get() / 1000).unwrap_or_default();
        let (refill, capacity) = (tokens(terms.refill), tokens(terms.capacity));
        Self {
            name: name.to_string(),
            refill,
            period: Duration::from_millis(u64::try_from(terms.period).unwrap_or_default()),
            burst: Some(capacity).filter(|capacity| *capacity != refill),
        }
    }
}

/// Checks limits that apply together, for instance in a scope.
pub(crate) fn all_checked(
    limits: impl IntoIterator<Item = Limit>,
    scope: impl fmt::Display,
) -> Result<BTreeMap<bucket::Limit<'static>, Terms>, InvalidLimit> {
    let mut checked = BTreeMap::new();
    for limit in limits {
        let (name, terms) = limit.checked()?;
        if checked.insert(name, terms).is_some() {
            return Err(InvalidLimit::Twice { limit: limit.name });
        }
    }
    if checked.is_empty() { Err(InvalidLimit::Missing { scope: scope.to_string() }) } else { Ok(checked) }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}/", self.name, self.refill)?;
        let seconds = self.period.as_secs();
        match PERIODS.iter().find(|(_, length)| *length == seconds) {
            Some((name, _)) => f.write_str(name)?,
            None => write!(f, "{seconds}s")?,
        }
        self.burst.filter(|burst| *burst != self.refill).map_or(Ok(()), |burst| write!(f, ":{burst}"))
    }
}

impl FromStr for Limit {
    type Err = InvalidLimit;

    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        let parse = || {
            let (name, rate) = text.split_once('=')?;
            let (rate, burst) = match rate.split_once(':') {
                Some((rate, burst)) => (rate, Some(burst.parse().ok()?)),
                None => (rate, None),
            };
            let (tokens, period) = rate.split_once('/')?;
            let seconds = match PERIODS.iter().find(|(name, _)| *name == period) {
                Some((_, seconds)) => *seconds,
                None => period.strip_suffix('s')?.parse().ok()?,
            };
            let period = Duration::from_secs(seconds);
            Some(Self { name: name.to_owned(), refill: tokens.parse().ok()?, period, burst })
        };
        let limit = parse().ok_or_else(|| InvalidLimit::Syntax { text: text.to_owned() })?;
        limit.checked()?;
        Ok(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_it_is_written() {
        for text in ["rpm=60/second", "rpm=60/minute", "rpm=60/hour:90", "rpm=1/day", "rpm=5/300s:10"] {
            assert_eq!(text.parse::<Limit>().unwrap().to_string(), text);
        }
        for text in ["", "rpm", "rpm=60", "rpm=/minute", "rpm=60/week", "rpm=60/minute:", "rpm=-1/minute", "rpm=60/5m"]
        {
            let message = text.parse::<Limit>().unwrap_err().to_string();
            assert!(message.contains(&format!("{text:?}")) && message.contains("NAME=TOKENS/PERIOD"), "{message}");
        }
    }

    #[test]
    fn impossible_limits_are_named() {
        let check = |limit: &Limit, parts: &[&str]| {
            let message = limit.checked().unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        };
        check(&Limit::per_second("rpm", 0), &["\"rpm\"", "refill", "0 tokens"]);
        check(&Limit::per_second("rpm", 1).burst(0), &["\"rpm\"", "burst", "0 tokens"]);
        check(&Limit::per_second("rpm", u64::MAX), &["refill", &u64::MAX.to_string()]);
        check(&Limit::per_second("rpm", 1).burst(MOST_TOKENS + 1), &["burst", "1000000000000001"]);
        check(&Limit::per("rpm", 1, Duration::ZERO), &["period", "0ns"]);
        check(&Limit::per("rpm", 1, Duration::from_millis(1_500)), &["period", "1.5s"]);
        check(&Limit::per("rpm", 1, Duration::MAX), &["period"]);
        check(&Limit::per_second("a:b", 1), &["\"a:b\""]);
        check(&Limit::per_second("wcu", 1), &["reserved"]);
        assert!(Limit::per("rpm", MOST_TOKENS, Duration::from_secs(LONGEST_PERIOD)).checked().is_ok());
    }
}
