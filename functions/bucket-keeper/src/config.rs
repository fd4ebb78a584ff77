//! The function's configuration, from environment variables.

use std::num::NonZeroUsize;

use tidegate_aws::settings::{ConfigError, Settings};
use tidegate_domain::{pressure, split, state::ShardCount};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `TABLE_NAME`: the bucket table. Required.
    pub table: String,
    /// `MAX_SHARDS`, `SHARD_PRESSURE_PERCENT`: when shards are doubled. Default 32 and 80.
    pub pressure: pressure::Policy,
    /// `OWN_TABLE`: whether the table belongs to Tidegate's stack, so that no function of zae-limiter reads it. Default
    /// false.
    pub own_table: bool,
    /// `DEAD_LETTER_QUEUE_URL`: the queue for records that cannot be decoded. Without it, such a record fails.
    pub dead_letter_queue: Option<String>,
    /// `WRITE_CONCURRENCY`: how many buckets are kept at the same time. Default 32.
    pub concurrency: NonZeroUsize,
}

/// As many as the clients themselves stop at, since 0.13.
const MAX_SHARDS: u32 = 32;
const PRESSURE_PERCENT: u8 = 80;

impl Config {
    /// Reads variables by `lookup`. An empty variable counts as not set.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let settings = Settings::new(lookup);
        Ok(Self {
            table: settings.table("the DynamoDB table of the buckets")?,
            pressure: pressure::Policy {
                max_shards: settings.accepted("MAX_SHARDS", SHARDS, MAX_SHARDS, shards)?,
                percent: settings.accepted("SHARD_PRESSURE_PERCENT", PERCENT, PRESSURE_PERCENT, percent)?,
            },
            own_table: settings.parsed("OWN_TABLE", "true or false", false)?,
            dead_letter_queue: settings.dead_letter_queue()?,
            concurrency: settings.concurrency()?,
        })
    }
}

const SHARDS: &str = "a power of two from 1 to 64";
const PERCENT: &str = "a whole number of percent from 1 to 100";

fn shards(count: u32) -> Option<ShardCount> {
    ShardCount::new(count).filter(|count| split::is_supported(*count))
}

fn percent(percent: u8) -> Option<u8> {
    (1..=100).contains(&percent).then_some(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::read(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    /// `expect` holds what the message must say.
    fn check_error(variable: (&str, &str), expect: &str) {
        let message = read(&[("TABLE_NAME", "limits"), variable]).unwrap_err().to_string();
        assert!(message.contains(expect) && message.contains(variable.0), "{message:?} does not say {expect:?}");
    }

    #[test]
    fn only_the_table_is_required() {
        let config = read(&[("TABLE_NAME", "limits")]).unwrap();
        assert_eq!((config.pressure.max_shards.get(), config.pressure.percent), (32, 80));
        assert_eq!((config.dead_letter_queue, config.concurrency.get()), (None, 32));
        assert!(read(&[]).unwrap_err().to_string().contains("TABLE_NAME is not set"));
    }

    #[test]
    fn every_variable_is_read() {
        let config = read(&[
            ("TABLE_NAME", "limits"),
            ("MAX_SHARDS", "1"),
            ("SHARD_PRESSURE_PERCENT", "50"),
            ("OWN_TABLE", "true"),
            ("DEAD_LETTER_QUEUE_URL", "https://sqs.example/1/parked"),
            ("WRITE_CONCURRENCY", "4"),
        ])
        .unwrap();
        assert_eq!((config.pressure.max_shards, config.pressure.percent), (ShardCount::ONE, 50));
        assert_eq!(config.dead_letter_queue.as_deref(), Some("https://sqs.example/1/parked"));
        assert_eq!((config.concurrency.get(), config.own_table), (4, true));
    }

    #[test]
    fn errors_name_the_variable_and_quote_the_value() {
        check_error(("MAX_SHARDS", "48"), "\"48\": expected a power of two");
        check_error(("MAX_SHARDS", "0"), "\"0\"");
        check_error(("MAX_SHARDS", "128"), "\"128\"");
        check_error(("SHARD_PRESSURE_PERCENT", "101"), "\"101\"");
        check_error(("SHARD_PRESSURE_PERCENT", "80%"), "\"80%\"");
    }
}
