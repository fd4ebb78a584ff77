//! The function's configuration, from environment variables.

use std::{num::NonZeroUsize, time::Duration};

use tidegate_aws::settings::{self, ConfigError, Settings};
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
    /// `GIVE_UP_AFTER_SECONDS`: the age at which a record that cannot be counted is parked. Default six hours.
    pub give_up_after: Duration,
    /// `WRITE_CONCURRENCY`: how many snapshots are written at the same time. Default 32.
    pub concurrency: NonZeroUsize,
}

impl Config {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// [`ConfigError`], which names the variable and quotes its value.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::read(settings::variable)
    }

    /// Reads variables by `lookup`. An empty variable counts as not set.
    ///
    /// # Errors
    /// [`ConfigError`], which names the variable and quotes its value.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let settings = Settings::new(lookup);
        Ok(Self {
            table: settings.table("the DynamoDB table of the buckets and their snapshots")?,
            windows: windows(&settings.get(WINDOWS).unwrap_or_else(|| "hourly,daily".to_owned()))?,
            retention_days: settings.parsed("SNAPSHOT_TTL_DAYS", "a whole number of days up to 65535", 90)?,
            dead_letter_queue: settings.dead_letter_queue()?,
            give_up_after: settings.accepted(
                "GIVE_UP_AFTER_SECONDS",
                "a whole number of seconds from 3600 to 79200",
                GIVE_UP_AFTER,
                give_up_after,
            )?,
            concurrency: settings.concurrency()?,
        })
    }
}

const WINDOWS: &str = "SNAPSHOT_WINDOWS";
const GIVE_UP_AFTER: u64 = 6 * 60 * 60;

/// A stream keeps its records for 24 hours, so parking must begin well before; and half of the age must be longer
/// than the 15 minutes that an invocation may take.
///
/// AWS: [data retention limit](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html),
/// [timeout](https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html).
fn give_up_after(seconds: u64) -> Option<Duration> {
    (60 * 60..=22 * 60 * 60).contains(&seconds).then(|| Duration::from_secs(seconds))
}

fn windows(value: &str) -> Result<Vec<Window>, ConfigError> {
    let mut windows = Vec::new();
    for name in value.split(',') {
        let window = name.trim().parse().map_err(|source: UnknownWindow| ConfigError::Part {
            name: WINDOWS,
            value: value.to_owned(),
            source: source.into(),
        })?;
        // Named twice is counted once.
        if !windows.contains(&window) {
            windows.push(window);
        }
    }
    Ok(windows)
}

#[cfg(test)]
mod tests {
    use tidegate_aws::settings::DEFAULT_CONCURRENCY;

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
                give_up_after: Duration::from_hours(6),
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
            ("GIVE_UP_AFTER_SECONDS", "3600"),
            ("WRITE_CONCURRENCY", "4"),
        ])
        .unwrap();
        assert_eq!(config.windows, [Window::Monthly, Window::Hourly]);
        assert_eq!(config.retention_days, 400);
        assert_eq!(config.dead_letter_queue.as_deref(), Some("https://sqs.example/1/parked"));
        assert_eq!((config.concurrency.get(), config.give_up_after), (4, Duration::from_hours(1)));
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
        for seconds in ["3599", "79201", "6h", "-1"] {
            check_error(
                &[table, ("GIVE_UP_AFTER_SECONDS", seconds)],
                &["GIVE_UP_AFTER_SECONDS", seconds, "3600 to 79200"],
            );
        }
        check_error(&[table, ("WRITE_CONCURRENCY", "0")], &["WRITE_CONCURRENCY", "\"0\"", "above 0"]);
    }
}
