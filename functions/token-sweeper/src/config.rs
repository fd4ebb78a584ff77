//! The function's configuration, from environment variables.

use std::{num::NonZeroUsize, time::Duration};

use tidegate_aws::{
    processors::Processors,
    schema::tokens,
    settings::{ConfigError, Settings},
    table,
};

#[derive(Clone, Debug)]
pub struct Config {
    /// `NON_FUNGIBLE_TABLE`, or `LIMITER_TABLES_BASE_NAME` with `-non-fungible-tokens`. One is required.
    pub table: String,
    /// `NON_FUNGIBLE_RES_INDEX`, or `LIMITER_TABLES_BASE_NAME` with `-resource-index`. One is required.
    pub index: String,
    /// `EVENT_PROCESSORS`: see [`Processors::overridden_by`]. Without it, the built-in ones. `GLUE_MAX_RETRIES`: see
    /// [`Processors::with_glue_retries`]; no default, because no failure of a Glue job ends it then.
    pub processors: Processors,
    /// `MISSING_TOKEN_GRACE_SECONDS`: how long after a resource's end its token may still be written. Default 120.
    pub grace: Duration,
    /// `RECONCILE_EMR`: whether the reconcile asks EMR for clusters that have ended. Default false, since it takes a
    /// permission.
    pub reconcile_emr: bool,
    /// `DRY_RUN`: whether nothing is deleted, but only reported. Default false.
    pub dry_run: bool,
    /// `WRITE_CONCURRENCY`: how many resources are dealt with at the same time. Default 32.
    pub concurrency: NonZeroUsize,
}

const BASE_NAME: &str = "LIMITER_TABLES_BASE_NAME";
const PROCESSORS: &str = "EVENT_PROCESSORS";
const RETRIES: &str = "GLUE_MAX_RETRIES";
/// AWS: [job properties](https://docs.aws.amazon.com/glue/latest/dg/add-job.html).
const MOST_RETRIES: u32 = 10;
const GRACE_SECONDS: u32 = 120;

impl Config {
    /// Reads variables by `lookup`. An empty variable counts as not set.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let settings = Settings::new(lookup);
        let seconds = "a whole number of seconds up to 4294967295";
        let grace: u32 = settings.parsed("MISSING_TOKEN_GRACE_SECONDS", seconds, GRACE_SECONDS)?;
        Ok(Self {
            table: named(
                &settings,
                "NON_FUNGIBLE_TABLE",
                "the table of non-fungible tokens (or set LIMITER_TABLES_BASE_NAME)",
                tokens::NON_FUNGIBLE,
            )?,
            index: named(
                &settings,
                "NON_FUNGIBLE_RES_INDEX",
                "that table's index by resource (or set LIMITER_TABLES_BASE_NAME)",
                tokens::RESOURCE_INDEX,
            )?,
            processors: processors(&settings)?,
            grace: Duration::from_secs(grace.into()),
            reconcile_emr: settings.parsed("RECONCILE_EMR", "true or false", false)?,
            dry_run: settings.parsed("DRY_RUN", "true or false", false)?,
            concurrency: settings.concurrency()?,
        })
    }
}

/// A name by a variable of its own, or made of the base name.
fn named<F: Fn(&str) -> Option<String>>(
    settings: &Settings<F>,
    own: &'static str,
    purpose: &'static str,
    suffix: &str,
) -> Result<String, ConfigError> {
    let expected = "a name that DynamoDB accepts, or a table's ARN";
    if let Some(name) = settings.checked(own, expected, table::is_name)? {
        return Ok(name);
    }
    let base = settings.get(BASE_NAME).ok_or(ConfigError::Missing { name: own, purpose })?;
    let name = tokens::name(&base, suffix);
    // Of an ARN, no other name can be made.
    let is_valid = table::is_name(&name) && !base.contains(':');
    let expected = "the beginning of a name that DynamoDB accepts";
    if is_valid { Ok(name) } else { Err(ConfigError::Invalid { name: BASE_NAME, value: base, expected }) }
}

fn processors<F: Fn(&str) -> Option<String>>(settings: &Settings<F>) -> Result<Processors, ConfigError> {
    let expected = "a whole number from 0 to 10";
    let retries: Option<u32> = match settings.get(RETRIES) {
        Some(_) => {
            Some(settings.accepted(RETRIES, expected, 0, |retries| (retries <= MOST_RETRIES).then_some(retries))?)
        }
        None => None,
    };
    let text = settings.get(PROCESSORS);
    let processors = retries.map_or_else(Processors::built_in, Processors::with_glue_retries);
    let processors = match &text {
        Some(text) => processors.and_then(|processors| processors.overridden_by(text)),
        None => processors,
    };
    processors.map_err(|source| ConfigError::Part {
        name: PROCESSORS,
        value: text.unwrap_or_default(),
        source: source.into(),
    })
}

#[cfg(test)]
mod tests {
    use tidegate_aws::error::causes;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::read(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    fn check_names(variables: &[(&str, &str)], table: &str, index: &str) {
        let config = read(variables).unwrap();
        assert_eq!((config.table.as_str(), config.index.as_str()), (table, index));
    }

    /// `expect` holds what the message must say, beside the variable's name.
    fn check_error(variable: (&str, &str), expect: &str) {
        let message = causes(&read(&[("LIMITER_TABLES_BASE_NAME", "prod"), variable]).unwrap_err());
        assert!(message.contains(expect) && message.contains(variable.0), "{message:?} does not say {expect:?}");
    }

    #[test]
    fn only_the_names_are_required() {
        let config = read(&[("LIMITER_TABLES_BASE_NAME", "prod")]).unwrap();
        assert_eq!((config.grace, config.concurrency.get()), (Duration::from_mins(2), 32));
        assert!(!config.reconcile_emr && !config.dry_run);
        let check_missing = |variables, expect: &str| {
            let message = read(variables).unwrap_err().to_string();
            assert!(message.contains(expect), "{message}");
        };
        check_missing(&[], "NON_FUNGIBLE_TABLE is not set");
        check_missing(&[("NON_FUNGIBLE_TABLE", "tokens")], "NON_FUNGIBLE_RES_INDEX is not set");
    }

    /// As in rate-limiter-py.
    #[test]
    fn own_names_win_over_the_base_name() {
        check_names(&[("LIMITER_TABLES_BASE_NAME", "prod")], "prod-non-fungible-tokens", "prod-resource-index");
        check_names(&[("LIMITER_TABLES_BASE_NAME", "prod-")], "prod-non-fungible-tokens", "prod-resource-index");
        let own = [("NON_FUNGIBLE_TABLE", "tokens"), ("NON_FUNGIBLE_RES_INDEX", "by-resource")];
        check_names(&own, "tokens", "by-resource");
        check_names(&[own[0], own[1], ("LIMITER_TABLES_BASE_NAME", "prod")], "tokens", "by-resource");
        check_names(&[own[0], ("LIMITER_TABLES_BASE_NAME", "prod")], "tokens", "prod-resource-index");
    }

    #[test]
    fn every_variable_is_read() {
        let config = read(&[
            ("LIMITER_TABLES_BASE_NAME", "prod"),
            ("EVENT_PROCESSORS", r#"{"replace": true, "processors": []}"#),
            ("GLUE_MAX_RETRIES", "2"),
            ("MISSING_TOKEN_GRACE_SECONDS", "30"),
            ("RECONCILE_EMR", "true"),
            ("DRY_RUN", "true"),
            ("WRITE_CONCURRENCY", "4"),
        ])
        .unwrap();
        assert_eq!((config.grace, config.concurrency.get()), (Duration::from_secs(30), 4));
        assert!(config.reconcile_emr && config.dry_run);
    }

    #[test]
    fn errors_name_the_variable_and_quote_the_value() {
        check_error(("NON_FUNGIBLE_TABLE", "a table"), "\"a table\"");
        check_error(("NON_FUNGIBLE_RES_INDEX", "?"), "\"?\"");
        check_error(("MISSING_TOKEN_GRACE_SECONDS", "2m"), "\"2m\"");
        check_error(("RECONCILE_EMR", "yes"), "\"yes\": expected true or false");
        check_error(("DRY_RUN", "1"), "\"1\": expected true or false");
        check_error(("WRITE_CONCURRENCY", "0"), "\"0\"");
        check_error(("EVENT_PROCESSORS", "[{]"), "not JSON: key must be a string");
        check_error(("EVENT_PROCESSORS", r#"[{"name": "a"}]"#), r#"processor "a", key source: it is required"#);
        let message = read(&[("LIMITER_TABLES_BASE_NAME", "a b")]).unwrap_err().to_string();
        assert!(message.contains("LIMITER_TABLES_BASE_NAME is \"a b\""), "{message}");
    }
}
