//! A server on a free port of 127.0.0.1.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context;
use axum::{Router, extract::DefaultBodyLimit};
use tokio::{net::TcpListener, task::JoinSet};

/// A running server; it takes no new connections once dropped.
#[derive(Debug)]
pub struct LocalServer {
    address: SocketAddr,
    // A JoinSet, because dropping it ends its tasks.
    _accepting: JoinSet<()>,
}

impl LocalServer {
    /// Serves on a port that the system chooses. Bodies may be of any size: the events are ours, and
    /// answers and calls are as long as the measured program makes them.
    pub async fn start(router: Router) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen on 127.0.0.1")?;
        let address = listener.local_addr().context("cannot tell the port")?;
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            // Never returns an error: a connection that cannot be accepted is tried again.
            let _ = axum::serve(listener, router.layer(DefaultBodyLimit::disable())).await;
        });
        Ok(Self { address, _accepting: accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
