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
    INDEXES, Index, IndexScope, PK, SK, TTL,
    tokens::{
        self, ACCOUNT_ID, EXPIRATION_TIME, FUNGIBLE, LIMITS, NON_FUNGIBLE, RESERVATION_ID, RESOURCE_COORDINATE,
        RESOURCE_ID, RESOURCE_INDEX, RESOURCE_NAME, SERVICE_INDEX, SERVICE_NAME,
    },
};

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

/// The names of the token tables and of their indexes.
///
/// ```
/// use tidegate_aws::table::TokenTables;
///
/// assert_eq!(TokenTables::of("prod").limits, "prod-limits");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenTables {
    /// The table of non-fungible tokens.
    pub non_fungible: String,
    /// Its index by the resource that holds a token.
    pub resource_index: String,
    /// The table of fungible tokens.
    pub fungible: String,
    /// The table of limits.
    pub limits: String,
    /// Its index by service.
    pub service_index: String,
}

/// A table whose name is not in the environment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected the name of a table in the variable {variable}, or the tables' base name in {BASE_NAME}")]
pub struct MissingName {
    /// The variable of the table's own name.
    pub variable: &'static str,
}

/// The variable of the tables' base name.
const BASE_NAME: &str = "LIMITER_TABLES_BASE_NAME";
/// The variables of the table of limits and of its index, with the suffixes of the derived names.
const LIMIT_TABLE: (&str, &str) = ("LIMIT_TABLE", LIMITS);
const LIMIT_SERVICE_INDEX: (&str, &str) = ("LIMIT_SERVICE_INDEX", SERVICE_INDEX);

impl TokenTables {
    /// Returns the names that rate-limiter-py finds in the environment: each by a variable of its own (`FUNGIBLE_TABLE`,
    /// `NON_FUNGIBLE_TABLE`, `LIMIT_TABLE`, `NON_FUNGIBLE_RES_INDEX`, `LIMIT_SERVICE_INDEX`), or derived from
    /// `LIMITER_TABLES_BASE_NAME`. An empty variable counts as not set.
    ///
    /// The limits and one of the token tables are required. Other names that cannot be found are empty.
    ///
    /// # Errors
    /// [`MissingName`] if a required name cannot be found.
    pub fn from_env() -> Result<Self, MissingName> {
        Self::read(|variable| std::env::var(variable).ok())
    }

    /// Returns the name of the table of limits alone, as [`from_env`](Self::from_env) does.
    ///
    /// # Errors
    /// [`MissingName`] if the name cannot be found.
    pub fn limits_from_env() -> Result<String, MissingName> {
        Self::named(LIMIT_TABLE, |variable| std::env::var(variable).ok())
    }

    /// Returns the name of the index by service alone, as [`from_env`](Self::from_env) does.
    ///
    /// # Errors
    /// [`MissingName`] if the name cannot be found.
    pub fn service_index_from_env() -> Result<String, MissingName> {
        Self::named(LIMIT_SERVICE_INDEX, |variable| std::env::var(variable).ok())
    }

    fn read(lookup: impl Fn(&str) -> Option<String> + Copy) -> Result<Self, MissingName> {
        let non_fungible = Self::named(("NON_FUNGIBLE_TABLE", NON_FUNGIBLE), lookup);
        let fungible = Self::named(("FUNGIBLE_TABLE", FUNGIBLE), lookup);
        if let (Err(missing), Err(_)) = (&non_fungible, &fungible) {
            return Err(missing.clone());
        }
        Ok(Self {
            non_fungible: non_fungible.unwrap_or_default(),
            resource_index: Self::named(("NON_FUNGIBLE_RES_INDEX", RESOURCE_INDEX), lookup).unwrap_or_default(),
            fungible: fungible.unwrap_or_default(),
            limits: Self::named(LIMIT_TABLE, lookup)?,
            service_index: Self::named(LIMIT_SERVICE_INDEX, lookup).unwrap_or_default(),
        })
    }

    /// The name by a variable, or derived from the base name by a suffix.
    fn named(
        (variable, suffix): (&'static str, &str),
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<String, MissingName> {
        let set = |variable| lookup(variable).filter(|name| !name.is_empty());
        let derived = || set(BASE_NAME).map(|base| tokens::name(&base, suffix));
        set(variable).or_else(derived).ok_or(MissingName { variable })
    }

    /// Returns the names that the clients derive from a base name.
    #[must_use]
    pub fn of(base: &str) -> Self {
        Self {
            non_fungible: tokens::name(base, NON_FUNGIBLE),
            resource_index: tokens::name(base, RESOURCE_INDEX),
            fungible: tokens::name(base, FUNGIBLE),
            limits: tokens::name(base, LIMITS),
            service_index: tokens::name(base, SERVICE_INDEX),
        }
    }
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
    create_token_table(
        client,
        non_fungible,
        [RESOURCE_COORDINATE, RESERVATION_ID],
        Some((resource_index, RESOURCE_ID)),
    )
    .await?;
    expire_by(client, non_fungible, EXPIRATION_TIME).await?;
    create_token_table(client, fungible, [RESOURCE_NAME, ACCOUNT_ID], None).await?;
    create_token_table(client, limits, [RESOURCE_NAME, ACCOUNT_ID], Some((service_index, SERVICE_NAME))).await
}

/// Creates a table with these keys, and an index with a key of its own.
async fn create_token_table(
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<TokenTables, MissingName> {
        TokenTables::read(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn names_come_from_the_clients_variables() {
        assert_eq!(read(&[(BASE_NAME, "prod-")]), Ok(TokenTables::of("prod")));
        let tables = read(&[(BASE_NAME, "prod"), ("LIMIT_TABLE", "limits"), ("FUNGIBLE_TABLE", "")]).unwrap();
        assert_eq!(tables, TokenTables { limits: "limits".to_owned(), ..TokenTables::of("prod") });
        let tables = read(&[("NON_FUNGIBLE_TABLE", "tokens"), ("LIMIT_TABLE", "limits")]).unwrap();
        assert_eq!((tables.non_fungible.as_str(), tables.fungible.as_str()), ("tokens", ""));
        let message = |variables| read(variables).unwrap_err().to_string();
        assert!(message(&[("NON_FUNGIBLE_TABLE", "tokens")]).contains("LIMIT_TABLE"));
        assert!(message(&[("LIMIT_TABLE", "limits")]).contains("NON_FUNGIBLE_TABLE"));
        assert!(message(&[]).contains(BASE_NAME));
    }
}
