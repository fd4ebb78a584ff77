//! The bucket table itself, made by its schema: for the embedded services and for tests. In an
//! account, the client's own stack makes it. [`tokens`] makes the token tables.

pub mod tokens;

use aws_sdk_dynamodb::{
    Client,
    error::{BuildError, SdkError},
    operation::{create_table::CreateTableError, update_time_to_live::UpdateTimeToLiveError},
    types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, LocalSecondaryIndex,
        Projection, ProjectionType, ScalarAttributeType, StreamSpecification, StreamViewType, TimeToLiveSpecification,
    },
};

use crate::schema::{INDEXES, Index, IndexScope, PK, SK, TTL};

/// Why a table could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("the description of the table is incomplete")]
    Description(#[from] BuildError),
    #[error("the table could not be created")]
    Table(#[from] SdkError<CreateTableError>),
    #[error("time to live could not be enabled on the table")]
    TimeToLive(#[from] SdkError<UpdateTimeToLiveError>),
}

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
        table = table.attribute_definitions(
            AttributeDefinition::builder().attribute_name(attribute).attribute_type(ScalarAttributeType::S).build()?,
        );
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
    expire_by(client, name, TTL).await
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
