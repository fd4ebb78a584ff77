//! Reads of many items at once.

use aws_sdk_dynamodb::{Client, types::KeysAndAttributes};

use crate::{buckets::Item, error::StoreError, transaction::Backoff};

/// Reads the items with these keys, at most 100, in any order; missing items are left out.
///
/// AWS: [BatchGetItem](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html).
pub(crate) async fn batch_get(
    client: &Client,
    table: &str,
    mut keys: Vec<Item>,
    is_consistent: bool,
) -> Result<Vec<Item>, StoreError> {
    let mut items = Vec::new();
    let mut backoff = Backoff::default();
    loop {
        let request = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(is_consistent).build();
        let request =
            request.map_err(|source| StoreError::Refused { operation: "BatchGetItem", source: source.into() })?;
        let sent = client.batch_get_item().request_items(table, request).send().await;
        let output = sent.map_err(|error| StoreError::from_sdk("BatchGetItem", error))?;
        items.extend(output.responses.into_iter().flatten().flat_map(|(_, items)| items));
        let unread = output.unprocessed_keys.and_then(|mut keys| keys.remove(table));
        keys = unread.map(|unread| unread.keys).unwrap_or_default();
        if keys.is_empty() {
            return Ok(items);
        }
        // The partition is busy. A response has at least one item, or is throttled as a whole, which the SDK retries.
        backoff.wait().await;
    }
}
