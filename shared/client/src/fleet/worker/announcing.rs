//! The announcements of a worker: they hold its slow start back until the capacity is there.

use std::{future::IntoFuture as _, pin::pin, time::Duration};

use futures::{
    FutureExt as _,
    future::{Either, join, join_all, select},
};
use tidegate_domain::throttle::{CapacityKind, limit::RampStart};
use tokio::{sync::watch, time::timeout};

use crate::{
    capacity::{AnnounceBuilder, Announcement},
    clock::Clock,
    fleet::{
        FilesError,
        throttle::{Throttle, WeakThrottle},
    },
};

/// A release that takes longer goes on in the background.
const LONGEST_RELEASE: Duration = Duration::from_secs(5);

/// The longest time between two attempts to renew an announcement.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// Announces work while the task of a worker runs. When that ends, releases what was announced.
pub(super) fn beside<W: Future<Output = Result<(), FilesError>>>(
    worker: W,
    announcements: Vec<AnnounceBuilder>,
    throttle: &Throttle,
) -> impl Future<Output = Result<(), FilesError>> + use<W> {
    let (running, ended) = watch::channel(());
    let announcing = announcements.into_iter().map(|request| {
        let (kind, lasting, ended) = (request.kind(), request.duration(), ended.clone());
        let (throttle, clock) = (throttle.downgrade(), throttle.time_source().clone());
        Announcing { kind, lasting, throttle, clock, ended }.run(request)
    });
    let announcing = join_all(announcing);
    let working = worker.inspect(move |_| drop(running));
    join(working, announcing).map(|(stopped, _)| stopped)
}

/// One announcement of a worker.
struct Announcing {
    kind: CapacityKind,
    lasting: Duration,
    throttle: WeakThrottle,
    clock: Clock,
    /// Closed when the worker has ended.
    ended: watch::Receiver<()>,
}

impl Announcing {
    async fn run(mut self, request: AnnounceBuilder) {
        let kind = self.kind;
        let mut announcement = match self.unless_ended(request.into_future()).await {
            None => return,
            Some(Ok(announcement)) => announcement,
            Some(Err(error)) => {
                tracing::warn!(%kind, %error, "the announced capacity is not ready: the worker starts slowly");
                return self.start(RampStart::At);
            }
        };
        tracing::info!(%kind, id = announcement.id(), "the announced capacity is ready: the worker may use its maximum");
        self.start(|_| RampStart::Skipped);
        self.renew(&mut announcement).await;
        if let Ok(Err(error)) = timeout(LONGEST_RELEASE, announcement.release()).await {
            tracing::warn!(%kind, %error, "could not release an announcement: it ends by itself");
        }
    }

    /// Renews the announcement until the worker has ended. It lasts from the beginning of a renewal.
    async fn renew(&mut self, announcement: &mut Announcement) {
        let (lasting, clock) = (self.lasting, self.clock.clone());
        let mut wait = lasting / 2;
        loop {
            if self.unless_ended(clock.sleep(wait)).await.is_none() {
                return;
            }
            let begun = clock.elapsed();
            wait = match self.unless_ended(announcement.renew(lasting)).await {
                None => return,
                Some(Ok(())) => (lasting / 2).saturating_sub(clock.elapsed().saturating_sub(begun)),
                Some(Err(error)) => {
                    let kind = self.kind;
                    tracing::warn!(%kind, %error, "could not renew an announcement: the next attempt follows");
                    (lasting / 10).min(LONGEST_PAUSE)
                }
            };
        }
    }

    /// Sets when the ramp to the maximum begins, from the present moment.
    fn start(&self, ramp: impl FnOnce(Duration) -> RampStart) {
        if let Some(throttle) = self.throttle.upgrade() {
            throttle.set_ramp_start(self.kind, ramp(throttle.now()));
        }
    }

    /// Waits for a future. Returns `None` if the worker has ended before.
    async fn unless_ended<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let ended = pin!(async { while self.ended.changed().await.is_ok() {} });
        match select(pin!(future), ended).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }
}
