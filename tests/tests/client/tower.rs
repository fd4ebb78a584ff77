//! The middleware, in an axum service.

use axum::{
    Extension, Router,
    body::Body,
    http::{Request, Response, StatusCode, header::RETRY_AFTER},
    routing::get,
};
use tidegate::tower::{LimitLayer, RequestLease};
use tidegate_tests::client::prelude::*;
use tower_service::Service as _;

/// A service with the paths `/ok`, `/error` and `/later`; the last one keeps its lease beyond its response.
fn service(limiter: &Limiter) -> (Router, std::sync::Arc<std::sync::Mutex<Option<tidegate::Lease>>>) {
    let limiter = limiter.clone();
    let layer = LimitLayer::new(move |request: &Request<Body>| {
        let key = request.headers().get("x-api-key")?.to_str().ok()?;
        Some(limiter.acquire(key, RESOURCE).take("requests", 1).take("tokens", 500))
    });
    let kept = std::sync::Arc::new(std::sync::Mutex::new(None));
    let keep = std::sync::Arc::clone(&kept);
    let ok = |lease: Option<Extension<RequestLease>>| async move {
        if let Some(Extension(lease)) = lease {
            lease.adjust("tokens", -400);
        }
    };
    let keeping = |Extension(lease): Extension<RequestLease>| async move {
        *keep.lock().expect("no panic") = lease.into_inner();
    };
    let router = Router::new()
        .route("/ok", get(ok))
        .route("/error", get(|| async { StatusCode::BAD_GATEWAY }))
        .route("/later", get(keeping))
        .layer(layer);
    (router, kept)
}

async fn send(service: &mut Router, path: &str, key: Option<&str>) -> anyhow::Result<Response<Body>> {
    let mut request = Request::get(path);
    if let Some(key) = key {
        request = request.header("x-api-key", key);
    }
    let Ok(response) = service.call(request.body(Body::empty())?).await;
    Ok(response)
}

#[tokio::test]
async fn requests_take_tokens_and_adjust_them() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let (mut service, kept) = service(&scene.limiter);
    assert_eq!(send(&mut service, "/ok", Some(ENTITY)).await?.status(), StatusCode::OK);
    scene.limiter.flush().await;
    assert_eq!(scene.totals("tokens", 1).await?, (59_900_000, 100_000));
    // A server error gives everything back.
    assert_eq!(send(&mut service, "/error", Some(ENTITY)).await?.status(), StatusCode::BAD_GATEWAY);
    scene.limiter.flush().await;
    assert_eq!(scene.totals("tokens", 1).await?, (59_900_000, 100_000));
    assert_eq!(scene.totals("requests", 1).await?, (599_000, 1_000));
    // A service can finish its lease after the response.
    assert_eq!(send(&mut service, "/later", Some(ENTITY)).await?.status(), StatusCode::OK);
    let mut lease = kept.lock().expect("no panic").take().context("the service keeps its lease")?;
    lease.adjust("tokens", 1_500);
    lease.commit().await?;
    assert_eq!(scene.totals("tokens", 1).await?, (57_900_000, 2_100_000));
    // What has no key needs no tokens.
    scene.calls();
    assert_eq!(send(&mut service, "/ok", None).await?.status(), StatusCode::OK);
    assert!(scene.calls().is_empty());
    Ok(())
}

#[tokio::test]
async fn refused_requests_get_a_status() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let (mut service, _) = service(&scene.limiter);
    let _all = scene.acquire(60_000).await?;
    let denied = send(&mut service, "/ok", Some(ENTITY)).await?;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()), Some("1"));
    let error = denied.extensions().get::<AcquireError>().context("the response has the error")?;
    assert!(matches!(error, AcquireError::Denied(_)), "{error}");
    assert_eq!(send(&mut service, "/ok", Some("a b")).await?.status(), StatusCode::BAD_REQUEST);
    scene.http.on_call(|_, _| Some(Fault::InternalBefore));
    let unavailable = send(&mut service, "/ok", Some("key-2")).await?;
    assert_eq!(unavailable.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(unavailable.headers().get(RETRY_AFTER), None);
    Ok(())
}
