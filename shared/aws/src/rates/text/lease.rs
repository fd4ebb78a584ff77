//! The keys of leases, in workers' reports and in the summary.

use std::{collections::BTreeMap, num::NonZeroU32};

use serde::Deserialize;
use tidegate_domain::{
    lease::{LEASE, LeaseKeys, LeaseReport, LeaseTerms, ReportNumber, fleet::LeaseSummary},
    rates::{Rate, Rates},
};

use super::{PythonFloat, object};
use crate::schema::rates::lease::{
    ACTIVE, CAP, FOLLOWS, GROWTH, HAS, LEASE_SECONDS, LEVEL, READ, REPORT, REPORTS, SAFE, WANTS, WEIGHT, WRITE,
};

/// Reads the keys of a leasing worker's report. `None` if one is missing or invalid.
pub(super) fn keys(text: &str) -> Option<LeaseKeys> {
    // The names of these fields, and of those below, are those in `schema::rates::lease`.
    #[derive(Deserialize)]
    struct Fields {
        report: u64,
        follows: Option<u64>,
        weight: NonZeroU32,
        read: Kind,
        write: Kind,
    }
    #[derive(Deserialize)]
    struct Kind {
        wants: f64,
        has: f64,
        safe: f64,
        cap: Option<f64>,
    }
    let Fields { report, follows, weight, read, write } = object(text)?;
    let rates = |of: fn(&Kind) -> f64| rates(of(&read), of(&write));
    let report = LeaseReport {
        number: ReportNumber::new(report),
        follows: follows.map(ReportNumber::new),
        wants: rates(|kind| kind.wants)?,
        has: rates(|kind| kind.has)?,
        safe: rates(|kind| kind.safe)?,
        weight,
    };
    let cap = match (read.cap, write.cap) {
        (None, None) => None,
        (read, write) => Some(self::rates(read?, write?)?),
    };
    Some(LeaseKeys { report, cap })
}

/// Reads the keys of a summary. `None` if it has none, or one is invalid, or its leases have another length: then another
/// version has written it.
pub fn summary(text: &[u8]) -> Option<LeaseSummary> {
    #[derive(Deserialize)]
    struct Fields {
        lease_seconds: u64,
        active: u32,
        read: Kind,
        write: Kind,
        reports: BTreeMap<String, u64>,
    }
    #[derive(Deserialize)]
    struct Kind {
        cap: f64,
        level: f64,
        growth: f64,
    }
    let Fields { lease_seconds, active, read, write, reports } = object(std::str::from_utf8(text).ok()?)?;
    if lease_seconds != LEASE.as_secs() {
        return None;
    }
    let terms = LeaseTerms {
        cap: rates(read.cap, write.cap)?,
        active,
        level: rates(read.level, write.level)?,
        growth: rates(read.growth, write.growth)?,
    };
    let reports = reports.into_iter().map(|(worker, number)| (worker, ReportNumber::new(number))).collect();
    Some(LeaseSummary { terms, reports })
}

/// The keys of a report, as further fields of a JSON object.
pub(super) fn report_fields(keys: &LeaseKeys) -> Vec<(&'static str, String)> {
    let LeaseKeys { report, cap } = keys;
    let kind = |of: fn(Rates) -> Rate| {
        let mut fields = vec![(WANTS, of(report.wants)), (HAS, of(report.has)), (SAFE, of(report.safe))];
        fields.extend(cap.map(|cap| (CAP, of(cap))));
        rates_object(&fields)
    };
    vec![
        (REPORT, report.number.get().to_string()),
        (FOLLOWS, report.follows.map_or_else(|| "null".to_owned(), |follows| follows.get().to_string())),
        (WEIGHT, report.weight.to_string()),
        (READ, kind(|rates| rates.read)),
        (WRITE, kind(|rates| rates.write)),
    ]
}

/// The keys of a summary, as further fields of a JSON object.
pub(super) fn summary_fields(summary: &LeaseSummary) -> Vec<(&'static str, String)> {
    let LeaseSummary { terms, reports } = summary;
    let kind = |of: fn(Rates) -> Rate| {
        rates_object(&[(CAP, of(terms.cap)), (LEVEL, of(terms.level)), (GROWTH, of(terms.growth))])
    };
    let reports = reports.iter().map(|(worker, number)| {
        let worker = serde_json::Value::from(worker.as_str());
        format!("{worker}: {}", number.get())
    });
    let reports = reports.collect::<Vec<_>>().join(", ");
    vec![
        (LEASE_SECONDS, LEASE.as_secs().to_string()),
        (ACTIVE, terms.active.to_string()),
        (READ, kind(|rates| rates.read)),
        (WRITE, kind(|rates| rates.write)),
        (REPORTS, format!("{{{reports}}}")),
    ]
}

fn rates(read: f64, write: f64) -> Option<Rates> {
    Some(Rates { read: Rate::new(read).ok()?, write: Rate::new(write).ok()? })
}

fn rates_object(fields: &[(&str, Rate)]) -> String {
    super::written(fields.iter().map(|(name, rate)| (*name, PythonFloat(rate.units()).to_string())))
}
