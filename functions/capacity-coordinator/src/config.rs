//! The function's configuration, from environment variables.

use std::{collections::BTreeSet, time::Duration};

use tidegate_aws::{
    settings::{ConfigError, Settings},
    table,
};
use tidegate_domain::capacity::{Capacity, announcement::Limits, warm::WarmPrices};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `STATE_TABLE`: the function's own table. Required.
    pub state_table: String,
    /// `TABLES`: the names of the tables for which work may be announced. Required.
    pub tables: BTreeSet<String>,
    /// `MAX_UNITS`, `MAX_UNITS_PER_CALLER`: no limit by default. `MAX_SECONDS`: default 86,400. `MAX_ANNOUNCEMENTS`: default
    /// 1,000.
    pub limits: Limits,
    /// `ALLOW_WARM`: whether a request may raise the warm throughput of an on-demand table. Default false, since that
    /// costs money and is final.
    pub allow_warm: bool,
    /// `WARM_READ_PRICE`, `WARM_WRITE_PRICE`: US dollars for one unit a second. Default: the prices of us-east-1.
    pub warm_prices: WarmPrices,
    /// `DRY_RUN`: whether nothing is written, but only answered. Default false.
    pub dry_run: bool,
}

const TABLES: &str = "TABLES";
const SECONDS: u32 = 86_400;
const ANNOUNCEMENTS: usize = 1_000;
/// Billionths of a US dollar.
///
/// AWS: [pricing](https://aws.amazon.com/dynamodb/pricing/on-demand/).
const PRICES: WarmPrices = WarmPrices { read: 130_000, write: 650_000 };

impl Config {
    /// Reads variables by `lookup`. An empty variable counts as not set.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let settings = Settings::new(lookup);
        let state_table = settings.checked("STATE_TABLE", "a table's name or ARN", table::is_name)?;
        let seconds = "a whole number of seconds above 0";
        let above_zero = |number: u32| (number > 0).then_some(number);
        let max_seconds = settings.accepted("MAX_SECONDS", seconds, SECONDS, above_zero)?;
        Ok(Self {
            state_table: state_table.ok_or(ConfigError::Missing {
                name: "STATE_TABLE",
                purpose: "the table of the function's own state",
            })?,
            tables: tables(&settings)?,
            limits: Limits {
                units: units(&settings, "MAX_UNITS")?,
                units_per_caller: units(&settings, "MAX_UNITS_PER_CALLER")?,
                duration: Duration::from_secs(max_seconds.into()),
                announcements: settings.parsed("MAX_ANNOUNCEMENTS", "a whole number", ANNOUNCEMENTS)?,
            },
            allow_warm: settings.parsed("ALLOW_WARM", "true or false", false)?,
            warm_prices: WarmPrices {
                read: price(&settings, "WARM_READ_PRICE", PRICES.read)?,
                write: price(&settings, "WARM_WRITE_PRICE", PRICES.write)?,
            },
            dry_run: settings.parsed("DRY_RUN", "true or false", false)?,
        })
    }
}

/// Returns the name of a table that is given by its name or ARN.
fn table_name(text: &str) -> &str {
    text.split_once(":table/").map_or(text, |(_, name)| name)
}

fn tables<F: Fn(&str) -> Option<String>>(settings: &Settings<F>) -> Result<BTreeSet<String>, ConfigError> {
    let purpose = "the tables for which work may be announced";
    let value = settings.get(TABLES).ok_or(ConfigError::Missing { name: TABLES, purpose })?;
    let region = settings.get("AWS_REGION");
    // A table of the same name in another region is another table.
    let is_here = |table: &str| {
        let of_arn = table.starts_with("arn:").then(|| table.split(':').nth(3)).flatten();
        of_arn.is_none() || region.is_none() || of_arn == region.as_deref()
    };
    let tables: Vec<_> = value.split(',').map(str::trim).collect();
    let is_valid = |table: &&str| {
        let name = table_name(table);
        table::is_name(name) && !name.starts_with("arn:") && is_here(table)
    };
    if tables.iter().all(is_valid) {
        return Ok(tables.into_iter().map(|table| table_name(table).to_owned()).collect());
    }
    let expected = "names of tables, or ARNs of tables of this region, with commas between them";
    Err(ConfigError::Invalid { name: TABLES, value, expected })
}

fn units<F: Fn(&str) -> Option<String>>(
    settings: &Settings<F>,
    name: &'static str,
) -> Result<Option<Capacity>, ConfigError> {
    let Some(_) = settings.get(name) else { return Ok(None) };
    Ok(Some(Capacity::new(settings.parsed(name, "a whole number of capacity units a second", 0)?)))
}

/// Reads a price in US dollars. Returns billionths.
fn price<F: Fn(&str) -> Option<String>>(
    settings: &Settings<F>,
    name: &'static str,
    default: u64,
) -> Result<u64, ConfigError> {
    let expected = "US dollars from 0 to 1000";
    let Some(_) = settings.get(name) else { return Ok(default) };
    settings.accepted(name, expected, 0.0, |dollars: f64| {
        let billionths = (dollars * 1e9).round();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 0 to 10^12")]
        (0.0..=1e12).contains(&billionths).then_some(billionths as u64)
    })
}

#[cfg(test)]
mod tests {
    use tidegate_aws::error::causes;

    use super::*;

    const REQUIRED: [(&str, &str); 2] = [("STATE_TABLE", "coordinator"), ("TABLES", "orders")];

    fn read(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::read(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    /// The value of a variable is refused with a message that names the variable and says this.
    fn check_error(variable: (&str, &str), expect: &str) {
        let message = causes(&read(&[&[variable], &REQUIRED[..]].concat()).unwrap_err());
        assert!(message.contains(expect) && message.contains(variable.0), "{message:?} does not say {expect:?}");
    }

    #[test]
    fn only_the_tables_are_required() {
        let config = read(&REQUIRED).unwrap();
        assert_eq!((config.state_table.as_str(), config.tables.len()), ("coordinator", 1));
        let limits = Limits {
            units: None,
            units_per_caller: None,
            duration: Duration::from_hours(24),
            announcements: ANNOUNCEMENTS,
        };
        assert_eq!((config.limits, config.warm_prices), (limits, PRICES));
        assert!(!config.allow_warm && !config.dry_run);
        let check_missing = |variables, expect: &str| {
            let message = read(variables).unwrap_err().to_string();
            assert!(message.contains(expect), "{message}");
        };
        check_missing(&REQUIRED[1..], "STATE_TABLE is not set");
        check_missing(&REQUIRED[..1], "TABLES is not set");
    }

    #[test]
    fn every_variable_is_read() {
        let config = read(&[
            ("STATE_TABLE", "coordinator"),
            ("TABLES", "arn:aws:dynamodb:eu-west-1:111122223333:table/orders, customers"),
            ("MAX_UNITS", "40000"),
            ("MAX_UNITS_PER_CALLER", "0"),
            ("MAX_SECONDS", "3600"),
            ("MAX_ANNOUNCEMENTS", "10"),
            ("ALLOW_WARM", "true"),
            ("WARM_READ_PRICE", "0.0001465"),
            ("WARM_WRITE_PRICE", "0"),
            ("DRY_RUN", "true"),
        ])
        .unwrap();
        assert_eq!(config.tables, BTreeSet::from(["customers".to_owned(), "orders".to_owned()]));
        let limits = Limits {
            units: Some(Capacity::new(40_000)),
            units_per_caller: Some(Capacity::ZERO),
            duration: Duration::from_hours(1),
            announcements: 10,
        };
        assert_eq!((config.limits, config.warm_prices), (limits, WarmPrices { read: 146_500, write: 0 }));
        assert!(config.allow_warm && config.dry_run);
    }

    #[test]
    fn errors_name_the_variable_and_quote_the_value() {
        check_error(("STATE_TABLE", "a table"), "\"a table\"");
        check_error(("TABLES", "orders,"), "\"orders,\"");
        check_error(("TABLES", "arn:aws:s3:::bucket"), "\"arn:aws:s3:::bucket\"");
        let elsewhere = "arn:aws:dynamodb:eu-west-1:111122223333:table/orders";
        let variables = [("STATE_TABLE", "coordinator"), ("TABLES", elsewhere), ("AWS_REGION", "us-east-1")];
        assert!(read(&variables).unwrap_err().to_string().contains("ARNs of tables of this region"));
        assert!(read(&[variables[0], variables[1], ("AWS_REGION", "eu-west-1")]).is_ok());
        check_error(("MAX_UNITS", "-1"), "\"-1\"");
        check_error(("MAX_UNITS_PER_CALLER", "4k"), "\"4k\"");
        check_error(("MAX_SECONDS", "0"), "\"0\": expected a whole number of seconds");
        check_error(("MAX_ANNOUNCEMENTS", "many"), "\"many\"");
        check_error(("ALLOW_WARM", "yes"), "\"yes\": expected true or false");
        check_error(("WARM_READ_PRICE", "-1"), "\"-1\": expected US dollars");
        check_error(("WARM_WRITE_PRICE", "NaN"), "\"NaN\"");
        check_error(("DRY_RUN", "1"), "\"1\": expected true or false");
    }
}
