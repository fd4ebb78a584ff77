//! The names of the token tables, as rate-limiter-py finds them.

use crate::schema::tokens::{self, FUNGIBLE, LIMITS, NON_FUNGIBLE, RESOURCE_INDEX, SERVICE_INDEX};

/// The names of the token tables and of their indexes.
///
/// ```
/// use tidegate_aws::token_tables::TokenTables;
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

/// The environment does not name a table or an index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected the name of a table or an index in the variable {variable}, or the tables' base name in {BASE_NAME}")]
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
