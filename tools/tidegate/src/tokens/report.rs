//! What `tidegate tokens limits apply` prints.

use serde_json::{Value, json};
use tidegate_domain::token_limits::{Action, Change, LimitRow};

use crate::output::{Output, table};

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is written, or would be if this is a dry run.
    Done,
    /// Another writer has changed the row since it was read. Nothing was written.
    Conflict,
    /// The call failed. If its response was lost, the row may be written.
    Failed,
    /// A call for another row failed before.
    NotTried,
}

/// The changes, and the status of each.
#[derive(Debug)]
pub struct Report {
    pub table: String,
    pub service: Option<String>,
    pub dry_run: bool,
    /// How many rows of the file were equal to the table.
    pub unchanged: usize,
    pub changes: Vec<Change>,
    pub statuses: Vec<Status>,
}

/// The words for a change, in the order of the summary.
const WORDS: [&str; 10] =
    ["create", "change", "delete", "created", "changed", "deleted", "left", "conflict", "failed", "not tried"];

impl Report {
    pub fn output(&self) -> Output {
        let changes =
            || self.changes.iter().zip(&self.statuses).map(|(change, status)| (change, self.word(change, *status)));
        let count = |word: &str| changes().filter(|(_, of)| *of == word).count();
        let counts = WORDS.into_iter().map(|word| (word, count(word))).filter(|(_, count)| *count > 0);
        let counts: Vec<_> = counts.chain([("unchanged", self.unchanged)]).collect();
        let json = json!({
            "table": self.table, "service": self.service, "dry_run": self.dry_run,
            "rows": changes().map(|(change, word)| json_of(change, word)).collect::<Value>(),
            "counts": counts.iter().map(|(word, count)| ((*word).to_owned(), json!(count))).collect::<Value>(),
        });
        let summary: Vec<_> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
        let what = if self.dry_run { "dry run of table" } else { "table" };
        let summary = format!("{what} {:?}: {}", self.table, summary.join(", "));
        if self.changes.is_empty() {
            return Output::new(summary, json);
        }
        let columns = ["status", "resource", "account", "limit", "window (s)", "service"];
        let rows = table(columns, changes().map(|(change, word)| row(change, word)).collect(), 3..5);
        Output::new(format!("{rows}\n{summary}"), json)
    }

    fn word(&self, change: &Change, status: Status) -> &'static str {
        let [planned, done] = match (&change.action, &change.before) {
            (Action::Leave, _) => return "left",
            (Action::Delete, _) => ["delete", "deleted"],
            (Action::Set(_), None) => ["create", "created"],
            (Action::Set(_), Some(_)) => ["change", "changed"],
        };
        match status {
            Status::Done if self.dry_run => planned,
            Status::Done => done,
            Status::Conflict => "conflict",
            Status::Failed => "failed",
            Status::NotTried => "not tried",
        }
    }
}

/// Each value, or both values if they differ.
fn row(change: &Change, word: &str) -> Vec<String> {
    let before = change.before.as_ref();
    let after = match &change.action {
        Action::Set(row) => Some(row),
        Action::Delete | Action::Leave => before,
    };
    let cell = |shown: fn(&LimitRow) -> Option<String>| {
        let [before, after] = [before, after].map(|row| row.map(|row| shown(row).unwrap_or_default()));
        match (before, after) {
            (Some(before), Some(after)) if before != after => format!("{before} -> {after}").trim_start().to_owned(),
            (_, after) => after.unwrap_or_default(),
        }
    };
    let numbers = [
        cell(|row| row.limit.map(|limit| limit.to_string())),
        cell(|row| row.window_seconds.map(|seconds| seconds.to_string())),
        cell(|row| row.service.clone()),
    ];
    let names = [word.to_owned(), change.key.resource.clone(), change.key.account.clone()];
    names.into_iter().chain(numbers).collect()
}

fn json_of(change: &Change, word: &str) -> Value {
    let after = match &change.action {
        Action::Set(row) => Some(row),
        Action::Leave => change.before.as_ref(),
        Action::Delete => None,
    };
    let values =
        |row: &LimitRow| json!({"limit": row.limit, "window_seconds": row.window_seconds, "service": row.service});
    json!({
        "resource": change.key.resource, "account": change.key.account, "status": word,
        "before": change.before.as_ref().map(values), "after": after.map(values),
    })
}
