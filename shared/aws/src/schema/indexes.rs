//! The secondary indexes of the table.

use super::{GSI1PK, GSI1SK, GSI2PK, GSI2SK, GSI3PK, GSI3SK, GSI4PK, GSI4SK, PK};

/// The table's secondary indexes. No item of ours sets a key of GSI1 or of the local ones, and only
/// bucket items one of GSI3.
pub(crate) const INDEXES: [Index; 9] = [
    Index::global("GSI1", GSI1PK, GSI1SK, false),
    Index::global("GSI2", GSI2PK, GSI2SK, false),
    Index::global("GSI3", GSI3PK, GSI3SK, true),
    Index::global("GSI4", GSI4PK, GSI4SK, true),
    Index::local("LSI1", "LSI1SK", false),
    Index::local("LSI2", "LSI2SK", true),
    Index::local("LSI3", "LSI3SK", false),
    Index::local("LSI4", "LSI4SK", true),
    Index::local("LSI5", "LSI5SK", false),
];

/// A secondary index of the bucket table.
pub(crate) struct Index {
    pub(crate) name: &'static str,
    pub(crate) scope: IndexScope,
    pub(crate) pk: &'static str,
    pub(crate) sk: &'static str,
    pub(crate) keys_only: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexScope {
    Global,
    Local,
}

impl Index {
    /// The key attributes that the table itself does not have.
    pub(crate) fn own_keys(&self) -> impl Iterator<Item = &'static str> {
        [self.pk, self.sk].into_iter().filter(|key| *key != PK)
    }

    const fn global(name: &'static str, pk: &'static str, sk: &'static str, keys_only: bool) -> Self {
        Self { name, scope: IndexScope::Global, pk, sk, keys_only }
    }

    const fn local(name: &'static str, sk: &'static str, keys_only: bool) -> Self {
        Self { name, scope: IndexScope::Local, pk: PK, sk, keys_only }
    }
}
