//! What a bucket item holds, and what an exact bucket would.

use tidegate_domain::{bucket::Limit, state::BucketState, time::EpochMillis, tokens::Millitokens};

use super::loads::Load;

/// 2026-01-01T00:00:00Z, in milliseconds.
const START: i64 = 1_767_225_600_000;

/// An exact token bucket of a whole limit.
pub(super) struct Exact {
    /// Tokens times the period in microseconds: whole numbers, whatever has accrued.
    pub(super) level: i64,
    pub(super) at: i64,
}

impl Exact {
    pub(super) fn take(&mut self, load: &Load, now: i64) -> bool {
        let period = load.period * 1000;
        self.level = (self.level + (now - self.at) * load.refill).min(load.capacity * period);
        self.at = now;
        let wanted = load.tokens * period;
        let admits = self.level >= wanted;
        self.level -= if admits { wanted } else { 0 };
        admits
    }
}

pub(super) fn tokens(state: &BucketState<'_>, limit: &Limit<'_>) -> i64 {
    state.limits.get(limit).map_or(0, |limit_state| limit_state.tokens.get())
}

/// What a client's slow path makes of the tokens at the moment `now`.
pub(super) fn projected(state: &BucketState<'_>, limit: &Limit<'_>, now: i64) -> i64 {
    let Some(limit_state) = state.limits.get(limit) else { return 0 };
    let share = state.share(limit, limit_state);
    let elapsed = time(now).since(state.last_refill).as_millis();
    let accrued = i64::try_from(share.accrued(elapsed)).unwrap_or(i64::MAX);
    limit_state.tokens.get().saturating_add(accrued).min(share.capacity.get())
}

pub(super) fn consume(state: &mut BucketState<'_>, limit: &Limit<'static>, change: i64, consumed: i64) {
    if let Some(limit_state) = state.limits.get_mut(limit) {
        limit_state.tokens = Millitokens::new(limit_state.tokens.get() + change);
        limit_state.consumed = Millitokens::new(limit_state.consumed.get() + consumed);
    }
}

/// A moment of the simulation, in the clients' whole milliseconds.
pub(super) fn time(micros: i64) -> EpochMillis {
    EpochMillis::new(START + micros / 1000).unwrap_or(EpochMillis::EPOCH)
}
