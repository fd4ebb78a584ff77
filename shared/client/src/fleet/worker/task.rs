//! The task of a worker: it reads the summary, adopts the grant, and then reports.

use std::{
    collections::BTreeSet,
    future::pending,
    num::NonZeroU32,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fastrand::Rng;
use futures::future::{Either, select};
use tidegate_aws::{
    error::{StoreError, causes},
    rates::worker::{SeenSummary, WorkerFiles},
};
use tidegate_domain::{
    lease::{
        LeaseKeys,
        demand::{Demand, Sample},
        fleet::LeaseSummary,
        holder::{Allowance, Basis},
        should_report_early,
    },
    rates::{Rate, Rates, wait},
    throttle::{CapacityKind, Units, limit::RateSteps},
};
use tokio::{sync::watch, time::timeout};

use super::status::View;
use crate::{
    clock::Clock,
    fleet::{FilesError, Throttle, throttle::WeakThrottle},
    metrics,
};

/// The time between two reports, give or take a tenth: that of Bulk Executor's workers.
const INTERVAL: Duration = Duration::from_secs(5);

/// How often the worker measures what its callers use. While it wants more than it has, it also looks at the summary then.
const TICK: Duration = Duration::from_secs(1);

/// The aggregator hardly ever writes two summaries within this time.
const NEXT_SUMMARY: Duration = Duration::from_millis(3_500);

/// The log warns if the worker has no lease for so long.
const LONGEST_START: Duration = Duration::from_secs(30);

/// A call that takes longer has failed, with all its attempts. The next one is due soon.
const LONGEST_CALL: Duration = Duration::from_secs(2);

/// The name of the call that reads the summary.
const SUMMARY: &str = "summary";

pub(super) struct Task {
    files: WorkerFiles,
    /// Ends the task when nothing else refers to it.
    throttle: WeakThrottle,
    clock: Clock,
    random: Rng,
    view: Arc<Mutex<View>>,
    cap: Option<Rates>,
    weight: NonZeroU32,
    /// The tag of the summary that was read last.
    tag: Option<String>,
    /// When the demand was measured last.
    measured: Duration,
    reads: Meter,
    writes: Meter,
    reported: Reported,
    /// The basis of the allowance that was logged last, and since when the worker has had it.
    basis: (Basis, Duration),
    has_warned: bool,
    /// How many reports have failed in a row.
    failed: u32,
    /// The calls whose last attempt has failed.
    failing: BTreeSet<&'static str>,
}

/// The last report.
#[derive(Default)]
struct Reported {
    begun: Duration,
    wants: Rates,
    /// What had been used by then: reads and writes.
    consumed: [Units; 2],
}

/// Measures the demand for one kind of capacity.
struct Meter {
    kind: CapacityKind,
    demand: Demand,
    /// What had been used, and how many callers had waited, at the last measurement.
    used: Units,
    delayed: u64,
}

impl Meter {
    fn new(kind: CapacityKind) -> Self {
        Self { kind, demand: Demand::default(), used: Units::default(), delayed: 0 }
    }

    /// Measures what the callers have done since the last measurement, `elapsed` ago.
    fn measure(&mut self, throttle: &Throttle, elapsed: Duration) {
        let usage = throttle.usage_of(self.kind);
        let sample = Sample {
            used: rate(self.used, usage.consumed, elapsed),
            allowed: self.kind.of(throttle.limit().at(throttle.now())),
            has_waited: usage.waiting > 0 || usage.delayed > self.delayed,
        };
        self.demand.observe(sample);
        (self.used, self.delayed) = (usage.consumed, usage.delayed);
    }
}

impl Task {
    pub(super) fn new(
        files: WorkerFiles,
        throttle: &Throttle,
        view: Arc<Mutex<View>>,
        cap: Option<Rates>,
        weight: NonZeroU32,
    ) -> Self {
        Self {
            files,
            throttle: throttle.downgrade(),
            clock: throttle.time_source().clone(),
            // By a manual clock, a worker does the same in each run.
            random: if matches!(throttle.time_source(), Clock::System(_)) { Rng::new() } else { Rng::with_seed(1) },
            view,
            cap,
            weight,
            tag: None,
            measured: Duration::ZERO,
            reads: Meter::new(CapacityKind::Read),
            writes: Meter::new(CapacityKind::Write),
            reported: Reported::default(),
            basis: (Basis::Start, Duration::ZERO),
            has_warned: false,
            failed: 0,
            failing: BTreeSet::new(),
        }
    }

    /// Works until the worker is stopped, or nothing uses its throttle any more. Then deletes the worker's file.
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) -> Result<(), FilesError> {
        // Workers that start together do not report together.
        let first = TICK.mul_f64(self.random.f64());
        let mut has_stopped = self.pause(&mut stopped, first).await;
        let mut due = Duration::ZERO;
        while let Some(throttle) = self.throttle.upgrade() {
            if has_stopped {
                throttle.set_steps(RateSteps::constant(Rates::default()));
                self.view().is_stopped = true;
                break;
            }
            let now = throttle.now();
            let wants = self.measure(&throttle, now);
            if now >= due || should_report_early(self.reported.wants, wants) {
                self.look(&throttle).await;
                self.failed = if self.report(&throttle, wants).await { 0 } else { self.failed + 1 };
                // A report that has failed is repeated after a second, then after two, and so on.
                let interval = if self.failed == 0 { INTERVAL } else { INTERVAL.min(TICK * self.failed) };
                due = now + wait(interval, self.random.f64());
            } else if self.should_look(wants, now) {
                self.look(&throttle).await;
            }
            self.log_basis(throttle.now());
            drop(throttle);
            let tick = wait(TICK, self.random.f64());
            has_stopped = self.pause(&mut stopped, tick).await;
        }
        within(self.files.delete()).await
    }

    /// Waits. Returns early, and then `true`, if the worker is stopped.
    async fn pause(&self, stopped: &mut watch::Receiver<bool>, time: Duration) -> bool {
        let stop = async {
            if stopped.wait_for(|stopped| *stopped).await.is_err() {
                // The worker was dropped. Its throttle may be in use.
                pending::<()>().await;
            }
        };
        matches!(select(pin!(stop), pin!(self.clock.sleep(time))).await, Either::Left(_))
    }

    /// Measures what the callers use. Returns what they would use without a limit of the fleet.
    fn measure(&mut self, throttle: &Throttle, now: Duration) -> Rates {
        let elapsed = now.saturating_sub(self.measured);
        // The first time, nothing can have been used.
        if !elapsed.is_zero() {
            self.reads.measure(throttle, elapsed);
            self.writes.measure(throttle, elapsed);
            self.measured = now;
        }
        let maximum = throttle.limit().ramp(now);
        let wants =
            Rates { read: self.reads.demand.wants(maximum.read), write: self.writes.demand.wants(maximum.write) };
        self.view().wants = wants;
        wants
    }

    /// Whether the lease ends soon, or the worker wants more than it has and there may be a new summary.
    fn should_look(&self, wants: Rates, now: Duration) -> bool {
        let view = self.view();
        let has = view.holder.allowance(now).rates;
        let may_be_new = view.summary.is_none_or(|found| now.saturating_sub(found) >= NEXT_SUMMARY);
        view.holder.ends_soon(now) || may_be_new && (wants.read > has.read || wants.write > has.write)
    }

    /// Reads the summary, and adopts its grant.
    async fn look(&mut self, throttle: &Throttle) {
        let seen = within(self.files.summary(self.tag.as_deref())).await;
        self.count(SUMMARY, &seen);
        let Ok(SeenSummary::Found { tag, lease }) = seen else { return };
        self.tag = tag;
        let now = throttle.now();
        let mut view = self.view();
        view.summary = Some(now);
        let acknowledged = lease.and_then(|LeaseSummary { terms, reports }| {
            let number = reports.get(self.files.worker())?;
            Some((terms, *number))
        });
        view.terms = acknowledged.map(|(terms, _)| terms);
        if let Some((terms, number)) = acknowledged
            && view.holder.adopt(&terms, number, now)
        {
            throttle.set_steps(view.holder.steps());
        }
    }

    /// Begins a report, and writes it. Returns whether the store has confirmed it.
    async fn report(&mut self, throttle: &Throttle, wants: Rates) -> bool {
        let now = throttle.now();
        let consumed = [CapacityKind::Read, CapacityKind::Write].map(|kind| throttle.usage_of(kind).consumed);
        let elapsed = now.saturating_sub(self.reported.begun);
        let [read, write] = [0, 1].map(|kind| rate(self.reported.consumed[kind], consumed[kind], elapsed));
        metrics::fleet_rates(Rates { read, write }, throttle.limit().at(now));
        self.reported = Reported { begun: now, wants, consumed };
        let cannot_read = self.failing.contains(SUMMARY) || self.has_warned;
        let report = {
            let mut view = self.view();
            let Allowance { rates, basis } = view.holder.allowance(now);
            // A worker that cannot read the summary would not learn of a grant.
            let wants = if cannot_read && basis != Basis::Lease { wants.min(rates) } else { wants };
            let report = view.holder.begin_report(wants, self.weight, now);
            throttle.set_steps(view.holder.steps());
            report
        };
        let keys = LeaseKeys { report, cap: self.cap };
        let written = within(self.files.report(self.clock.moment().now, Rates { read, write }, &keys)).await;
        self.count("report", &written);
        if written.is_ok() {
            let mut view = self.view();
            view.confirmed = Some(throttle.now());
            view.holder.confirm(report.number, throttle.now());
            throttle.set_steps(view.holder.steps());
        }
        written.is_ok()
    }

    /// Counts a call. Logs the first failure, and the first success after it.
    fn count<T>(&mut self, call: &'static str, result: &Result<T, FilesError>) {
        metrics::fleet_call(call, result.is_ok());
        let worker = self.files.worker();
        match result {
            Err(error) if self.failing.insert(call) => {
                tracing::warn!(worker, call, error = causes(error), "a call to the bucket of the fleet has failed");
            }
            Ok(_) if self.failing.remove(call) => {
                tracing::info!(worker, call, "a call to the bucket of the fleet has succeeded again");
            }
            _ => {}
        }
    }

    /// Logs whether the worker holds a lease, when that has changed, and once if it holds none for long.
    fn log_basis(&mut self, now: Duration) {
        let Allowance { rates, basis } = self.view().holder.allowance(now);
        let (last, since) = self.basis;
        if basis == last {
            if basis == Basis::Start && !self.has_warned && now.saturating_sub(since) >= LONGEST_START {
                self.has_warned = true;
                let (worker, summary) = (self.files.worker(), self.files.summary_key());
                tracing::warn!(
                    worker,
                    summary,
                    "the worker gets no lease: does rate-aggregator write this summary, may the worker read it, and is there a cap?"
                );
            }
            return;
        }
        (self.basis, self.has_warned) = ((basis, now), false);
        let (worker, read, write) = (self.files.worker(), rates.read.units(), rates.write.units());
        match basis {
            Basis::Lease => tracing::info!(worker, read, write, "the worker holds a lease"),
            Basis::SafeShare => tracing::warn!(worker, read, write, "the lease has ended: the safe share is left"),
            Basis::Start => tracing::warn!(worker, read, write, "the worker has lost its lease"),
        }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was used a second, between two readings.
fn rate(before: Units, after: Units, elapsed: Duration) -> Rate {
    let used = u128::from(after.millionths().saturating_sub(before.millionths())) * 1_000_000_000;
    let rate = used.checked_div(elapsed.as_nanos()).unwrap_or(0);
    Rate::from_millionths(u64::try_from(rate).unwrap_or(u64::MAX))
}

async fn within<T>(call: impl Future<Output = Result<T, StoreError>>) -> Result<T, FilesError> {
    Ok(timeout(LONGEST_CALL, Box::pin(call)).await.map_err(|_| FilesError::TimedOut(LONGEST_CALL))??)
}
