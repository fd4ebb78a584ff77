//! S3 in this process: one bucket in memory, behind the protocol.
//!
//! It has what the worker-rate files need: objects are written, with conditions, read, deleted and listed by prefix,
//! delimiter and page. As on AWS, a listing shows the bucket as it is page by page, times are whole seconds, and of
//! two conditional writes at the same time one fails.
//!
//! | module | holds |
//! |---|---|
//! | [`objects`] | the bucket's objects, and their listing |
//! | `protocol` | calls, answered |
//! | [`workers`] | workers' files as the workers write them |

pub mod objects;
mod protocol;
pub mod workers;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Result;
use axum::{Router, error_handling::HandleError, http::StatusCode};
use s3s::{HttpError, auth::SimpleAuth, service::S3ServiceBuilder};
use tidegate_aws::clock;
use tidegate_domain::time::EpochMillis;

use self::{
    objects::{Object, Objects},
    protocol::Protocol,
};
use crate::loopback::{Loopback, LoopbackServer};

/// The name of the only bucket.
pub const BUCKET: &str = "tidegate-sandbox";
/// The access key and secret key of all callers.
const KEY: &str = "test";

/// An empty bucket in memory, served on loopback until it is dropped.
pub struct EmbeddedS3 {
    server: LoopbackServer,
    bucket: Bucket,
}

/// A handle of the bucket that bypasses the protocol. Clones share it.
#[derive(Clone, Default)]
pub struct Bucket {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    objects: Objects,
    calls: Calls,
    /// The current time, if it is not that of the system clock.
    now: Option<EpochMillis>,
    hook: Option<Arc<Hook>>,
}

/// Called before each request. Returns the fault to inject, if any.
type Hook = dyn Fn(&Bucket, &Call) -> Option<Fault> + Send + Sync;

/// A call that is about to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    List {
        /// What the keys begin with.
        prefix: String,
        /// Whether it is the first page.
        is_first: bool,
    },
    /// An object is read.
    Get { key: String },
    /// An object is written.
    Put { key: String },
}

/// A fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 503, `SlowDown`; nothing is done.
    SlowDown,
    /// 403, `AccessDenied`; nothing is done.
    AccessDenied,
    /// It is done, and the answer is 500, `InternalError`.
    InternalAfter,
    /// There is no answer.
    Hang,
    /// It is done so much later.
    Late(Duration),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub lists: usize,
    /// Objects read.
    pub gets: usize,
    /// Objects written, or not, by their condition.
    pub puts: usize,
}

impl EmbeddedS3 {
    /// Starts on this port of 127.0.0.1, or on a free one. The server runs on the caller's runtime.
    pub async fn start(port: Option<u16>) -> Result<Self> {
        let loopback = Loopback::bind("the embedded S3", port).await?;
        let bucket = Bucket::default();
        let mut service = S3ServiceBuilder::new(Protocol::new(bucket.clone()));
        service.set_auth(SimpleAuth::from_single(KEY, KEY));
        let service = HandleError::new(service.build(), async |error: HttpError| {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:?}"))
        });
        let server = loopback.serve(Router::new().fallback_service(service));
        Ok(Self { server, bucket })
    }

    /// Where clients of S3 find it, like `http://127.0.0.1:40123`; the bucket is in the path.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// The bucket itself, without the protocol.
    pub const fn bucket(&self) -> &Bucket {
        &self.bucket
    }
}

impl Bucket {
    /// Writes an object, last modified at this time.
    pub fn put(&self, key: impl Into<String>, content: impl Into<Vec<u8>>, modified: EpochMillis) {
        self.state().objects.insert(key.into(), Object::new(content.into().into(), modified));
    }

    /// An object, if it is there.
    pub fn get(&self, key: &str) -> Option<Object> {
        self.state().objects.get(key).cloned()
    }

    /// Deletes an object. Returns whether it existed.
    pub fn delete(&self, key: &str) -> bool {
        self.state().objects.remove(key)
    }

    /// Stops the clock: objects that clients write are last modified at this time.
    pub fn set_time(&self, now: EpochMillis) {
        self.state().now = Some(now);
    }

    /// The calls since this was last asked.
    pub fn take_calls(&self) -> Calls {
        std::mem::take(&mut self.state().calls)
    }

    /// Runs `hook` before each request. The hook may change the bucket or return a fault.
    pub fn on_call(&self, hook: impl Fn(&Self, &Call) -> Option<Fault> + Send + Sync + 'static) {
        self.state().hook = Some(Arc::new(hook));
    }

    /// Removes the hook.
    pub fn undisturbed(&self) {
        self.state().hook = None;
    }

    /// Counts a call and asks the hook for its fault.
    fn fault_of(&self, call: &Call) -> Option<Fault> {
        let hook = {
            let mut state = self.state();
            *match call {
                Call::List { .. } => &mut state.calls.lists,
                Call::Get { .. } => &mut state.calls.gets,
                Call::Put { .. } => &mut state.calls.puts,
            } += 1;
            state.hook.clone()?
        };
        hook(self, call)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The time of a write; `None` if the system clock is outside the calendar.
    fn now(&self) -> Option<EpochMillis> {
        self.now.or_else(|| clock::now().ok())
    }
}

impl fmt::Debug for EmbeddedS3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedS3").field("server", &self.server).finish_non_exhaustive()
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("calls", &self.state().calls).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
