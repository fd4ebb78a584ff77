use aws_config::BehaviorVersion;
use tidegate::{AcquireError, Limit, Limiter, Scope};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = aws_sdk_dynamodb::Client::new(&aws_config::load_defaults(BehaviorVersion::latest()).await);
    Limiter::create_table(&client, "limits").await?; // once, unless a stack has a table
    let limiter = Limiter::builder(client, "limits").create_namespace().build().await?;
    // Once, or with the command `tidegate`.
    let limits = [Limit::per_minute("requests", 600), Limit::per_minute("tokens", 60_000)];
    limiter.limits().set(Scope::resource("gpt-4"), limits).await?;

    match limiter.acquire("key-1", "gpt-4").take("requests", 1).take("tokens", 500).await {
        Ok(mut lease) => {
            let used = 420; // call the model: the real cost is known afterwards
            lease.adjust("tokens", used - 500);
            lease.commit().await?;
        }
        Err(AcquireError::Denied(denied)) => println!("try again in {:?}", denied.retry_after()),
        Err(error) => return Err(error.into()),
    }
    limiter.shutdown().await;
    Ok(())
}
