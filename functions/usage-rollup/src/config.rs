//! The function's configuration, from environment variables.

use std::num::NonZeroUsize;

use tidegate_aws::settings::{ConfigError, Settings};
use tidegate_domain::window::{UnknownWindow, Window};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `TABLE_NAME`: the bucket table, which also holds the snapshots. Required.
    pub table: String,
    /// `SNAPSHOT_WINDOWS`: which snapshots to keep, separated by commas. Default `hourly,daily`.
    pub windows: Vec<Window>,
    /// `SNAPSHOT_TTL_DAYS`: days for which a snapshot is kept after its period has ended. Default 90.
    pub retention_days: u16,
    /// `DEAD_LETTER_QUEUE_URL`: the queue for records that cannot be processed. Without it, such a record fails.
    pub dead_letter_queue: Option<String>,
    /// `WRITE_CONCURRENCY`: how many snapshots are written at the same time. Default 32.
    pub concurrency: NonZeroUsize,
}

impl Config {
    /// Reads variables by `lookup`. An empty variable counts as not set.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let settings = Settings::new(lookup);
        Ok(Self {
            table: settings.table("the DynamoDB table of the buckets and their snapshots")?,
            windows: windows(&settings.get(WINDOWS).unwrap_or_else(|| "hourly,daily".to_owned()))?,
            retention_days: settings.parsed("SNAPSHOT_TTL_DAYS", "a whole number of days up to 65535", 90)?,
            dead_letter_queue: settings.dead_letter_queue()?,
            concurrency: settings.concurrency()?,
        })
    }
}

const WINDOWS: &str = "SNAPSHOT_WINDOWS";

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
