//! `tidegate tokens`: changes the limits of the token tables.

mod file;
mod report;

use std::{
    collections::BTreeSet,
    num::NonZeroUsize,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context as _, anyhow, ensure};
use clap::builder::NonEmptyStringValueParser;
use tidegate_aws::{
    concurrent::concurrently,
    error::StoreError,
    token_limits::{SeenRows, TokenLimits, WriteOutcome},
    token_tables::TokenTables,
};
use tidegate_domain::token_limits::{Action as RowAction, Change, LimitKey, plan};

use self::{
    file::LimitsFile,
    report::{Report, Status},
};
use crate::connection::Connection;

/// The options and variables that name the table of limits.
pub const NAMED_BY: &str = "--base, LIMIT_TABLE, LIMITER_TABLES_BASE_NAME";

/// The most writes at the same time.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(8).unwrap();

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Action {
    /// Changes limits
    Limits {
        #[command(subcommand)]
        action: LimitsAction,
    },
}

#[derive(Clone, Debug, clap::Subcommand)]
pub enum LimitsAction {
    /// Writes the limits of a file to the limits table, and shows what differs
    #[command(after_long_help = SEMANTICS)]
    Apply(Apply),
}

/// What `apply` does, for `--help`.
const SEMANTICS: &str = "\
The file is JSON in the format of rate-limiter-py's LimitLoader, or TOML with the same keys:
  {\"limits\": [{\"accountId\": \"123456789012\", \"resourceName\": \"emr-cluster\", \"limit\": 10, \"windowSec\": 60}]}
A missing windowSec is 0. A limit of 0 blocks the account.

With a service, rows of the file get that serviceName, and rows of the service that the file does not name are listed;
--prune deletes them. A file without limits changes nothing, and deletes all rows of the service with --prune. Without a
service, only rows of the file are written, and they keep the serviceName that they have.

A row that is equal to the file is not written. Each write depends on the row as it was read. A row that another writer
changes meanwhile is a conflict: it does not change, the exit code is 1, and the same command can be run again.

Variables: LIMIT_TABLE and LIMIT_SERVICE_INDEX name the table and its index; without them, LIMITER_TABLES_BASE_NAME is
their base name.

The report is printed when the rows are written. Run with --dry-run to see it before.";

#[derive(Clone, Debug, clap::Args)]
pub struct Apply {
    /// The file of limits: TOML if its name ends in .toml, else JSON
    file: PathBuf,
    /// The service that the limits belong to; the file's key "service" if not given
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    service: Option<String>,
    /// Shows what would be done, and changes nothing
    #[arg(long)]
    dry_run: bool,
    /// Deletes rows of the service that the file does not name
    #[arg(long)]
    prune: bool,
    /// The base name of the token tables, like prod for prod-limits; the variables of rate-limiter-py if not given
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    base: Option<String>,
}

impl Action {
    /// The name of the table of limits.
    pub fn table(&self) -> anyhow::Result<String> {
        let Self::Limits { action: LimitsAction::Apply(Apply { base, .. }) } = self;
        match base {
            Some(base) => Ok(TokenTables::of(base).limits),
            None => TokenTables::limits_from_env().map_err(|missing| anyhow!("{missing} or --base")),
        }
    }

    /// Returns the exit code.
    pub async fn run(self, connection: &Connection) -> anyhow::Result<u8> {
        let Self::Limits { action: LimitsAction::Apply(apply) } = self;
        apply.run(connection).await
    }
}

impl Apply {
    /// Applies the file and prints a report. Returns the exit code: 0, or 1 if there is a conflict.
    async fn run(self, connection: &Connection) -> anyhow::Result<u8> {
        let file = LimitsFile::read(&self.file)?;
        for warning in &file.warnings {
            eprintln!("warning: {warning}");
        }
        let service = self.service_of(&file)?;
        let store = TokenLimits::new(connection.dynamodb(&connection.sdk().await), &connection.table);
        let mut keys: BTreeSet<_> = file.limits.keys().cloned().collect();
        if let Some(service) = &service {
            keys.extend(self.keys_of_service(&store, service).await?);
        }
        let seen = store.rows(&keys).await.with_context(|| format!("table {:?} cannot be read", store.table()))?;
        let changes = plan(&seen.limits(), &file.limits, service.as_deref(), self.prune);
        for change in &changes {
            warn_of(change);
        }
        let is_set = |change: &&Change| matches!(change.action, RowAction::Set(_));
        let unchanged = file.limits.len() - changes.iter().filter(is_set).count();
        let (statuses, error) =
            if self.dry_run { (vec![Status::Done; changes.len()], None) } else { write(&store, &seen, &changes).await };
        let conflicts = statuses.iter().filter(|status| **status == Status::Conflict).count();
        let (table, dry_run) = (store.table().to_owned(), self.dry_run);
        let report = Report { table, service, dry_run, unchanged, changes, statuses };
        report.output().print(connection.json)?;
        if conflicts > 0 {
            let rows = if conflicts == 1 { "row" } else { "rows" };
            eprintln!("another writer has changed {conflicts} {rows} meanwhile: run the same command again");
        }
        match error {
            Some(error) if error.is_retryable() => {
                Err(error).context("not all rows are written: run the same command again")
            }
            Some(error) => Err(error).context("not all rows are written: correct this, and run the same command again"),
            None => Ok(u8::from(conflicts > 0)),
        }
    }

    /// The service of the option and of the file, which must not differ.
    fn service_of(&self, file: &LimitsFile) -> anyhow::Result<Option<String>> {
        if let (Some(option), Some(key)) = (&self.service, &file.service) {
            ensure!(option == key, "--service is {option:?}, but the file's key \"service\" is {key:?}");
        }
        let service = self.service.as_ref().or(file.service.as_ref());
        ensure!(
            service.is_some() || !self.prune,
            "--prune deletes rows of a service: name it with --service NAME or the file's key \"service\""
        );
        Ok(service.cloned())
    }

    async fn keys_of_service(&self, store: &TokenLimits, service: &str) -> anyhow::Result<BTreeSet<LimitKey>> {
        let index = match &self.base {
            Some(base) => TokenTables::of(base).service_index,
            None => TokenTables::service_index_from_env().map_err(|missing| anyhow!("{missing} or --base"))?,
        };
        store.keys_of_service(&index, service).await.with_context(|| {
            let table = store.table();
            format!(
                "index {index:?} of table {table:?} cannot be read: check --base, LIMIT_SERVICE_INDEX, \
                 LIMITER_TABLES_BASE_NAME"
            )
        })
    }
}

/// Writes the changes, some at a time, and starts no further write after one has failed. Returns the status of each change
/// and the first error.
async fn write(store: &TokenLimits, seen: &SeenRows, changes: &[Change]) -> (Vec<Status>, Option<StoreError>) {
    let has_failed = &AtomicBool::new(false);
    let one = async |change: &Change| {
        let written = match &change.action {
            RowAction::Leave => return Ok(Status::Done),
            _ if has_failed.load(Ordering::Relaxed) => return Ok(Status::NotTried),
            RowAction::Set(row) => store.set(&change.key, seen, row).await,
            RowAction::Delete => store.delete(&change.key, seen).await,
        };
        match written {
            Ok(WriteOutcome::Written) => Ok(Status::Done),
            Ok(WriteOutcome::Lost) => Ok(Status::Conflict),
            Err(error) => {
                has_failed.store(true, Ordering::Relaxed);
                Err(error)
            }
        }
    };
    let calls = changes.iter().enumerate();
    let one = &one;
    let mut results = concurrently(calls, CONCURRENCY, |(at, change)| async move { (at, one(change).await) }).await;
    results.sort_by_key(|(at, _)| *at);
    let mut first = None;
    let statuses = results.into_iter().map(|(_, result)| {
        result.unwrap_or_else(|error| {
            first.get_or_insert(error);
            Status::Failed
        })
    });
    (statuses.collect(), first)
}

/// Warns of a change that may be a mistake.
fn warn_of(Change { key: LimitKey { resource, account }, before, action }: &Change) {
    let (Some(before), RowAction::Set(after)) = (before, action) else { return };
    if before.window_seconds.is_some_and(|window| window > 0) && after.window_seconds == Some(0) {
        eprintln!(
            "warning: account {account:?} on resource {resource:?} loses its window: rate-limiter-py cannot take fungible \
             tokens without one"
        );
    }
    if before.service.is_some() && before.service != after.service {
        eprintln!(
            "warning: account {account:?} on resource {resource:?} moves from service {:?} to {:?}",
            before.service.as_deref().unwrap_or_default(),
            after.service.as_deref().unwrap_or_default()
        );
    }
}
