//! The function's configuration, from environment variables.

use std::{num::NonZeroUsize, str::FromStr};

use tidegate_aws::table;
use tidegate_domain::window::{UnknownWindow, Window};

/// What the function is told by its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `TABLE_NAME`: the bucket table, which also holds the snapshots. Required.
    pub table: String,
    /// `SNAPSHOT_WINDOWS`: which snapshots to keep, separated by commas. Default `hourly,daily`.
    pub windows: Vec<Window>,
    /// `SNAPSHOT_TTL_DAYS`: days for which a snapshot is kept after its period has ended. Default 90.
    pub retention_days: u16,
    /// `DEAD_LETTER_QUEUE_URL`: where undecodable records are parked. Without it, they are failures.
    pub dead_letter_queue: Option<String>,
    /// `WRITE_CONCURRENCY`: how many snapshots are written at the same time. Default 32.
    pub concurrency: NonZeroUsize,
}

/// Why the function cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A required variable is not set, or empty.
    #[error("{name} is not set: {purpose}")]
    Missing {
        /// The variable's name.
        name: &'static str,
        /// What it is for.
        purpose: &'static str,
    },
    /// A variable has a value that it cannot have.
    #[error("{name} is {value:?}: expected {expected}")]
    Invalid {
        /// The variable's name.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// `SNAPSHOT_WINDOWS` names a window that there is not.
    #[error("SNAPSHOT_WINDOWS is {value:?}")]
    Window {
        /// The variable's value.
        value: String,
        /// Which part of it is wrong.
        source: UnknownWindow,
    },
}

impl Config {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// [`ConfigError`], which names the variable and quotes its value.
    pub fn from_env() -> Result<Self, ConfigError> {
        // What is no UTF-8 is quoted with replacement characters, and refused for them.
        Self::read(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Reads variables by `lookup`. An empty variable counts as not set.
    ///
    /// # Errors
    /// [`ConfigError`], which names the variable and quotes its value.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let lookup = |name| lookup(name).filter(|value| !value.trim().is_empty());
        let table = lookup("TABLE_NAME").ok_or(ConfigError::Missing {
            name: "TABLE_NAME",
            purpose: "the DynamoDB table of the buckets and their snapshots",
        })?;
        Ok(Self {
            table: checked(table, "TABLE_NAME", "a table's name or ARN", table::is_name)?,
            windows: windows(&lookup("SNAPSHOT_WINDOWS").unwrap_or_else(|| "hourly,daily".to_owned()))?,
            retention_days: parsed(lookup, "SNAPSHOT_TTL_DAYS", "a whole number of days up to 65535", 90)?,
            dead_letter_queue: lookup("DEAD_LETTER_QUEUE_URL")
                .map(|url| checked(url, "DEAD_LETTER_QUEUE_URL", "the URL of an SQS queue", is_url))
                .transpose()?,
            concurrency: parsed(lookup, "WRITE_CONCURRENCY", "a whole number above 0", DEFAULT_CONCURRENCY)?,
        })
    }
}

const DEFAULT_CONCURRENCY: NonZeroUsize = NonZeroUsize::MIN.saturating_add(31);

fn windows(value: &str) -> Result<Vec<Window>, ConfigError> {
    let mut windows = Vec::new();
    for name in value.split(',') {
        let window = name.trim().parse().map_err(|source| ConfigError::Window { value: value.to_owned(), source })?;
        // Named twice is counted once.
        if !windows.contains(&window) {
            windows.push(window);
        }
    }
    Ok(windows)
}

fn is_url(value: &str) -> bool {
    value.starts_with("https://") || value.starts_with("http://")
}

fn checked(
    value: String,
    name: &'static str,
    expected: &'static str,
    is_valid: fn(&str) -> bool,
) -> Result<String, ConfigError> {
    if is_valid(&value) { Ok(value) } else { Err(ConfigError::Invalid { name, value, expected }) }
}

fn parsed<T: FromStr>(
    lookup: impl Fn(&'static str) -> Option<String>,
    name: &'static str,
    expected: &'static str,
    default: T,
) -> Result<T, ConfigError> {
    let Some(value) = lookup(name) else { return Ok(default) };
    value.trim().parse().map_err(|_| ConfigError::Invalid { name, value, expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::read(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    /// `expect` holds what the message must say.
    fn check_error(variables: &[(&str, &str)], expect: &[&str]) {
        let error = anyhow::Error::from(read(variables).unwrap_err());
        let message = format!("{error:#}");
        for part in expect {
            assert!(message.contains(part), "{message:?} does not say {part:?}");
        }
    }

    #[test]
    fn only_the_table_is_required() {
        let config = read(&[("TABLE_NAME", "limits")]).unwrap();
        assert_eq!(
            config,
            Config {
                table: "limits".to_owned(),
                windows: vec![Window::Hourly, Window::Daily],
                retention_days: 90,
                dead_letter_queue: None,
                concurrency: DEFAULT_CONCURRENCY,
            }
        );
    }

    #[test]
    fn every_variable_is_read() {
        let config = read(&[
            ("TABLE_NAME", "limits"),
            ("SNAPSHOT_WINDOWS", "monthly, hourly,monthly"),
            ("SNAPSHOT_TTL_DAYS", "400"),
            ("DEAD_LETTER_QUEUE_URL", "https://sqs.example/1/parked"),
            ("WRITE_CONCURRENCY", "4"),
        ])
        .unwrap();
        assert_eq!(config.windows, [Window::Monthly, Window::Hourly]);
        assert_eq!(config.retention_days, 400);
        assert_eq!(config.dead_letter_queue.as_deref(), Some("https://sqs.example/1/parked"));
        assert_eq!(config.concurrency.get(), 4);
    }

    #[test]
    fn errors_name_the_variable_and_quote_the_value() {
        let table = ("TABLE_NAME", "limits");
        check_error(&[], &["TABLE_NAME", "not set"]);
        check_error(&[("TABLE_NAME", " ")], &["TABLE_NAME", "not set"]);
        check_error(
            &[table, ("SNAPSHOT_WINDOWS", "hourly,weekly")],
            &["SNAPSHOT_WINDOWS", "hourly,weekly", "\"weekly\""],
        );
        check_error(&[table, ("SNAPSHOT_WINDOWS", "hourly,")], &["SNAPSHOT_WINDOWS", "\"\""]);
        check_error(&[table, ("SNAPSHOT_TTL_DAYS", "ninety")], &["SNAPSHOT_TTL_DAYS", "\"ninety\"", "days"]);
        check_error(&[table, ("SNAPSHOT_TTL_DAYS", "-1")], &["SNAPSHOT_TTL_DAYS", "\"-1\""]);
        check_error(&[table, ("SNAPSHOT_TTL_DAYS", "5000000000")], &["\"5000000000\"", "up to 65535"]);
        check_error(&[("TABLE_NAME", "my limits")], &["TABLE_NAME", "\"my limits\""]);
        check_error(&[table, ("DEAD_LETTER_QUEUE_URL", "parked")], &["DEAD_LETTER_QUEUE_URL", "\"parked\""]);
        check_error(&[table, ("WRITE_CONCURRENCY", "0")], &["WRITE_CONCURRENCY", "\"0\"", "above 0"]);
    }
}
