//! `tidegate disable`, `enable` and `inherit`: whether callers are refused.

use serde_json::json;
use tidegate::Limiter;

use crate::{
    output::Output,
    scope::{self, scope},
};

#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub struct Options {
    /// The entity; without --resource, on all resources
    #[arg(long, value_name = "ID")]
    entity: Option<String>,
    /// The resource; without --entity, for all entities
    #[arg(long, value_name = "NAME")]
    resource: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    Disable,
    Enable,
    Inherit,
}

impl Options {
    pub async fn run(self, limiter: &Limiter, switch: Switch) -> anyhow::Result<Output> {
        let scope = scope(self.entity.as_deref(), self.resource.as_deref());
        let (reached, is) = match switch {
            Switch::Disable => (limiter.disable(scope.clone()).await?, "is disabled"),
            Switch::Enable => (limiter.enable(scope.clone()).await?, "is enabled"),
            Switch::Inherit => (limiter.clear_disabled(scope.clone()).await?, "follows less specific scopes"),
        };
        let text = format!("{scope} {is}: {}", scope::reached(reached));
        Ok(Output::new(text, json!({"written": reached.written, "left": reached.left})))
    }
}
