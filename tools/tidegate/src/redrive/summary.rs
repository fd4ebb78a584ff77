//! How a redrive ended, as a table or as JSON.

use std::{collections::BTreeMap, fmt};

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use serde_json::json;
use tidegate_domain::redrive::Decision;

/// How a redrive ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Whether nothing was written.
    pub dry_run: bool,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// Messages or objects that were taken.
    pub items: usize,
    /// Those that were deleted, because all of their records are settled.
    pub deleted: usize,
    /// Those that stay, by name, and why.
    pub left: Vec<(String, String)>,
    /// What the source did not do.
    pub source_errors: Vec<String>,
    /// The decisions, one for each record and snapshot.
    pub decisions: BTreeMap<Decision, usize>,
}

impl Summary {
    pub(super) fn count(&mut self, decision: Decision) {
        *self.decisions.entry(decision).or_default() += 1;
    }

    /// How often a decision was made.
    pub fn decided(&self, decision: Decision) -> usize {
        self.decisions.get(&decision).copied().unwrap_or_default()
    }

    /// The status of the process: 1 if something is left, or if the source did not do all.
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.left.is_empty() || !self.source_errors.is_empty())
    }

    pub fn json(&self) -> serde_json::Result<String> {
        let left: Vec<_> = self.left.iter().map(|(name, reason)| json!({"name": name, "reason": reason})).collect();
        serde_json::to_string_pretty(&json!({
            "dry_run": self.dry_run,
            "interrupted": self.interrupted,
            "items": self.items,
            "deleted": self.deleted,
            "counted": self.decided(Decision::Count),
            "already_redriven": self.decided(Decision::AlreadyRedriven),
            "waiting": self.decided(Decision::Waiting),
            "undecided": self.decided(Decision::Undecided),
            "left": left,
            "source_errors": self.source_errors,
        }))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        let counted = if self.dry_run { "to be counted (a dry run: nothing was)" } else { "counted" };
        let rows = [
            ("messages or objects", self.items),
            ("of these, settled and deleted", self.deleted),
            ("of these, left", self.left.len()),
            (counted, self.decided(Decision::Count)),
            ("already redriven", self.decided(Decision::AlreadyRedriven)),
            ("waiting", self.decided(Decision::Waiting)),
            ("undecided", self.decided(Decision::Undecided)),
        ];
        for (place, (name, count)) in rows.into_iter().enumerate() {
            let of = if place < 3 { "" } else { "record and snapshot: " };
            table.add_row([format!("{of}{name}"), count.to_string()]);
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        write!(f, "{table}")?;
        for (message, reason) in &self.left {
            write!(f, "\nleft: {message}: {reason}")?;
        }
        if self.items == 0 {
            write!(f, "\nnothing was found; messages that another run has taken are hidden for up to ten minutes")?;
        }
        if self.interrupted {
            write!(f, "\ninterrupted: run it again to continue")?;
        }
        for error in &self.source_errors {
            write!(f, "\nsource error: {error}")?;
        }
        Ok(())
    }
}
