//! Middleware for HTTP services: each request takes tokens before it reaches the service.
//!
//! ```
//! use tidegate::{Limiter, tower::LimitLayer};
//!
//! fn layer(limiter: Limiter) -> LimitLayer<impl Fn(&http::Request<String>) -> Option<tidegate::AcquireBuilder> + Clone> {
//!     LimitLayer::new(move |request: &http::Request<String>| {
//!         let key = request.headers().get("x-api-key")?.to_str().ok()?;
//!         Some(limiter.acquire(key, "api").take("requests", 1))
//!     })
//! }
//! ```

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, header::RETRY_AFTER};
use tower_layer::Layer;
use tower_service::Service;

use crate::{AcquireBuilder, AcquireError, Lease};

/// Adds [`LimitService`] to a service.
#[derive(Clone, Debug)]
pub struct LimitLayer<F> {
    tokens_of: F,
}

/// Takes tokens for each request before it passes the request on.
///
/// - `tokens_of` says which tokens a request needs, by whatever it has: a header, the path. A request for which it returns
///   `None` passes without tokens.
/// - The service finds a [`RequestLease`] among the request's extensions. With it, the service corrects the amounts when
///   the real cost is known.
/// - If the service fails, or responds with a server error, everything is refunded. Otherwise the tokens stay taken, and
///   the adjustments are written in the background. Neither delays the response. In a Lambda function, call
///   [`Limiter::flush`](crate::Limiter::flush) before the response.
///
/// A request without tokens is refused, with an empty body:
///
/// | error | response |
/// |---|---|
/// | [`AcquireError::Denied`] | `429 Too Many Requests` with `Retry-After`, in whole seconds, rounded up |
/// | [`AcquireError::Never`] | `429 Too Many Requests` |
/// | [`AcquireError::Disabled`] | `403 Forbidden` |
/// | [`AcquireError::Unavailable`] | `503 Service Unavailable` |
/// | [`AcquireError::Invalid`] | `400 Bad Request` |
/// | any other | `500 Internal Server Error` |
///
/// The response has the error among its extensions, so that a layer outside of this one can write a body.
#[derive(Clone, Debug)]
pub struct LimitService<S, F> {
    inner: S,
    tokens_of: F,
}

/// The lease of an HTTP request, for the service that handles it. Clones share the lease.
#[derive(Clone, Debug)]
pub struct RequestLease(Arc<Mutex<Option<Lease>>>);

impl<F> LimitLayer<F> {
    /// Creates the layer. `tokens_of` returns the tokens that a request needs, or `None` if it needs none.
    pub const fn new(tokens_of: F) -> Self {
        Self { tokens_of }
    }
}

impl<S, F: Clone> Layer<S> for LimitLayer<F> {
    type Service = LimitService<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitService { inner, tokens_of: self.tokens_of.clone() }
    }
}

impl<S, F, B, R> Service<Request<B>> for LimitService<S, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    F: Fn(&Request<B>) -> Option<AcquireBuilder>,
    B: Send + 'static,
    R: Default + Send,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<R>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let tokens = (self.tokens_of)(&request);
        // The service that was polled is the one that is ready; its clone may not be.
        let next = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, next);
        Box::pin(async move {
            let Some(tokens) = tokens else { return inner.call(request).await };
            let lease = match tokens.await {
                Ok(lease) => RequestLease(Arc::new(Mutex::new(Some(lease)))),
                Err(error) => return Ok(refusal(error)),
            };
            request.extensions_mut().insert(lease.clone());
            let response = inner.call(request).await;
            let is_ok = response.as_ref().is_ok_and(|response| !response.status().is_server_error());
            if !is_ok && let Some(lease) = lease.into_inner() {
                lease.refund_in_background();
            }
            response
        })
    }
}

impl RequestLease {
    /// Takes `tokens` more of a limit, or gives them back if the number is below zero: see [`Lease::adjust`]. Without
    /// effect after [`into_inner`](Self::into_inner).
    pub fn adjust(&self, limit: &str, tokens: i64) {
        if let Some(lease) = self.lock().as_mut() {
            lease.adjust(limit, tokens);
        }
    }

    /// Returns the lease itself, if no other clone has returned it before: for a service that learns the cost after its
    /// response has begun, such as one that streams. The middleware then leaves the lease alone.
    #[must_use = "a lease that is dropped keeps its tokens"]
    pub fn into_inner(self) -> Option<Lease> {
        self.lock().take()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Lease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The response to a request that gets no tokens.
fn refusal<R: Default>(error: AcquireError) -> Response<R> {
    let mut response = Response::new(R::default());
    *response.status_mut() = match &error {
        AcquireError::Denied(_) | AcquireError::Never(_) => StatusCode::TOO_MANY_REQUESTS,
        AcquireError::Disabled { .. } => StatusCode::FORBIDDEN,
        AcquireError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        AcquireError::Invalid(_) => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    if let AcquireError::Denied(denied) = &error {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(whole_seconds(denied.retry_after())));
    }
    response.extensions_mut().insert(error);
    response
}

/// Whole seconds, rounded up: a client that waits for so long finds tokens.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        for (millis, seconds) in [(0, 0), (1, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
    }
}
