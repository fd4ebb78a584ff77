//! The function's configuration, from environment variables.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use tidegate_aws::{
    schema::rates::{SEPARATOR, SUMMARY},
    settings::{ConfigError, Settings},
};
use tidegate_domain::rates::{Cutoff, Rate, Rates};

#[derive(Clone, Debug)]
pub struct Config {
    /// `BUCKET`: the bucket of the workers' files. Required.
    pub bucket: String,
    /// `PREFIX`: what their keys begin with, up to the last `/`, which is added if it is missing. Required.
    pub prefix: String,
    /// `SUMMARY_KEY`: the summary's key behind the prefix. Default `summary.json`.
    pub summary: String,
    /// `INTERVAL_SECONDS`: the time from the start of one aggregation to that of the next. Default 5.
    pub interval: Duration,
    /// `STALENESS_CUTOFF_SECONDS`: the age up to which a worker's file counts. Default 15.
    pub cutoff: Cutoff,
    /// `MAX_CONCURRENCY`: how many calls are under way at the same time, at most, listings and writes among them. Each
    /// job has its equal share, or one. Default 128, and 256 from 1,769 MB of memory on.
    pub concurrency: NonZeroUsize,
    /// `READ_CAP` and `WRITE_CAP`: what the leasing workers of each job may use together, in capacity units a second. A
    /// lower cap in a worker's report applies instead. Default: the caps in the reports.
    pub cap: Option<Rates>,
    /// `DISCOVER_JOBS`: whether each prefix right under `PREFIX` is a job of its own. Default false.
    pub discover_jobs: bool,
    /// `S3_FORCE_PATH_STYLE`: whether the bucket has no host name of its own, as on local endpoints. Default false.
    pub force_path_style: bool,
}

const CUTOFF_SECONDS: NonZeroU32 = NonZeroU32::MIN.saturating_add(14);
const INTERVAL_SECONDS: u32 = 5;
/// Lambda lets no invocation run for longer, in seconds.
///
/// AWS: [quotas](https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html).
const LONGEST_INTERVAL: u32 = 900;
/// With 25 ms per call, just below the 5,500 reads a second that S3 serves for a prefix.
///
/// AWS: [request rates](https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html).
const CONCURRENCY: NonZeroUsize = NonZeroUsize::MIN.saturating_add(127);

/// The memory in MB with which a function has one CPU.
///
/// AWS: [memory](https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html).
const ONE_CPU: u32 = 1_769;
/// What 10,000 workers take with one CPU.
const CONCURRENCY_OF_ONE_CPU: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);

impl Config {
    /// Reads variables by `lookup`. An empty variable counts as not set.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let settings = Settings::new(lookup);
        let bucket = settings.checked("BUCKET", "a bucket's name, or an access point's ARN", is_bucket)?;
        let prefix = settings.checked("PREFIX", "what keys begin with, like \"fleet/rates/\"", is_key)?;
        let summary = settings.checked("SUMMARY_KEY", "what a key ends with, like \"summary.json\"", is_name)?;
        let discover_jobs = settings.parsed("DISCOVER_JOBS", "true or false", false)?;
        if let Some(value) = summary.as_ref().filter(|summary| discover_jobs && summary.contains(SEPARATOR)) {
            let expected = "a name without a \"/\", because DISCOVER_JOBS looks for it beside the workers' files";
            return Err(ConfigError::Invalid { name: "SUMMARY_KEY", value: value.clone(), expected });
        }
        let memory = settings.parsed("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "a whole number of MB", 0_u32)?;
        let concurrency = if memory < ONE_CPU { CONCURRENCY } else { CONCURRENCY_OF_ONE_CPU };
        let missing = |name, purpose| ConfigError::Missing { name, purpose };
        Ok(Self {
            bucket: bucket.ok_or(missing("BUCKET", "the bucket of the workers' files"))?,
            prefix: prefix.map(ended).ok_or(missing("PREFIX", "what the keys of the workers' files begin with"))?,
            summary: summary.unwrap_or_else(|| SUMMARY.to_owned()),
            interval: settings.accepted(
                "INTERVAL_SECONDS",
                "a whole number of seconds from 1 to 900",
                INTERVAL_SECONDS,
                |seconds| (1..=LONGEST_INTERVAL).contains(&seconds).then(|| Duration::from_secs(seconds.into())),
            )?,
            cutoff: Cutoff::from_seconds(settings.parsed(
                "STALENESS_CUTOFF_SECONDS",
                "a whole number of seconds from 1 to 4294967295",
                CUTOFF_SECONDS,
            )?),
            concurrency: settings.parsed("MAX_CONCURRENCY", "a whole number above 0", concurrency)?,
            cap: cap(&settings)?,
            discover_jobs,
            force_path_style: settings.parsed("S3_FORCE_PATH_STYLE", "true or false", false)?,
        })
    }
}

/// Both caps, or none.
fn cap(settings: &Settings<impl Fn(&str) -> Option<String>>) -> Result<Option<Rates>, ConfigError> {
    const EXPECTED: &str = "capacity units a second, from 0 to 10000000";
    let cap = |name| {
        let Some(_) = settings.get(name) else { return Ok(None) };
        settings.accepted(name, EXPECTED, f64::NAN, |units| Rate::new(units).ok()).map(Some)
    };
    match (cap("READ_CAP")?, cap("WRITE_CAP")?) {
        (Some(read), Some(write)) => Ok(Some(Rates { read, write })),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(ConfigError::Missing { name: "READ_CAP", purpose: "it belongs to WRITE_CAP" }),
        (Some(_), None) => Err(ConfigError::Missing { name: "WRITE_CAP", purpose: "it belongs to READ_CAP" }),
    }
}

/// AWS: [bucket names](https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html); the older
/// buckets of us-east-1 have up to 255 characters, and more kinds of them.
fn is_bucket(value: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    value.starts_with("arn:") || ((3..=255).contains(&value.len()) && value.bytes().all(is_name))
}

/// AWS: [object keys](https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html).
fn is_key(value: &str) -> bool {
    value.len() < 1024 && !value.starts_with(SEPARATOR) && !value.contains("://")
}

fn is_name(value: &str) -> bool {
    is_key(value) && !value.ends_with(SEPARATOR)
}

fn ended(prefix: String) -> String {
    if prefix.ends_with(SEPARATOR) { prefix } else { prefix + SEPARATOR }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUIRED: [(&str, &str); 2] = [("BUCKET", "rates"), ("PREFIX", "fleet/")];

    fn read(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::read(|name| variables.iter().rfind(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    /// `expect` holds what the message must say, beside the variable's name.
    fn check_error(variable: (&str, &str), expect: &str) {
        let message = read(&[REQUIRED[0], REQUIRED[1], variable]).unwrap_err().to_string();
        assert!(message.contains(expect) && message.contains(variable.0), "{message:?} does not say {expect:?}");
    }

    #[test]
    fn only_the_place_is_required() {
        let config = read(&REQUIRED).unwrap();
        assert_eq!((config.bucket.as_str(), config.prefix.as_str()), ("rates", "fleet/"));
        assert_eq!((config.summary.as_str(), config.interval), ("summary.json", Duration::from_secs(5)));
        assert_eq!((config.cutoff, config.concurrency.get()), (Cutoff::DEFAULT, 128));
        assert!(!config.discover_jobs && !config.force_path_style && config.cap.is_none());
        check_error(("BUCKET", " "), "not set");
        check_error(("PREFIX", ""), "not set");
    }

    #[test]
    fn a_prefix_ends_in_a_slash() {
        let check = |given, expect| assert_eq!(read(&[REQUIRED[0], ("PREFIX", given)]).unwrap().prefix, expect);
        check("fleet", "fleet/");
        check("fleet/", "fleet/");
        check("fleet/rates", "fleet/rates/");
    }

    #[test]
    fn every_variable_is_read() {
        let config = read(&[
            ("BUCKET", "arn:aws:s3:us-east-1:123456789012:accesspoint/rates"),
            ("PREFIX", "fleet"),
            ("SUMMARY_KEY", "all.json"),
            ("INTERVAL_SECONDS", "30"),
            ("STALENESS_CUTOFF_SECONDS", "60"),
            ("MAX_CONCURRENCY", "8"),
            ("READ_CAP", "20000"),
            ("WRITE_CAP", "0.5"),
            ("DISCOVER_JOBS", "true"),
            ("S3_FORCE_PATH_STYLE", "true"),
        ])
        .unwrap();
        let cap = config.cap.map(|cap| [cap.read, cap.write].map(Rate::units));
        assert_eq!(cap, Some([20_000.0, 0.5]));
        assert_eq!((config.summary.as_str(), config.interval), ("all.json", Duration::from_secs(30)));
        assert_eq!((config.cutoff.get(), config.concurrency.get()), (Duration::from_mins(1), 8));
        assert!(config.bucket.starts_with("arn:") && config.discover_jobs && config.force_path_style);
    }

    #[test]
    fn concurrency_follows_memory() {
        for (memory, expect) in [("256", 128), ("1768", 128), ("1769", 256), ("10240", 256)] {
            let memory = ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", memory);
            let concurrency = |variables: &[_]| read(&[&REQUIRED, variables].concat()).unwrap().concurrency.get();
            assert_eq!((concurrency(&[memory]), concurrency(&[memory, ("MAX_CONCURRENCY", "8")])), (expect, 8));
        }
    }

    #[test]
    fn discovered_jobs_have_their_summary_beside_the_files() {
        let nested = ("SUMMARY_KEY", "sum/all.json");
        assert!(read(&[REQUIRED[0], REQUIRED[1], nested]).is_ok());
        let error = read(&[REQUIRED[0], REQUIRED[1], nested, ("DISCOVER_JOBS", "true")]).unwrap_err().to_string();
        assert!(error.contains("SUMMARY_KEY") && error.contains("\"sum/all.json\""), "{error}");
    }

    #[test]
    fn a_cap_has_reads_and_writes() {
        for (given, missing) in [("READ_CAP", "WRITE_CAP"), ("WRITE_CAP", "READ_CAP")] {
            let error = read(&[REQUIRED[0], REQUIRED[1], (given, "7")]).unwrap_err().to_string();
            assert!(error.starts_with(missing) && error.contains(given), "{error}");
        }
    }

    #[test]
    fn errors_name_the_variable_and_quote_the_value() {
        check_error(("BUCKET", "s3://rates"), "\"s3://rates\"");
        check_error(("BUCKET", "ab"), "\"ab\"");
        check_error(("PREFIX", "/fleet"), "\"/fleet\"");
        check_error(("PREFIX", "s3://rates/fleet"), "\"s3://rates/fleet\"");
        check_error(("SUMMARY_KEY", "summary/"), "\"summary/\"");
        check_error(("INTERVAL_SECONDS", "0"), "\"0\": expected a whole number of seconds from 1 to 900");
        check_error(("INTERVAL_SECONDS", "901"), "\"901\"");
        check_error(("INTERVAL_SECONDS", "5s"), "\"5s\"");
        check_error(("STALENESS_CUTOFF_SECONDS", "0"), "\"0\"");
        check_error(("STALENESS_CUTOFF_SECONDS", "-1"), "\"-1\"");
        check_error(("MAX_CONCURRENCY", "0"), "\"0\"");
        check_error(("READ_CAP", "-1"), "\"-1\": expected capacity units a second, from 0 to 10000000");
        check_error(("WRITE_CAP", "all"), "\"all\"");
        check_error(("DISCOVER_JOBS", "yes"), "\"yes\": expected true or false");
        check_error(("S3_FORCE_PATH_STYLE", "1"), "\"1\": expected true or false");
    }
}
