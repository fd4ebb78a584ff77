//! Takes and refills rows, starting from a cached image of each row.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::try_join;
use quick_cache::sync::Cache;
use tidegate_aws::{
    error::StoreError,
    token_rows::{Consistency, RowKey, RowOperation, TokenRow, TokenRows, WriteError, Written},
};
use tidegate_domain::{
    fungible::{self, Rate, Refill, Row, Step, Take},
    time::EpochMillis,
    token_limits::LimitKey,
};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};
use tracing::Instrument as _;

use super::{
    Taken,
    error::{TakeError, TokensDenied},
};
use crate::{
    background::Background,
    clock::{Clock, Moment},
    core::Core,
    error::Contended,
    limit_cache::LimitCache,
    operation_ids::OperationIds,
    table_error::TableError,
};

/// The maximum number of cached rows.
const CAPACITY: usize = 100_000;

/// The maximum age of a cached image that may deny a request. Tokens rise only by accrual, unless Python clients refill.
const RECENT: Duration = Duration::from_secs(1);

/// The maximum number of attempts while other clients write to the row. Each starts from the row that the last one returned.
const ATTEMPTS: u32 = 16;

/// The maximum number of attempts while the table is throttled.
const BUSY_ATTEMPTS: u32 = 8;

/// The rows of a table.
pub(super) struct Rows {
    store: TokenRows,
    limits: LimitCache,
    clock: Clock,
    seals: bool,
    pub(super) background: Arc<Background>,
    operations: OperationIds,
    known: Cache<LimitKey, Arc<KnownRow>>,
}

/// The cached state of a row.
#[derive(Default)]
struct KnownRow {
    image: Mutex<Option<Image>>,
    /// Callers that wait for tokens take turns.
    turn: tokio::sync::Mutex<()>,
}

/// The row as last observed. It may be outdated: writes are conditional.
#[derive(Clone)]
struct Image {
    /// `None` if the row does not exist.
    row: Option<Row>,
    /// As [`Moment::elapsed`].
    seen_at: Duration,
}

#[derive(Clone, Copy)]
enum Write {
    Take(Take),
    Refill(Refill),
}

impl KnownRow {
    fn image(&self) -> Option<Image> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, image: Option<Image>) {
        *self.image.lock().unwrap_or_else(PoisonError::into_inner) = image;
    }

    /// Caches the row that a write returned. The write began at `moment`.
    fn observe(&self, written: &Result<Written<TokenRow>, WriteError>, moment: Moment) {
        match written {
            Ok(Written::Applied(Some(row)) | Written::Refused(Some(row))) => self.set(Some(Image::of(row, moment))),
            Ok(Written::Refused(None)) => self.set(Some(Image { row: None, seen_at: moment.elapsed })),
            Ok(Written::Applied(None)) | Err(WriteError::Lost(_)) => self.set(None),
            Err(WriteError::Throttled { .. } | WriteError::NotWritten(_)) => {}
        }
    }
}

impl Image {
    fn of(row: &TokenRow, moment: Moment) -> Self {
        Self { row: row.row.clone(), seen_at: moment.elapsed }
    }
}

impl Rows {
    pub(super) fn new(store: TokenRows, limits: LimitCache, clock: Clock, seals: bool, runtime: Handle) -> Self {
        let (background, operations) = (Background::new(runtime), OperationIds::new());
        Self { store, limits, clock, seals, background, operations, known: Cache::new(CAPACITY) }
    }

    pub(super) fn table(&self) -> &str {
        self.store.table()
    }

    /// Takes tokens.
    pub(super) async fn take(self: &Arc<Self>, key: &LimitKey, tokens: u64) -> Result<Taken, TakeError> {
        let known = self.known(key);
        let mut is_fresh = known.image().is_none();
        let ((limit, rate), _) = try_join(self.rate(key), self.image(key, &known, Consistency::Eventual)).await?;
        let mut busy = 0;
        // One moment for all attempts: what another client has credited meanwhile is not credited again, so that an attempt
        // after a lost race can take stored tokens.
        let mut moment = self.clock.moment();
        for attempt in 0..ATTEMPTS {
            let Image { row, seen_at } = self.image(key, &known, Consistency::Eventual).await?;
            let write = match fungible::decide(row.as_ref(), rate, tokens, moment.now, self.seals) {
                Step::Take(take) => Write::Take(take),
                Step::Refill(refill) => Write::Refill(refill),
                Step::Never => {
                    let LimitKey { resource, account } = key.clone();
                    return Err(TakeError::Never { tokens, limit, resource, account });
                }
                Step::Deny(_) if row.as_ref().is_some_and(|row| !row.is_managed(self.seals)) => {
                    match fungible::refill(row.as_ref(), rate, moment.now, self.seals) {
                        Some(adoption) => Write::Refill(adoption),
                        None => continue,
                    }
                }
                Step::Deny(denial) => {
                    if is_fresh || moment.elapsed.saturating_sub(seen_at) < RECENT {
                        return Err(TakeError::Denied(TokensDenied::new(key, tokens, denial)));
                    }
                    known.set(None);
                    is_fresh = true;
                    moment = self.clock.moment();
                    continue;
                }
            };
            is_fresh = true;
            let is_adoption = matches!(write, Write::Refill(Refill { tokens: 0, .. }));
            match self.write(key, &known, row, write, moment).await {
                // The row is adopted.
                Ok(Written::Applied(_)) if is_adoption => {}
                Ok(Written::Applied(row)) => {
                    let remaining = row.and_then(|row| row.row).map_or(0, |row| row.tokens);
                    return Ok(Taken { remaining: u64::try_from(remaining).unwrap_or(0) });
                }
                Ok(Written::Refused(_)) if attempt == 0 => {}
                Ok(Written::Refused(_)) => tokio::time::sleep(Core::backoff(attempt)).await,
                Err(error) => self.back_off(key, error, &mut busy).await?,
            }
        }
        Err(self.contended().into())
    }

    /// Takes tokens, and waits for them until the deadline.
    pub(super) async fn take_until(
        self: &Arc<Self>,
        key: &LimitKey,
        tokens: u64,
        deadline: Instant,
    ) -> Result<Taken, TakeError> {
        let known = self.known(key);
        let _turn = timeout_at(deadline, known.turn.lock()).await;
        loop {
            let taken = self.take(key, tokens).await;
            let Err(TakeError::Denied(denied)) = &taken else { return taken };
            let wait = denied.retry_after();
            let is_late = Instant::now().checked_add(wait).is_none_or(|end| end > deadline);
            if is_late || timeout_at(deadline, self.clock.sleep(wait)).await.is_err() {
                return taken;
            }
        }
    }

    /// Credits what has accrued.
    pub(super) async fn refill(self: &Arc<Self>, key: &LimitKey) -> Result<(), TakeError> {
        let rate = match self.rate(key).await {
            Err(TakeError::Blocked { .. }) => return Ok(()),
            found => found?.1,
        };
        let known = self.known(key);
        known.set(None);
        let mut busy = 0;
        for _ in 0..ATTEMPTS {
            let Image { row, .. } = self.image(key, &known, Consistency::Strong).await?;
            let moment = self.clock.moment();
            let Some(refill) = fungible::refill(row.as_ref(), rate, moment.now, self.seals) else { return Ok(()) };
            match self.write(key, &known, row, Write::Refill(refill), moment).await {
                Ok(Written::Applied(_)) => return Ok(()),
                Ok(Written::Refused(_)) => {}
                // It takes nothing, and its conditions prevent a second credit, so the caller can repeat it.
                Err(WriteError::Lost(error)) => return Err(self.failed(error).into()),
                Err(error) => self.back_off(key, error, &mut busy).await?,
            }
        }
        Err(self.contended().into())
    }

    /// Lets Python clients refill the row.
    pub(super) async fn release(&self, key: &LimitKey) -> Result<(), TakeError> {
        let released = self.store.release(row_key(key), self.clock.moment().now).await;
        Ok(released.map_err(|error| self.failed(error))?)
    }

    /// Returns the limit of an account, in tokens and as a rate.
    async fn rate(&self, key: &LimitKey) -> Result<(u64, Rate), TakeError> {
        let limit = self.limits.get(key).await?;
        let LimitKey { resource, account } = key.clone();
        match limit {
            None => Err(TakeError::UnknownLimit { resource, account }),
            Some(limit) if limit.tokens == 0 => Err(TakeError::Blocked { resource, account }),
            Some(limit) => match limit.window.and_then(|window| Rate::new(limit.tokens, window)) {
                Some(rate) => Ok((limit.tokens, rate)),
                None => Err(TakeError::UnknownWindow { resource, account }),
            },
        }
    }

    fn known(&self, key: &LimitKey) -> Arc<KnownRow> {
        let new = || Ok::<_, std::convert::Infallible>(Arc::default());
        let Ok(known) = self.known.get_or_insert_with(key, new);
        known
    }

    /// Returns the cached row, or reads it. It may be outdated: writes are conditional, and tokens rise only by accrual, so an
    /// older row denies nothing that a newer one grants.
    async fn image(&self, key: &LimitKey, known: &KnownRow, consistency: Consistency) -> Result<Image, TakeError> {
        if let Some(image) = known.image() {
            return Ok(image);
        }
        let seen_at = self.clock.moment().elapsed;
        let found = self.store.find(row_key(key), consistency).await.map_err(|error| self.failed(error))?;
        let image = Image { row: found.and_then(|found| found.row), seen_at };
        known.set(Some(image.clone()));
        Ok(image)
    }

    /// Writes in its own task, so that the write finishes if the caller is cancelled. After a lost response, reads the row to
    /// find out whether the write was applied.
    async fn write(
        self: &Arc<Self>,
        key: &LimitKey,
        known: &Arc<KnownRow>,
        seen: Option<Row>,
        write: Write,
        moment: Moment,
    ) -> Result<Written<TokenRow>, WriteError> {
        let (rows, key, known) = (Arc::clone(self), key.clone(), Arc::clone(known));
        let task = async move {
            let id = rows.operations.next();
            let mut written = rows.send(&key, seen.as_ref(), write, &id, moment.now).await;
            if matches!(written, Err(WriteError::Lost(_)))
                && let Some(row) = rows.find_written(&key, &id).await
            {
                written = Ok(Written::Applied(Some(row)));
            }
            known.observe(&written, moment);
            written
        };
        self.background.run(task.in_current_span()).await.unwrap_or_else(|error| {
            Err(WriteError::Lost(StoreError::Unavailable { operation: "UpdateItem", source: Box::new(error) }))
        })
    }

    async fn send(
        &self,
        key: &LimitKey,
        seen: Option<&Row>,
        write: Write,
        id: &str,
        now: EpochMillis,
    ) -> Result<Written<TokenRow>, WriteError> {
        let operation = RowOperation { id, now, seals: self.seals };
        match write {
            Write::Take(take) => self.store.take(row_key(key), take, operation).await,
            Write::Refill(refill) => self.store.refill(row_key(key), seen, refill, operation).await,
        }
    }

    /// Returns the row if its id shows that the write was applied. `None` if it was not, or if another write has replaced the
    /// id.
    async fn find_written(&self, key: &LimitKey, id: &str) -> Option<TokenRow> {
        match self.store.find(row_key(key), Consistency::Strong).await {
            Ok(row) => row.filter(|row| row.operation.as_deref() == Some(id)),
            Err(error) => {
                tracing::warn!(%error, "the outcome of a write could not be read");
                None
            }
        }
    }

    /// Backs off if the table is throttled. Returns any other error.
    async fn back_off(&self, key: &LimitKey, error: WriteError, busy: &mut u32) -> Result<(), TakeError> {
        match error {
            WriteError::Throttled { error, .. } => {
                *busy += 1;
                if *busy == BUSY_ATTEMPTS {
                    return Err(self.failed(error).into());
                }
                tokio::time::sleep(Core::backoff(*busy)).await;
                Ok(())
            }
            WriteError::NotWritten(error) => Err(self.failed(error).into()),
            WriteError::Lost(error) => {
                let LimitKey { resource, account } = key.clone();
                Err(TakeError::Lost { resource, account, error: self.failed(error) })
            }
        }
    }

    fn failed(&self, error: StoreError) -> TableError {
        TableError::new(self.table(), error)
    }

    fn contended(&self) -> TableError {
        self.failed(StoreError::Unavailable { operation: "UpdateItem", source: Box::new(Contended(ATTEMPTS)) })
    }
}

fn row_key(key: &LimitKey) -> RowKey<'_> {
    RowKey { resource: &key.resource, account: &key.account }
}
