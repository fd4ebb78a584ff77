//! Servers on 127.0.0.1.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use anyhow::Context as _;
use axum::{
    Router,
    body::{Body, Bytes},
    extract::DefaultBodyLimit,
    http::{Response, StatusCode},
};
use futures::stream;
use tokio::{net::TcpListener, task::JoinSet};

/// A port of 127.0.0.1 that accepts connections once it is served.
#[derive(Debug)]
pub struct Loopback {
    listener: TcpListener,
    address: SocketAddr,
}

/// A running server. It accepts no connections once it is dropped.
#[derive(Debug)]
pub struct LoopbackServer {
    address: SocketAddr,
    // A JoinSet, because dropping it ends its tasks.
    _accepting: JoinSet<()>,
}

impl Loopback {
    /// Binds this port, or a free one. `name` is the server's, for the error.
    pub async fn bind(name: &str, port: Option<u16>) -> anyhow::Result<Self> {
        let port = port.unwrap_or(0);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.with_context(|| format!("{name} cannot listen on port {port} of 127.0.0.1"))?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// The URL for clients, like `http://127.0.0.1:40123`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Serves on the caller's runtime. Bodies may have any size.
    pub fn serve(self, router: Router) -> LoopbackServer {
        let router = router.layer(DefaultBodyLimit::disable());
        self.serve_by(async move |listener| {
            // Never returns an error: axum retries when a connection cannot be accepted.
            let _ = axum::serve(listener, router).await;
        })
    }

    pub(crate) fn serve_by<F>(self, serve: impl FnOnce(TcpListener) -> F) -> LoopbackServer
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut accepting = JoinSet::new();
        accepting.spawn(serve(self.listener));
        LoopbackServer { address: self.address, _accepting: accepting }
    }
}

impl LoopbackServer {
    /// Serves on a free port.
    pub async fn start(name: &str, router: Router) -> anyhow::Result<Self> {
        Ok(Loopback::bind(name, None).await?.serve(router))
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A response with this status and these headers.
pub(crate) fn response(status: u16, headers: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
    let builder = Response::builder().status(status);
    let builder = headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
    builder.body(body.into()).unwrap_or_else(|_| {
        let mut failed = Response::new(Body::empty());
        *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        failed
    })
}

/// The body of a response that is lost: it fails, which closes the connection.
pub(crate) fn broken_body() -> Body {
    Body::from_stream(stream::iter([Err::<Bytes, _>(io::Error::from(io::ErrorKind::ConnectionReset))]))
}
