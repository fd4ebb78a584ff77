//! Namespaces: a name leads to the id under which one set of clients keeps its items.

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use tidegate_domain::{bucket::Namespace, time::EpochMillis};

use crate::{
    dynamodb::{Item, WriteOutcome},
    error::StoreError,
    expression::text,
    image::describe,
    schema::{self, PK, SK, system},
    transaction::Transaction,
};

/// How often a namespace is looked for while others register it.
const ATTEMPTS: u32 = 3;

/// The namespaces of a table.
#[derive(Clone, Debug)]
pub struct Namespaces {
    client: Client,
    table: String,
}

impl Namespaces {
    /// The namespaces of `table`.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into() }
    }

    /// Returns the id of a namespace; `None` if no namespace has the name, or it was deleted.
    pub async fn find(&self, name: &str) -> Result<Option<Namespace<'static>>, StoreError> {
        let request = self.client.get_item().table_name(&self.table).set_key(Some(key(&schema::namespace_sk(name))));
        let output = request.send().await.map_err(|error| StoreError::from_sdk("GetItem", error))?;
        let Some(item) = output.item else { return Ok(None) };
        let status = item.get(system::STATUS).and_then(|status| status.as_s().ok());
        if status.is_some_and(|status| status != system::ACTIVE) {
            return Ok(None);
        }
        let id = item.get(system::ID).and_then(|id| id.as_s().ok());
        match id.map(|id| Namespace::new(id.clone())) {
            Some(Ok(id)) => Ok(Some(id)),
            _ => Err(StoreError::Corrupt {
                item: describe(&item),
                attribute: system::ID.to_owned(),
                value: format!("{:?}", item.get(system::ID)),
            }),
        }
    }

    /// Returns the id of a namespace, and registers the name if it has none.
    pub async fn register(&self, name: &str, now: EpochMillis) -> Result<Namespace<'static>, StoreError> {
        for _ in 0..ATTEMPTS {
            if let Some(id) = self.find(name).await? {
                return Ok(id);
            }
            let id = new_id();
            let mut transaction = Transaction::new(&self.table);
            for sk in [schema::namespace_sk(name), schema::namespace_id_sk(&id)] {
                let mut item = key(&sk);
                for (attribute, value) in [
                    (system::ID, id.as_str().to_owned()),
                    (system::NAME, name.to_owned()),
                    (system::STATUS, system::ACTIVE.to_owned()),
                    (system::CREATED_AT, now.rfc3339()),
                    (schema::GSI4PK, system::NO_NAMESPACE.to_owned()),
                    (schema::GSI4SK, system::PARTITION.to_owned()),
                ] {
                    item.insert(attribute.to_owned(), text(value));
                }
                transaction.put_new(item)?;
            }
            if transaction.send(&self.client).await? == WriteOutcome::Written {
                return Ok(id);
            }
        }
        // The name exists with another status: it was deleted.
        Err(StoreError::Unexplained { item: format!("{} {}", system::PARTITION, schema::namespace_sk(name)) })
    }
}

fn key(sk: &str) -> Item {
    let text = |value: &str| AttributeValue::S(value.to_owned());
    [(PK.to_owned(), text(system::PARTITION)), (SK.to_owned(), text(sk))].into()
}

/// A random id, as clients make them: eleven characters that may stand in a URL, the first not a hyphen.
fn new_id() -> Namespace<'static> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    loop {
        let id: String = (0..11).map(|_| char::from(ALPHABET[fastrand::usize(..ALPHABET.len())])).collect();
        if let Some(id) = Namespace::new(id).ok().filter(|id| !id.as_str().starts_with('-')) {
            return id;
        }
    }
}
