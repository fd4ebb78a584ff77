//! `tidegate namespace`: registers namespaces.

use serde_json::json;
use tidegate_aws::namespaces::Namespaces;

use crate::{
    connection::{Connection, now},
    output::Output,
};

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Action {
    /// Registers a namespace, unless it is registered already
    Register { name: String },
}

impl Action {
    pub async fn run(self, connection: &Connection) -> anyhow::Result<Output> {
        let Self::Register { name } = self;
        let namespaces = Namespaces::new(connection.dynamodb(&connection.sdk().await), &connection.table);
        let id = namespaces.register(&name, now()?).await?;
        let text = format!("namespace {name:?} is registered: its keys begin with \"{id}/\"");
        Ok(Output::new(text, json!({"name": name, "id": id.as_str()})))
    }
}
