//! Environment variables, read and checked: each function has a list of its own, made from these.

use std::{error::Error, num::NonZeroUsize, str::FromStr};

use crate::table;

/// How many calls are under way at the same time, if `WRITE_CONCURRENCY` does not say.
pub const DEFAULT_CONCURRENCY: NonZeroUsize = NonZeroUsize::MIN.saturating_add(31);

/// Why a function cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A required variable is not set, or empty.
    #[error("{name} is not set: {purpose}")]
    Missing {
        /// The variable's name.
        name: &'static str,
        purpose: &'static str,
    },
    /// A variable has a value that it cannot have.
    #[error("{name} is {value:?}: expected {expected}")]
    Invalid {
        /// The variable's name.
        name: &'static str,
        value: String,
        expected: &'static str,
    },
    /// A part of a variable's value is wrong.
    #[error("{name} is {value:?}")]
    Part {
        /// The variable's name.
        name: &'static str,
        value: String,
        /// Which part, and why.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Variables by name. An empty one counts as not set.
#[derive(Clone, Copy, Debug)]
pub struct Settings<F>(F);

impl<F: Fn(&str) -> Option<String>> Settings<F> {
    /// Variables as `lookup` finds them, such as [`variable`].
    pub const fn new(lookup: F) -> Self {
        Self(lookup)
    }

    /// A variable's value.
    pub fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.trim().is_empty())
    }

    /// A variable's value, which must be valid.
    pub fn checked(
        &self,
        name: &'static str,
        expected: &'static str,
        is_valid: fn(&str) -> bool,
    ) -> Result<Option<String>, ConfigError> {
        match self.get(name) {
            Some(value) if !is_valid(&value) => Err(ConfigError::Invalid { name, value, expected }),
            value => Ok(value),
        }
    }

    /// A variable's value, parsed.
    pub fn parsed<T: FromStr>(&self, name: &'static str, expected: &'static str, default: T) -> Result<T, ConfigError> {
        let Some(value) = self.get(name) else { return Ok(default) };
        value.trim().parse().map_err(|_| ConfigError::Invalid { name, value, expected })
    }

    /// A variable's value, parsed and then accepted as what it stands for.
    pub fn accepted<T: FromStr, U>(
        &self,
        name: &'static str,
        expected: &'static str,
        default: T,
        accept: fn(T) -> Option<U>,
    ) -> Result<U, ConfigError> {
        let value = self.get(name);
        accept(self.parsed(name, expected, default)?).ok_or_else(|| ConfigError::Invalid {
            name,
            value: value.unwrap_or_default(),
            expected,
        })
    }

    /// `TABLE_NAME`, which is required.
    pub fn table(&self, purpose: &'static str) -> Result<String, ConfigError> {
        const NAME: &str = "TABLE_NAME";
        self.checked(NAME, "a table's name or ARN", table::is_name)?.ok_or(ConfigError::Missing { name: NAME, purpose })
    }

    /// `DEAD_LETTER_QUEUE_URL`.
    pub fn dead_letter_queue(&self) -> Result<Option<String>, ConfigError> {
        self.checked("DEAD_LETTER_QUEUE_URL", "the URL of an SQS queue", is_url)
    }

    /// `WRITE_CONCURRENCY`, or [`DEFAULT_CONCURRENCY`].
    pub fn concurrency(&self) -> Result<NonZeroUsize, ConfigError> {
        self.parsed("WRITE_CONCURRENCY", "a whole number above 0", DEFAULT_CONCURRENCY)
    }
}

/// A variable of the process's environment. Bytes that are not UTF-8 become replacement characters, so that the value is
/// rejected and quoted with them.
pub fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn is_url(value: &str) -> bool {
    value.starts_with("https://") || value.starts_with("http://")
}
