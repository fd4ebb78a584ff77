//! DynamoDB and DynamoDB Streams in this process: dynoxide, in memory, behind its own HTTP server.

use std::{
    convert::Infallible,
    fmt,
    net::Ipv4Addr,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, Result};
use dynoxide::{Database, server};
use rusqlite::Connection;
use tokio::{net::TcpListener, sync::oneshot, task};

/// Without this index, dynoxide looks for the next sequence number among all stream records ever
/// written: every write gets slower with every record, 20 times at 30,000.
const STREAM_INDEX: &str = "CREATE INDEX stream_seq ON _stream_records(table_name, CAST(sequence_number AS INTEGER))";

/// In-memory databases of one process are told apart by name.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// An empty DynamoDB in memory, served on loopback until it is dropped.
///
/// It differs from AWS in ways that matter here: a table's stream has one shard; an update that
/// changes nothing emits a record; items expire only in [`sweep_ttl`](Self::sweep_ttl); a deleted
/// table's records remain, so a table's name should not be used twice.
pub struct EmbeddedDynamoDb {
    endpoint: String,
    database: Database,
    /// The server stops when this is gone.
    _running: oneshot::Sender<Infallible>,
}

impl EmbeddedDynamoDb {
    /// Starts on this port of 127.0.0.1, or on a free one. The server runs on the caller's runtime.
    pub async fn start(port: Option<u16>) -> Result<Self> {
        let (database, _) = open().context("the embedded DynamoDB's database cannot be opened")?;
        let port = port.unwrap_or(0);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .with_context(|| format!("the embedded DynamoDB cannot listen on port {port} of 127.0.0.1"))?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let (running, dropped) = oneshot::channel();
        let stopped = async {
            // Nothing is ever sent: this ends when the sender is dropped.
            let _: Result<Infallible, _> = dropped.await;
        };
        task::spawn(server::serve_with_shutdown(listener, database.clone(), stopped));
        Ok(Self { endpoint, database, _running: running })
    }

    /// Where clients of DynamoDB and of DynamoDB Streams find it, like `http://127.0.0.1:40123`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Deletes the items that have expired by now, as AWS does within days: their stream records
    /// say REMOVE and name the service as the one who did it. Returns how many they were.
    pub fn sweep_ttl(&self) -> Result<usize> {
        self.database.sweep_ttl().context("the sweep of expired items failed")
    }
}

impl fmt::Debug for EmbeddedDynamoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedDynamoDb").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// A new database, and the URI by which this process can open it again.
fn open() -> Result<(Database, String)> {
    let started = STARTED.fetch_add(1, Ordering::Relaxed);
    // The cache is shared because the index must come through a connection of our own.
    let uri = format!("file:tidegate-{started}?mode=memory&cache=shared");
    let database = Database::new(&uri)?;
    Connection::open(&uri)?.execute_batch(STREAM_INDEX)?;
    Ok((database, uri))
}

#[cfg(test)]
mod tests;
