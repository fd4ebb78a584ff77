//! S3 in this process: one bucket in memory, behind the protocol.
//!
//! It has what the worker-rate files need: objects are written, with conditions, read, deleted and listed by prefix,
//! delimiter and page. As on AWS, a listing shows the bucket as it is page by page, times are whole seconds, and of
//! two conditional writes at the same time one fails.
//!
//! | module | holds |
//! |---|---|
//! | `protocol` | the calls |
//! | [`workers`] | workers' files as the workers write them |

mod protocol;

use std::{
    collections::BTreeMap,
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Result;
use axum::{Router, body::Bytes, error_handling::HandleError, http::StatusCode};
use s3s::{HttpError, auth::SimpleAuth, service::S3ServiceBuilder};
use tidegate_aws::clock;
use tidegate_domain::time::EpochMillis;

use self::protocol::Protocol;
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
    state: Arc<Mutex<State>>,
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
    /// An object is deleted.
    Delete { key: String },
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
    /// Write calls, including those whose condition failed.
    pub puts: usize,
    pub deletes: usize,
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
                Call::Delete { .. } => &mut state.calls.deletes,
            } += 1;
            state.hook.clone()?
        };
        hook(self, call)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The time of a write; `None` if the system clock is outside the calendar.
    fn now(&self) -> Option<EpochMillis> {
        self.now.or_else(|| clock::now().ok())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub content: Bytes,
    /// A hash of the content, used as the `ETag`.
    pub tag: String,
    /// When it was written.
    pub modified: EpochMillis,
    pub content_type: Option<String>,
    pub cache_control: Option<String>,
}

impl Object {
    /// An object without headers.
    fn new(content: Bytes, modified: EpochMillis) -> Self {
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, &content).hash(&mut hasher);
            hasher.finish()
        };
        let tag = format!("{:016x}{:016x}", half(0), half(1));
        Self { content, tag, modified, content_type: None, cache_control: None }
    }
}

/// The objects of a bucket, by key.
#[derive(Clone, Debug, Default)]
struct Objects(BTreeMap<String, Object>);

/// The parameters of a listing.
#[derive(Clone, Debug)]
struct Query {
    prefix: String,
    /// The end of common prefixes, if there are any.
    delimiter: Option<String>,
    /// The token of the previous page.
    after: Option<String>,
    /// The most entries of a page.
    limit: usize,
}

#[derive(Clone, Debug, Default)]
struct Page {
    objects: Vec<(String, Object)>,
    /// The common prefixes of the other keys.
    prefixes: Vec<String>,
    /// The token of the next page, if there is one.
    next: Option<String>,
}

/// An entry of a listing. Its token continues the listing after it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Key(String),
    Prefix(String),
}

impl Objects {
    fn get(&self, key: &str) -> Option<&Object> {
        self.0.get(key)
    }

    fn insert(&mut self, key: String, object: Object) {
        self.0.insert(key, object);
    }

    fn remove(&mut self, key: &str) -> bool {
        self.0.remove(key).is_some()
    }

    /// Lists a page of the current objects.
    fn list(&self, query: &Query) -> Page {
        let after = query.after.as_deref().and_then(Entry::from_token);
        let from = match &after {
            Some(Entry::Key(key) | Entry::Prefix(key)) => Bound::Excluded(key.as_str()),
            None => Bound::Included(query.prefix.as_str()),
        };
        let (mut page, mut last) = (Page::default(), after.clone());
        for (key, object) in self.0.range::<str, _>((from, Bound::Unbounded)) {
            let Some(rest) = key.strip_prefix(&query.prefix) else { break };
            let entry = entry(&query.prefix, rest, query.delimiter.as_deref());
            if last.as_ref() == Some(&entry) {
                continue;
            }
            if page.objects.len() + page.prefixes.len() == query.limit {
                page.next = last.map(|last| last.token());
                break;
            }
            match &entry {
                Entry::Key(key) => page.objects.push((key.clone(), object.clone())),
                Entry::Prefix(prefix) => page.prefixes.push(prefix.clone()),
            }
            last = Some(entry);
        }
        page
    }
}

fn entry(prefix: &str, rest: &str, delimiter: Option<&str>) -> Entry {
    let common = delimiter.and_then(|delimiter| Some(&rest[..rest.find(delimiter)? + delimiter.len()]));
    match common {
        Some(common) => Entry::Prefix(format!("{prefix}{common}")),
        None => Entry::Key(format!("{prefix}{rest}")),
    }
}

impl Entry {
    fn token(&self) -> String {
        match self {
            Self::Key(key) => format!("k{key}"),
            Self::Prefix(prefix) => format!("p{prefix}"),
        }
    }

    fn from_token(token: &str) -> Option<Self> {
        let key = token.strip_prefix('k').map(|key| Self::Key(key.to_owned()));
        key.or_else(|| Some(Self::Prefix(token.strip_prefix('p')?.to_owned())))
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

pub mod workers {
    //! Workers' files as the workers write them.

    use tidegate_aws::{
        clock,
        rates::text::PythonFloat,
        schema::rates::{READ_RATE, TIMESTAMP, WORKER_ID, WRITE_RATE, worker_key},
    };
    use tidegate_domain::time::EpochMillis;
    use tokio::{task::JoinSet, time::Duration};

    use super::Bucket;

    /// How often a worker writes.
    const EVERY: Duration = Duration::from_secs(5);

    /// What a worker writes: one line, as Python's `json.dumps` makes it.
    pub fn report(worker: &str, at: EpochMillis, read_rate: f64, write_rate: f64) -> String {
        let [timestamp, read_rate, write_rate] = [at.seconds(), read_rate, write_rate].map(PythonFloat);
        format!(
            r#"{{"{WORKER_ID}": "{worker}", "{TIMESTAMP}": {timestamp}, "{READ_RATE}": {read_rate}, "{WRITE_RATE}": {write_rate}}}"#
        )
    }

    /// Workers that write for as long as this is kept.
    #[derive(Debug)]
    pub struct Workers {
        // A JoinSet, because dropping it ends its tasks.
        _writing: JoinSet<()>,
    }

    impl Workers {
        /// Lets `count` workers write their reports under this prefix, the first ones at once.
        pub fn start(bucket: &Bucket, prefix: &str, count: u32) -> Self {
            let (bucket, prefix) = (bucket.clone(), prefix.to_owned());
            let mut writing = JoinSet::new();
            writing.spawn(async move {
                let mut ticks = tokio::time::interval(EVERY);
                loop {
                    ticks.tick().await;
                    let Ok(now) = clock::now() else { return };
                    for number in 0..count {
                        let worker = format!("{number:04}");
                        bucket.put(worker_key(&prefix, &worker), report(&worker, now, 10.0, 2.5), now);
                    }
                }
            });
            Self { _writing: writing }
        }
    }
}

#[cfg(test)]
mod tests;
