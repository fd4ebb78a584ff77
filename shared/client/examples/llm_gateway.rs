//! A gateway to a language model: it reserves tokens by an estimate, and pays for what the model has used.
//!
//! ```sh
//! cargo run -p tidegate --features test-util --example llm_gateway
//! ```
//!
//! The model is simulated, and the buckets are in the process. To use those of a table, set its limits and name it:
//!
//! ```sh
//! export TIDEGATE_TABLE=tidegate-buckets # of a deployed stack
//! tidegate namespace register default
//! tidegate limits set --resource gpt-4 requests=600/minute tokens=1000/second
//! cargo run -p tidegate --features test-util --example llm_gateway
//! ```

mod support;

use std::{error::Error, fmt, time::Duration};

use futures::future::join_all;
use tidegate::{Limit, Limiter, ScopeError};
use tokio::time::{Instant, sleep};

const KEY: &str = "key-1";
const MODEL: &str = "gpt-4";

/// How long a prompt waits for tokens.
const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let limits = [Limit::per_minute("requests", 600), Limit::per_second("tokens", 1_000)];
    let limiter = &support::limiter(limits).await?;
    let began = Instant::now();

    let prompts = ["a haiku", "a sonnet", "an essay", "nonsense", "a novel in one sentence", "an ode"];
    join_all(prompts.map(async |prompt| {
        let answer = complete(limiter, prompt).await;
        let answer = answer.unwrap_or_else(|error| format!("error: {error}"));
        println!("{:>5} ms  {prompt}: {answer}", began.elapsed().as_millis());
    }))
    .await;

    let used = stream(limiter, "a story").await?;
    println!("{:>5} ms  a story: streamed {used} tokens", began.elapsed().as_millis());

    let available = limiter.acquire(KEY, MODEL).take("requests", 1).check().await?;
    for limit in available.limits() {
        println!("{} of {} {} are left", limit.available, limit.capacity, limit.limit);
    }
    limiter.clone().shutdown().await;
    Ok(())
}

/// Asks the model for a whole answer. If the model fails, the prompt costs nothing.
async fn complete(limiter: &Limiter, prompt: &str) -> Result<String, ScopeError<ModelError>> {
    let estimate = estimate(prompt);
    let request = limiter.acquire(KEY, MODEL).take("requests", 1).take("tokens", estimate);
    limiter
        .scope(request.until(Instant::now() + PATIENCE), async |lease| {
            let answer = ask(prompt).await?;
            lease.adjust("tokens", answer.used.saturating_sub_unsigned(estimate));
            Ok(format!("{} tokens, {estimate} estimated", answer.used))
        })
        .await
}

/// Asks the model for an answer in parts. The cost is known after the last part, so the lease lives until then.
async fn stream(limiter: &Limiter, prompt: &str) -> anyhow::Result<i64> {
    let estimate = estimate(prompt);
    let request = limiter.acquire(KEY, MODEL).take("requests", 1).take("tokens", estimate);
    let mut lease = request.until(Instant::now() + PATIENCE).await?;
    let mut used = 0;
    for _part in 0..3 {
        used += ask(prompt).await?.used / 3;
    }
    lease.adjust("tokens", used.saturating_sub_unsigned(estimate));
    lease.commit().await?;
    Ok(used)
}

/// The tokens that a prompt may need: those of its text, and those of the longest answer.
fn estimate(prompt: &str) -> u64 {
    u64::try_from(prompt.len()).unwrap_or(u64::MAX).div_ceil(4).saturating_add(400)
}

struct Answer {
    used: i64,
}

#[derive(Debug)]
struct ModelError;

impl Error for ModelError {}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the model has failed")
    }
}

/// Simulates a model, which fails on nonsense.
async fn ask(prompt: &str) -> Result<Answer, ModelError> {
    sleep(Duration::from_millis(50)).await;
    if prompt == "nonsense" {
        return Err(ModelError);
    }
    Ok(Answer { used: i64::try_from(prompt.len()).unwrap_or(i64::MAX).saturating_mul(40) })
}
