//! The error of a call to one of the token tables.

use std::{error::Error, fmt, sync::Arc};

use tidegate_aws::error::{StoreError, causes};

/// A call to one of the token tables that failed.
#[derive(Clone, Debug)]
pub struct TableError {
    table: String,
    source: Arc<StoreError>,
}

impl TableError {
    pub(crate) fn new(table: &str, source: StoreError) -> Self {
        Self { table: table.to_owned(), source: Arc::new(source) }
    }

    /// Returns the name of the table.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Returns whether the same call may succeed later. Otherwise the table holds a malformed item, or the request is
    /// impossible.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.source.is_retryable()
    }

    /// Returns the error behind it.
    #[must_use]
    pub fn get_ref(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.source
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {:?}: {}", self.table, causes(&*self.source))
    }
}

// Its text names all causes.
impl Error for TableError {}
