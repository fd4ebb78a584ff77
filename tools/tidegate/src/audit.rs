//! `tidegate audit`: shows what operators have changed.

use std::{collections::BTreeMap, time::Duration};

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Value, json};
use tidegate::{AuditEvent, Limit, Limiter};

use crate::{
    output::{Output, table},
    scope::ScopeOptions,
};

#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    scope: ScopeOptions,
}

impl Options {
    pub async fn run(self, limiter: &Limiter) -> anyhow::Result<Output> {
        let scope = self.scope.scope();
        let mut events = limiter.audit_events(scope.clone()).await?;
        // The events about an entity are filed together, whatever the resource.
        if scope.entity_id().is_some() && scope.resource_name().is_some() {
            events.retain(|event| event.resource.as_deref() == scope.resource_name());
        }
        let json = events.iter().map(json_of).collect();
        if events.is_empty() {
            return Ok(Output::new(format!("no changes of {scope} are recorded"), json));
        }
        let rows = events.iter().map(|event| {
            let AuditEvent { timestamp, action, principal, resource, details, .. } = event;
            let [resource, principal] = [resource, principal].map(|text| text.clone().unwrap_or_default());
            // In the order of their names.
            let details: BTreeMap<_, _> = details.iter().collect();
            let details: Vec<_> =
                details.into_iter().map(|(name, value)| format!("{name}: {}", shown(&value_of(value)))).collect();
            vec![timestamp.clone(), action.clone(), resource, principal, details.join("\n")]
        });
        let columns = ["time", "action", "resource", "principal", "details"];
        Ok(Output::new(table(columns, rows.collect(), 0..0), json))
    }
}

fn json_of(event: &AuditEvent) -> Value {
    let AuditEvent { id, timestamp, action, principal, resource, details, .. } = event;
    let details: Value = details.iter().map(|(name, value)| (name.clone(), value_of(value))).collect();
    json!({
        "id": id, "timestamp": timestamp, "action": action, "principal": principal, "resource": resource,
        "details": details,
    })
}

/// A detail for people: a limit as the command reads it, anything else as JSON.
fn shown(value: &Value) -> String {
    let limit = |value: &Value| {
        let number = |name| value.get(name)?.as_u64();
        let period = Duration::from_secs(number("refill_period_seconds")?);
        let limit = Limit::per(value.get("name")?.as_str()?, number("refill_amount")?, period);
        Some(limit.burst(number("capacity")?).to_string())
    };
    let limits: Option<Vec<_>> = value.as_array().and_then(|limits| limits.iter().map(limit).collect());
    limits.map_or_else(|| value.to_string(), |limits| limits.join(" "))
}

fn value_of(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) => json!(text),
        AttributeValue::N(digits) => serde_json::from_str(digits).unwrap_or_else(|_| json!(digits)),
        AttributeValue::Bool(flag) => json!(flag),
        AttributeValue::L(list) => list.iter().map(value_of).collect(),
        AttributeValue::M(map) => map.iter().map(|(name, value)| (name.clone(), value_of(value))).collect(),
        _ => Value::Null,
    }
}
