//! DynamoDB and DynamoDB Streams in this process: dynoxide, in memory, behind its own HTTP server.

use std::{
    fmt,
    future::pending,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, Result};
use dynoxide::{Database, server};
use rusqlite::Connection;

use crate::loopback::{Loopback, LoopbackServer};

/// Without this index, dynoxide looks for the next sequence number among all stream records ever
/// written: every write gets slower with every record, 20 times at 30,000.
const STREAM_INDEX: &str = "CREATE INDEX stream_seq ON _stream_records(table_name, CAST(sequence_number AS INTEGER))";

/// Counts the databases of this process, so that each has its own name.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// An empty DynamoDB in memory, served on loopback until it is dropped.
///
/// It differs from AWS in ways that matter here: a table's stream has one shard; an update that
/// changes nothing emits a record; items expire only in [`sweep_ttl`](Self::sweep_ttl); a deleted
/// table's records remain, so a table's name should not be used twice.
pub struct EmbeddedDynamoDb {
    endpoint: String,
    database: Database,
    _server: LoopbackServer,
}

impl EmbeddedDynamoDb {
    /// Starts on this port of 127.0.0.1, or on a free one. The server runs on the caller's runtime.
    pub async fn start(port: Option<u16>) -> Result<Self> {
        let (database, _) = open().context("the embedded DynamoDB's database cannot be opened")?;
        let loopback = Loopback::bind("the embedded DynamoDB", port).await?;
        let endpoint = loopback.endpoint();
        let shared = database.clone();
        let server = loopback.serve_by(async |listener| {
            // Ends with the task.
            drop(server::serve_with_shutdown(listener, shared, pending()).await);
        });
        Ok(Self { endpoint, database, _server: server })
    }

    /// Where clients of DynamoDB and of DynamoDB Streams find it, like `http://127.0.0.1:40123`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Deletes expired items; AWS does this within days. Their records are REMOVE, with DynamoDB as the user identity.
    /// Returns the number of items.
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
mod tests {
    use std::{collections::HashMap, net::Ipv4Addr};

    use aws_config::SdkConfig;
    use aws_sdk_dynamodb::{Client, types::AttributeValue};
    use aws_sdk_dynamodbstreams::types::{OperationType, Record, ShardIteratorType};
    use tidegate_aws::{client, schema, table};
    use tokio::{net::TcpStream, task};

    use super::*;
    use crate::faults::{FaultRates, FaultyHttp, sdk_config};

    fn config(embedded: &EmbeddedDynamoDb) -> SdkConfig {
        sdk_config(embedded.endpoint(), FaultyHttp::new(FaultRates::default(), 0))
    }

    async fn with_table(name: &str) -> (EmbeddedDynamoDb, Client) {
        let embedded = EmbeddedDynamoDb::start(None).await.unwrap();
        let client = client::dynamodb(&config(&embedded));
        table::create(&client, name).await.unwrap();
        (embedded, client)
    }

    fn item(key: &str) -> HashMap<String, AttributeValue> {
        [schema::PK, schema::SK].map(|name| (name.to_owned(), AttributeValue::S(key.to_owned()))).into()
    }

    /// The first records of the table's stream.
    async fn stream_records(embedded: &EmbeddedDynamoDb, name: &str) -> Vec<Record> {
        let streams = aws_sdk_dynamodbstreams::Client::new(&config(embedded));
        let stream = streams.list_streams().table_name(name).send().await.unwrap().streams.unwrap().remove(0);
        let described = streams.describe_stream().set_stream_arn(stream.stream_arn.clone()).send().await.unwrap();
        let [shard] = described.stream_description.unwrap().shards.unwrap().try_into().unwrap();
        let iterator = streams
            .get_shard_iterator()
            .set_stream_arn(stream.stream_arn)
            .set_shard_id(shard.shard_id)
            .shard_iterator_type(ShardIteratorType::TrimHorizon)
            .send()
            .await
            .unwrap();
        streams.get_records().set_shard_iterator(iterator.shard_iterator).send().await.unwrap().records.unwrap()
    }

    #[tokio::test]
    async fn expired_items_are_swept_by_the_service() {
        const TABLE: &str = "swept-buckets";
        let (embedded, client) = with_table(TABLE).await;
        for (key, expires) in [("expired", "1"), ("lasting", "99999999999")] {
            let put = client.put_item().table_name(TABLE).set_item(Some(item(key)));
            put.item(schema::TTL, AttributeValue::N(expires.to_owned())).send().await.unwrap();
        }
        assert_eq!(embedded.sweep_ttl().unwrap(), 1);

        let left = client.scan().table_name(TABLE).send().await.unwrap().items.unwrap();
        assert_eq!(left.iter().map(|item| item[schema::PK].as_s().unwrap().as_str()).collect::<Vec<_>>(), ["lasting"]);
        let mut records = stream_records(&embedded, TABLE).await;
        assert_eq!(records.len(), 3);
        let removed = records.pop().unwrap();
        assert_eq!(removed.event_name, Some(OperationType::Remove));
        // The SDK cannot read the identity's fields, because the service spells them as Lambda's events do.
        assert!(removed.user_identity.is_some());
    }

    #[tokio::test]
    async fn two_databases_share_nothing() {
        let (_first, first) = with_table("only-in-the-first").await;
        let (_second, second) = with_table("only-in-the-second").await;
        assert_eq!(first.list_tables().send().await.unwrap().table_names(), ["only-in-the-first"]);
        assert_eq!(second.list_tables().send().await.unwrap().table_names(), ["only-in-the-second"]);
    }

    #[tokio::test]
    async fn a_port_can_be_chosen_and_taken_once() {
        let first = EmbeddedDynamoDb::start(None).await.unwrap();
        let port = first.endpoint().rsplit_once(':').unwrap().1.parse().unwrap();
        let error = EmbeddedDynamoDb::start(Some(port)).await.err().unwrap();
        assert!(error.to_string().contains(&port.to_string()), "{error}");

        drop(first);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok() {
            task::yield_now().await;
        }
        let again = EmbeddedDynamoDb::start(Some(port)).await.unwrap();
        assert_eq!(again.endpoint(), format!("http://127.0.0.1:{port}"));
    }

    /// The queries are dynoxide's own; a new version with others would make every write slow.
    #[test]
    fn sequence_numbers_are_found_by_the_index() {
        let (_database, uri) = open().unwrap();
        let connection = Connection::open(uri).unwrap();
        let plan = |query: &str| -> String {
            connection.query_row(&format!("EXPLAIN QUERY PLAN {query}"), [], |row| row.get("detail")).unwrap()
        };
        let number = "CAST(sequence_number AS INTEGER)";
        let next = format!("SELECT COALESCE(MAX({number}), 0) + 1 FROM _stream_records WHERE table_name = 'a'");
        let page = format!(
            "SELECT new_image FROM _stream_records WHERE table_name = 'a' AND shard_id = 'b' AND {number} > 7 \
             ORDER BY {number} LIMIT 1000"
        );
        for query in [next, page] {
            assert!(plan(&query).contains("INDEX stream_seq"), "{}", plan(&query));
        }
    }
}
