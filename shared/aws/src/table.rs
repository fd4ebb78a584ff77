//! Creates the bucket table and the token tables, for the embedded services and for tests. In an account,
//! `template.yaml` or the clients' own stacks create them.

use std::time::Duration;

use aws_sdk_dynamodb::{
    Client,
    client::Waiters as _,
    error::{BuildError, SdkError},
    operation::{create_table::CreateTableError, update_time_to_live::UpdateTimeToLiveError},
    types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, LocalSecondaryIndex,
        Projection, ProjectionType, ScalarAttributeType, StreamSpecification, StreamViewType, TimeToLiveSpecification,
    },
    waiters::table_exists::WaitUntilTableExistsError,
};

use crate::error::StoreError;
use crate::schema::{
    INDEXES, Index, IndexScope, PK, SK, TTL, capacity,
    tokens::{
        ACCOUNT_ID, EXPIRATION_TIME, RESERVATION_ID, RESOURCE_COORDINATE, RESOURCE_ID, RESOURCE_NAME, SERVICE_NAME,
    },
};
use crate::token_tables::TokenTables;

/// Why a table could not be created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("the description of the table is incomplete")]
    Description(#[from] BuildError),
    #[error("the table could not be created")]
    Table(#[from] SdkError<CreateTableError>),
    #[error("the table did not become active")]
    Inactive(#[from] Box<WaitUntilTableExistsError>),
    #[error("time to live could not be enabled on the table")]
    TimeToLive(#[from] SdkError<UpdateTimeToLiveError>),
}

/// How long the creation of a table may take.
const LONGEST_CREATION: Duration = Duration::from_mins(5);

/// Whether this can be a table: a name, or an ARN.
///
/// AWS: [naming rules](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html).
pub fn is_name(text: &str) -> bool {
    let name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    text.starts_with("arn:") || ((3..=255).contains(&text.len()) && text.bytes().all(name))
}

/// Creates the bucket table, with its indexes, its stream of new and old images, and its TTL.
pub async fn create(client: &Client, name: &str) -> Result<(), CreateError> {
    let attributes = [PK, SK].into_iter().chain(INDEXES.iter().flat_map(Index::own_keys));
    let mut table = client
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .stream_specification(
            StreamSpecification::builder()
                .stream_enabled(true)
                .stream_view_type(StreamViewType::NewAndOldImages)
                .build()?,
        )
        .set_key_schema(Some(key_schema(PK, SK)?));
    for attribute in attributes {
        table = table.attribute_definitions(string(attribute)?);
    }
    for index in &INDEXES {
        table = match index.scope {
            IndexScope::Global => table.global_secondary_indexes(
                GlobalSecondaryIndex::builder()
                    .index_name(index.name)
                    .set_key_schema(Some(key_schema(index.pk, index.sk)?))
                    .projection(projection(index))
                    .build()?,
            ),
            IndexScope::Local => table.local_secondary_indexes(
                LocalSecondaryIndex::builder()
                    .index_name(index.name)
                    .set_key_schema(Some(key_schema(index.pk, index.sk)?))
                    .projection(projection(index))
                    .build()?,
            ),
        };
    }
    table.send().await?;
    // Time to live can be enabled on an active table only.
    client.wait_until_table_exists().table_name(name).wait(LONGEST_CREATION).await.map_err(Box::new)?;
    expire_by(client, name, TTL).await
}

/// Creates the bucket table unless it exists, and waits until it can be used.
pub async fn ensure(client: &Client, name: &str) -> Result<(), StoreError> {
    let exists = |error: &SdkError<CreateTableError>| {
        error.as_service_error().is_some_and(CreateTableError::is_resource_in_use_exception)
    };
    let ensured = match create(client, name).await {
        Err(CreateError::Table(error)) if exists(&error) => {
            let waited = client.wait_until_table_exists().table_name(name).wait(LONGEST_CREATION).await;
            // The creation may have failed before this. If time to live is enabled already, this fails.
            drop(expire_by(client, name, TTL).await);
            waited.map(drop).map_err(|error| CreateError::Inactive(Box::new(error)))
        }
        created => created,
    };
    ensured.map_err(|error| match error {
        CreateError::Table(error) => StoreError::from_sdk("CreateTable", error),
        CreateError::TimeToLive(error) => StoreError::from_sdk("UpdateTimeToLive", error),
        CreateError::Description(_) | CreateError::Inactive(_) => {
            StoreError::Unavailable { operation: "CreateTable", source: Box::new(error) }
        }
    })
}

/// Creates the token tables, with their indexes and their TTL.
pub async fn create_token_tables(client: &Client, names: &TokenTables) -> Result<(), CreateError> {
    let TokenTables { non_fungible, resource_index, fungible, limits, service_index } = names;
    create_keyed_table(
        client,
        non_fungible,
        [RESOURCE_COORDINATE, RESERVATION_ID],
        Some((resource_index, RESOURCE_ID)),
    )
    .await?;
    expire_by(client, non_fungible, EXPIRATION_TIME).await?;
    create_keyed_table(client, fungible, [RESOURCE_NAME, ACCOUNT_ID], None).await?;
    create_keyed_table(client, limits, [RESOURCE_NAME, ACCOUNT_ID], Some((service_index, SERVICE_NAME))).await
}

/// Creates the table of `capacity-coordinator`.
pub async fn create_announcements(client: &Client, name: &str) -> Result<(), CreateError> {
    create_keyed_table(client, name, [capacity::KIND, capacity::ID], None).await?;
    expire_by(client, name, capacity::TTL).await
}

/// Creates a table with these keys, and an index with a key of its own.
async fn create_keyed_table(
    client: &Client,
    name: &str,
    [pk, sk]: [&str; 2],
    index: Option<(&str, &str)>,
) -> Result<(), CreateError> {
    let mut table = client
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .set_key_schema(Some(key_schema(pk, sk)?))
        .attribute_definitions(string(pk)?)
        .attribute_definitions(string(sk)?);
    if let Some((index, key)) = index {
        table = table.attribute_definitions(string(key)?).global_secondary_indexes(
            GlobalSecondaryIndex::builder()
                .index_name(index)
                .key_schema(KeySchemaElement::builder().attribute_name(key).key_type(KeyType::Hash).build()?)
                .projection(Projection::builder().projection_type(ProjectionType::All).build())
                .build()?,
        );
    }
    table.send().await?;
    Ok(())
}

fn string(attribute: &str) -> Result<AttributeDefinition, BuildError> {
    AttributeDefinition::builder().attribute_name(attribute).attribute_type(ScalarAttributeType::S).build()
}

async fn expire_by(client: &Client, table: &str, attribute: &str) -> Result<(), CreateError> {
    let time_to_live = TimeToLiveSpecification::builder().enabled(true).attribute_name(attribute).build()?;
    client.update_time_to_live().table_name(table).time_to_live_specification(time_to_live).send().await?;
    Ok(())
}

fn key_schema(pk: &str, sk: &str) -> Result<Vec<KeySchemaElement>, BuildError> {
    [(pk, KeyType::Hash), (sk, KeyType::Range)]
        .into_iter()
        .map(|(name, kind)| KeySchemaElement::builder().attribute_name(name).key_type(kind).build())
        .collect()
}

fn projection(index: &Index) -> Projection {
    let kind = if index.keys_only { ProjectionType::KeysOnly } else { ProjectionType::All };
    Projection::builder().projection_type(kind).build()
}
