//! The token tables, for the embedded services and for tests.

use aws_sdk_dynamodb::{
    Client,
    error::BuildError,
    types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
        ScalarAttributeType,
    },
};

use super::{CreateError, expire_by, key_schema};
use crate::schema::tokens::{
    self, ACCOUNT_ID, EXPIRATION_TIME, FUNGIBLE, LIMITS, NON_FUNGIBLE, RESERVATION_ID, RESOURCE_COORDINATE,
    RESOURCE_ID, RESOURCE_INDEX, RESOURCE_NAME, SERVICE_NAME,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenTables {
    /// The table of non-fungible tokens.
    pub non_fungible: String,
    pub resource_index: String,
    /// The table of fungible tokens.
    pub fungible: String,
    pub limits: String,
    pub service_index: String,
}

impl TokenTables {
    /// The names that the clients make of a base name.
    pub fn of(base: &str) -> Self {
        Self {
            non_fungible: tokens::name(base, NON_FUNGIBLE),
            resource_index: tokens::name(base, RESOURCE_INDEX),
            fungible: tokens::name(base, FUNGIBLE),
            limits: tokens::name(base, LIMITS),
            service_index: tokens::name(base, tokens::SERVICE_INDEX),
        }
    }
}

/// Creates the token tables, with their indexes and their TTL.
pub async fn create(client: &Client, names: &TokenTables) -> Result<(), CreateError> {
    let TokenTables { non_fungible, resource_index, fungible, limits, service_index } = names;
    create_one(client, non_fungible, [RESOURCE_COORDINATE, RESERVATION_ID], Some((resource_index, RESOURCE_ID)))
        .await?;
    expire_by(client, non_fungible, EXPIRATION_TIME).await?;
    create_one(client, fungible, [RESOURCE_NAME, ACCOUNT_ID], None).await?;
    create_one(client, limits, [RESOURCE_NAME, ACCOUNT_ID], Some((service_index, SERVICE_NAME))).await
}

/// Creates a table with these keys, and an index with a key of its own.
async fn create_one(
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
