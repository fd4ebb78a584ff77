//! Letters: records to redrive, and where they come from.

use tidegate_domain::redrive::Origin;

use super::summary::Summary;

/// A message or an object with records to redrive.
#[derive(Clone, Debug)]
pub struct Letter {
    /// Its name for a person: a message's id, or an object's key.
    pub name: String,
    /// The records, as JSON text; or why they cannot be redriven.
    pub records: Result<Vec<String>, String>,
    /// Where they were found.
    pub origin: Origin,
    /// The only snapshot that they are missing from, as `PK SK`; all of them if there is none.
    pub snapshot: Option<String>,
}

/// The names of a round's letters, with the reasons for which each must stay, if any.
pub(super) type Settled = Vec<(String, Vec<String>)>;

/// Where letters come from.
#[expect(async_fn_in_trait, reason = "only this crate implements and calls it")]
pub trait Source {
    /// Takes letters for one round, each letter once; none if all were taken.
    async fn take(&mut self) -> anyhow::Result<Vec<Letter>>;

    /// Deletes the letters that are settled, unless it is a dry run, and keeps the others.
    async fn finish(&mut self, settled: Settled, dry_run: bool, summary: &mut Summary);

    /// Makes what was taken and stays visible to others again.
    async fn make_visible(&mut self, summary: &mut Summary);
}
