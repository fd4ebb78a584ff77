//! What came of a redrive, for a person to read.

use std::{collections::BTreeMap, fmt};

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use tidegate_domain::redrive::Decision;

/// What came of a redrive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Whether nothing was written.
    pub dry_run: bool,
    /// Messages received.
    pub received: usize,
    /// Messages all of whose records were settled.
    pub deleted: usize,
    /// Messages that stay in the queue, by id, and why.
    pub left: Vec<(String, String)>,
    /// What the queue did not do, for messages or all.
    pub troubles: Vec<String>,
    /// What was decided, once for each record and snapshot.
    pub decisions: BTreeMap<Decision, usize>,
}

impl Summary {
    pub(super) fn count(&mut self, decision: Decision) {
        *self.decisions.entry(decision).or_default() += 1;
    }

    /// What the process is to end with: 1 if messages stay that should not, or the queue did not do all.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.left.is_empty() || !self.troubles.is_empty())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        let counted = if self.dry_run { "to be counted (a dry run: nothing was)" } else { "counted" };
        let mut rows = vec![("messages received", self.received), ("messages deleted", self.deleted)];
        rows.push(("messages left", self.left.len()));
        for (decision, name) in [
            (Decision::Count, counted),
            (Decision::AlreadyRedriven, "already redriven"),
            (Decision::AlreadyCounted, "already counted by the function"),
            (Decision::Waiting, "waiting"),
            (Decision::Undecided, "undecided"),
        ] {
            rows.push((name, self.decisions.get(&decision).copied().unwrap_or_default()));
        }
        for (place, (name, count)) in rows.into_iter().enumerate() {
            let of = if place < 3 { "" } else { "record and snapshot: " };
            table.add_row([format!("{of}{name}"), count.to_string()]);
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        write!(f, "{table}")?;
        for (message, reason) in &self.left {
            write!(f, "\nleft: message {message}: {reason}")?;
        }
        for trouble in &self.troubles {
            write!(f, "\ntrouble: {trouble}")?;
        }
        Ok(())
    }
}
