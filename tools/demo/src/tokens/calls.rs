//! Many calls at once at a limit of ten a minute: our client, and clients that make the calls of rate-limiter-py.

use std::time::Duration;

use anyhow::Context as _;
use aws_sdk_dynamodb::{operation::update_item::UpdateItemError, types::ReturnValue};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tidegate::{
    TokenTables,
    fungible::{Fungible, TakeError},
};
use tidegate_aws::{
    client, clock,
    schema::tokens::{ACCOUNT_ID, LAST_REFILL, LAST_TOKEN, RESOURCE_NAME, TOKENS},
    table,
};
use tidegate_sandbox::{
    dynamodb::EmbeddedDynamoDb,
    faults::{FaultyHttp, sdk_config},
    item::{number, read, text},
};

use crate::print;

/// How many tokens are asked for, and how many callers ask at the same time.
const CALLS: usize = 200;
const CALLERS: usize = 50;
/// The limit of the account, and its window.
const LIMIT: i64 = 10;
const WINDOW: Duration = Duration::from_mins(1);
const RESOURCE: &str = "emr-api";
const ACCOUNT: &str = "333333333333";

/// How many calls were admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    pub(crate) ours: usize,
    theirs: usize,
}

/// Lets callers of each kind take tokens, each on tables of their own.
pub(crate) async fn run() -> anyhow::Result<Calls> {
    let dynamodb = EmbeddedDynamoDb::start(None).await?;
    let client = client::dynamodb(&sdk_config(dynamodb.endpoint(), FaultyHttp::undisturbed()));
    let tables = ["ours", "theirs"].map(TokenTables::of);
    for names in &tables {
        table::create_token_tables(&client, names).await.context("the token tables")?;
    }
    let fungible = Fungible::builder(client.clone(), tables[0].clone());
    let fungible = fungible.default_limit(RESOURCE, LIMIT.unsigned_abs(), WINDOW).build();
    let ours = async || match fungible.take(RESOURCE, ACCOUNT, 1).await {
        Ok(_) => Ok(true),
        Err(TakeError::Denied(_)) => Ok(false),
        Err(error) => Err(anyhow::Error::from(error)),
    };
    let theirs = async || take_like_python(&client, &tables[1].fungible).await;
    Ok(Calls { ours: admitted(ours).await?, theirs: admitted(theirs).await? })
}

pub(crate) fn table(Calls { ours, theirs }: Calls) -> String {
    let rows = [["as rate-limiter-py 0.3.0", &theirs.to_string()], ["tidegate", &ours.to_string()]];
    let title = format!("{CALLS} calls from {CALLERS} callers, at a limit of {LIMIT} a minute");
    format!("{title}\n{}", print::table(&["", "admitted"], 1, rows))
}

/// What is wrong: our client admits the limit. A slow run may see one more token accrue every six seconds.
pub(crate) fn problems(Calls { ours, .. }: Calls) -> Vec<String> {
    let limit = usize::try_from(LIMIT).unwrap_or_default();
    let is_wrong = !(limit..=2 * limit).contains(&ours);
    is_wrong
        .then(|| format!("tidegate: {ours} calls were admitted at a limit of {limit} a minute"))
        .into_iter()
        .collect()
}

async fn admitted(take: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<usize> {
    let calls = stream::iter(0..CALLS).map(|_| take()).buffer_unordered(CALLERS);
    calls.try_fold(0, async |admitted, is_admitted| Ok(admitted + usize::from(is_admitted))).await
}

/// Takes a token, and then refills: `tokens` becomes `limit - 1`, because the time of the last refill is looked for under a
/// name that the row does not have.
async fn take_like_python(dynamodb: &client::DynamoDb, table: &str) -> anyhow::Result<bool> {
    let now = clock::now()?.get();
    let update = || {
        let update = dynamodb.update_item().table_name(table);
        update.key(RESOURCE_NAME, text(RESOURCE)).key(ACCOUNT_ID, text(ACCOUNT))
    };
    let taken = update()
        .update_expression(format!("ADD {TOKENS} :dec SET {LAST_TOKEN} = :now"))
        .condition_expression(format!("{TOKENS} > :min OR {LAST_TOKEN} < :failsafe OR attribute_not_exists({TOKENS})"))
        .expression_attribute_values(":dec", number(-1))
        .expression_attribute_values(":min", number(0))
        .expression_attribute_values(":failsafe", number(now - i64::try_from(WINDOW.as_millis())? / LIMIT))
        .expression_attribute_values(":now", number(now))
        .return_values(ReturnValue::AllNew)
        .send()
        .await;
    let row = match taken {
        Ok(taken) => taken.attributes.unwrap_or_default(),
        Err(error) if error.as_service_error().is_some_and(UpdateItemError::is_conditional_check_failed_exception) => {
            return Ok(false);
        }
        Err(error) => return Err(error).context("a client could not take a token"),
    };
    let accrued = now / (i64::try_from(WINDOW.as_millis())? / LIMIT);
    let tokens: i64 = read(&row, TOKENS)?;
    let refilled = update()
        .update_expression(format!("SET {TOKENS} = :tokens, {LAST_REFILL} = :now"))
        .condition_expression(format!("{LAST_REFILL} < :now OR attribute_not_exists({LAST_REFILL})"))
        .expression_attribute_values(":tokens", number((LIMIT - 1).min(tokens.max(0) + accrued)))
        .expression_attribute_values(":now", number(now))
        .send()
        .await;
    // Its failures are only logged.
    drop(refilled);
    Ok(true)
}
