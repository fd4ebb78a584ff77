//! The SDK call that an acquire makes on the fast path, without the client crate around it.

use std::collections::HashMap;

use aws_sdk_dynamodb::{
    Client,
    config::retry::RetryConfig,
    types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure},
};
use tidegate_sandbox::item::{number, text};

use crate::python::ClosedLoop;

/// An update of the same shape: its expressions, names and values are as long as those of an acquire of two limits.
#[derive(Clone, Debug)]
pub(crate) struct BareUpdates {
    client: Client,
    table: &'static str,
    names: HashMap<String, String>,
}

const UPDATE: &str = "SET #op = :op ADD #wt :wd, #wc :wa, #t0 :d0, #c0 :a0, #t1 :d1, #c1 :a1";
const CONDITION: &str = "attribute_exists(#pk) AND #wt >= :wa AND attribute_not_exists(#dis) \
    AND (attribute_not_exists(#ttl) OR #ttl > :secs) AND (attribute_not_exists(#by) OR #by > :now) \
    AND (#by > :now OR attribute_not_exists(#vu) OR #vu > :now) \
    AND (#by > :now OR (#s0 > :now AND attribute_exists(#p0) AND attribute_exists(#t0)) OR #t0 >= :a0) \
    AND (attribute_not_exists(#s0) OR #s0 > :now) \
    AND (#by > :now OR (#s1 > :now AND attribute_exists(#p1) AND attribute_exists(#t1)) OR #t1 >= :a1) \
    AND (attribute_not_exists(#s1) OR #s1 > :now)";
const NAMES: [(&str, &str); 16] = [
    ("#op", "#op"),
    ("#wt", "b_wcu_tk"),
    ("#wc", "b_wcu_tc"),
    ("#pk", "PK"),
    ("#dis", "disabled"),
    ("#ttl", "ttl"),
    ("#by", "bypass"),
    ("#vu", "vu"),
    ("#t0", "b_requests_tk"),
    ("#c0", "b_requests_tc"),
    ("#s0", "b_requests_soft"),
    ("#p0", "b_requests_cp"),
    ("#t1", "b_tokens_tk"),
    ("#c1", "b_tokens_tc"),
    ("#s1", "b_tokens_soft"),
    ("#p1", "b_tokens_cp"),
];

impl BareUpdates {
    pub(crate) fn new(client: &Client, table: &'static str) -> Self {
        let once = client.config().to_builder().retry_config(RetryConfig::disabled()).build();
        let names = NAMES.map(|(name, attribute)| (name.to_owned(), attribute.to_owned())).into();
        Self { client: Client::from_conf(once), table, names }
    }

    /// Makes a call for each acquire of the load.
    pub(crate) async fn run(&self, load: &ClosedLoop) -> anyhow::Result<()> {
        let workers = (0..load.concurrency).map(|worker| {
            let (bare, load) = (self.clone(), load.clone());
            tokio::spawn(async move {
                for number in (worker..load.acquires).step_by(load.concurrency as usize) {
                    bare.update(&format!("{}{}", load.prefix, number % load.entities)).await?;
                }
                anyhow::Ok(())
            })
        });
        for worker in futures::future::join_all(workers).await {
            worker??;
        }
        Ok(())
    }

    async fn update(&self, entity: &str) -> anyhow::Result<()> {
        let values = HashMap::from(
            [
                (":op", text("0123456789abcdef.1234")),
                (":wa", number(1_000)),
                (":wd", number(-1_000)),
                (":secs", number(1_767_225_600)),
                (":now", number(1_767_225_600_000_i64)),
                (":a0", number(1_000)),
                (":d0", number(-1_000)),
                (":a1", number(1_000)),
                (":d1", number(-1_000)),
            ]
            .map(|(name, value): (&str, AttributeValue)| (name.to_owned(), value)),
        );
        self.client
            .update_item()
            .table_name(self.table)
            .key("PK", text(format!("default/BUCKET#{entity}#gpt-4#0")))
            .key("SK", text("#STATE"))
            .update_expression(UPDATE)
            .condition_expression(CONDITION)
            .set_expression_attribute_names(Some(self.names.clone()))
            .set_expression_attribute_values(Some(values))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await?;
        Ok(())
    }
}
