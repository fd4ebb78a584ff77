//! `tidegate limits`: shows and changes limits.

use anyhow::Context as _;
use serde_json::{Value, json};
use tidegate::{Limit, Limiter, Scope, ScopeLimits};

use crate::{
    output::{Output, duration, table},
    scope::{self, ScopeOptions},
};

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Action {
    /// Shows what is configured in a scope itself
    Get {
        #[command(flatten)]
        scope: ScopeOptions,
    },
    /// Replaces the limits of a scope
    #[command(
        after_help = "Example: tidegate limits set --resource gpt-4 requests=600/minute tokens=60000/minute:90000"
    )]
    Set {
        #[command(flatten)]
        scope: ScopeOptions,
        /// NAME=TOKENS/PERIOD or NAME=TOKENS/PERIOD:BURST; PERIOD is second, minute, hour, day or seconds like 300s
        #[arg(required = true, value_name = "LIMIT")]
        limits: Vec<Limit>,
    },
    /// Deletes what is configured in a scope: a less specific scope applies then
    Delete {
        #[command(flatten)]
        scope: ScopeOptions,
    },
    /// Shows what is configured in all scopes
    List,
}

impl Action {
    pub async fn run(self, limiter: &Limiter) -> anyhow::Result<Output> {
        let limits = limiter.limits();
        match self {
            Self::Get { scope } => {
                let scope = scope.scope();
                let configured = limits.get(scope.clone()).await?;
                let configured = configured.with_context(|| nothing(&scope))?;
                Ok(Output::new(shown(std::slice::from_ref(&configured)), json_of(&configured)))
            }
            Self::Set { scope, limits: new } => {
                let scope = scope.scope();
                let reached = limits.set(scope.clone(), new.clone()).await?;
                let text: Vec<_> = new.iter().map(ToString::to_string).collect();
                let note = match scope.entity_id() {
                    Some(_) => scope::reached(reached),
                    None => "existing buckets follow when they are refilled, or expire".to_owned(),
                };
                let text = format!("{scope} has the limits {}: {note}", text.join(" "));
                Ok(Output::new(text, json!({"written": reached.written, "left": reached.left})))
            }
            Self::Delete { scope } => {
                let scope = scope.scope();
                let reached = limits.delete(scope.clone()).await?;
                let reached = reached.with_context(|| nothing(&scope))?;
                let text = format!("{scope} has no limits of its own any more: {}", scope::reached(reached));
                Ok(Output::new(text, json!({"written": reached.written, "left": reached.left})))
            }
            Self::List => {
                let listed = limits.list().await?;
                if listed.is_empty() {
                    return Ok(Output::new("no limits are configured", json!([])));
                }
                Ok(Output::new(shown(&listed), listed.iter().map(json_of).collect()))
            }
        }
    }
}

fn nothing(scope: &Scope) -> String {
    format!("nothing is configured for {scope} itself: `tidegate limits list` shows which scopes have limits")
}

fn shown(configured: &[ScopeLimits]) -> String {
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for ScopeLimits { scope, limits, is_disabled, unsupported, .. } in configured {
        let names = [scope.entity_id(), scope.resource_name()].map(|name| name.unwrap_or("(all)").to_owned());
        let disabled = match is_disabled {
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        let mut row = |cells: [String; 4]| {
            rows.push(names.iter().cloned().chain(cells).chain([disabled.to_owned()]).collect());
        };
        for limit in limits {
            let [tokens, burst] = [limit.refill(), limit.capacity()].map(|tokens| tokens.to_string());
            row([limit.name().to_owned(), tokens, duration(limit.period()), burst]);
        }
        if limits.is_empty() {
            row([const { String::new() }; 4]);
        }
        if let Some(attribute) = unsupported {
            notes.push(format!("\n{scope} also has {attribute:?}, which only zae-limiter supports"));
        }
    }
    let columns = ["entity", "resource", "limit", "tokens", "per", "burst", "disabled"];
    format!("{}{}", table(columns, rows, 3..6), notes.concat())
}

fn json_of(configured: &ScopeLimits) -> Value {
    let ScopeLimits { scope, limits, is_disabled, unsupported, .. } = configured;
    let limits: Value = limits
        .iter()
        .map(|limit| {
            json!({
                "name": limit.name(), "tokens": limit.refill(), "period_seconds": limit.period().as_secs(),
                "burst": limit.capacity(),
            })
        })
        .collect();
    let mut json = scope::json_of(scope);
    json["limits"] = limits;
    json["disabled"] = json!(is_disabled);
    json["unsupported"] = json!(unsupported);
    json
}
