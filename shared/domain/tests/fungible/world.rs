//! The row, the clients and the calls that are under way.

use tidegate_domain::{
    fungible::{Denial, Ours, Refill, Row, Step, Take, decide, refill},
    time::EpochMillis,
};

use crate::{
    Limit, NANOS_PER_MILLI, START,
    reference::{Grant, granted},
};

/// A write that is under way.
#[derive(Clone, Debug)]
pub struct Pending {
    pub client: usize,
    pub seen: Option<Row>,
    pub step: Step,
    /// The client's clock.
    pub now: EpochMillis,
    pub decided_at: i128,
}

/// One of our clients: how far its clock is ahead, in milliseconds, and what it last saw.
#[derive(Clone, Debug)]
pub struct Client {
    pub ahead: i64,
    pub image: Option<Image>,
}

/// The row as a client saw it; `None` if there was none.
#[derive(Clone, Debug)]
pub struct Image(pub Option<Row>);

#[derive(Debug)]
pub struct World {
    pub limit: Limit,
    pub seals: bool,
    pub now: i64,
    pub row: Option<Row>,
    pub clients: Vec<Client>,
    pub writes: Vec<Pending>,
    /// The moments of the takes whose refill is under way.
    pub python_refills: Vec<i64>,
    pub python_ahead: i64,
    pub grants: Vec<Grant>,
    pub refills: i128,
}

impl World {
    pub fn new(limit: Limit, seals: bool, ahead: &[i64]) -> Self {
        let clients = ahead.iter().map(|ahead| Client { ahead: *ahead, image: None }).collect();
        Self {
            limit,
            seals,
            now: START,
            row: None,
            clients,
            writes: Vec::new(),
            python_refills: Vec::new(),
            python_ahead: 0,
            grants: Vec::new(),
            refills: 0,
        }
    }

    pub fn nanos(&self) -> i128 {
        i128::from(self.now) * NANOS_PER_MILLI
    }

    fn clock(&self, client: usize) -> EpochMillis {
        EpochMillis::new(self.now + self.clients[client].ahead).unwrap()
    }

    /// A client decides on a request from the row that it last saw, or from the row.
    pub fn ask(&self, client: usize, tokens: u64, is_fresh: bool) -> Pending {
        let image = self.clients[client].image.clone().filter(|_| !is_fresh);
        let seen = image.map_or_else(|| self.row.clone(), |Image(row)| row);
        let now = self.clock(client);
        let step = decide(seen.as_ref(), self.limit.rate(), tokens, now, self.seals);
        Pending { client, seen, step, now, decided_at: self.nanos() }
    }

    /// A client refills without taking.
    pub fn ask_refill(&self, client: usize) -> Option<Pending> {
        let (seen, now) = (self.row.clone(), self.clock(client));
        let step = Step::Refill(refill(seen.as_ref(), self.limit.rate(), now, self.seals)?);
        Some(Pending { client, seen, step, now, decided_at: self.nanos() })
    }

    /// A write arrives. Returns whether its conditions hold.
    pub fn apply(&mut self, write: &Pending, is_answered: bool) -> bool {
        let is_applied = match write.step {
            Step::Take(take) => self.apply_take(take, write),
            Step::Refill(refill) => self.apply_refill(refill, write),
            Step::Deny(_) | Step::Never => false,
        };
        if is_answered {
            self.clients[write.client].image = Some(Image(self.row.clone()));
        }
        is_applied
    }

    fn apply_take(&mut self, take: Take, write: &Pending) -> bool {
        let Some(row) = &mut self.row else { return false };
        let Some(ours) = &mut row.ours else { return false };
        let taken = i64::try_from(take.tokens).unwrap();
        let holds = (taken..=take.at_most).contains(&row.tokens)
            && row.tokens == ours.left
            && ours.refilled >= take.since
            && (row.is_sealed || !self.seals);
        if !holds {
            return false;
        }
        // A late write counts as early as the bucket may have been full.
        let room = i128::from(self.limit.tokens) - i128::from(row.tokens);
        let full_at = ours.refilled.get() + room * self.limit.nanos() / i128::from(self.limit.tokens);
        let at = (i128::from(self.now) * NANOS_PER_MILLI).min(full_at).max(write.decided_at);
        row.tokens -= taken;
        ours.left -= taken;
        row.last_token = Some(write.now.get());
        self.grants.push(granted(at, take.tokens));
        true
    }

    fn apply_refill(&mut self, refill: Refill, write: &Pending) -> bool {
        let pins = |row: &Option<Row>| {
            row.as_ref().map(|row| {
                let last_refill = if row.ours.is_none() { row.last_refill } else { None };
                (row.tokens, row.ours.map(|ours| ours.refilled), last_refill)
            })
        };
        if pins(&self.row) != pins(&write.seen) {
            return false;
        }
        let old = self.row.take();
        let tokens = i128::from(old.as_ref().map_or(0, |row| row.tokens)) + refill.change;
        let last_token = old.as_ref().and_then(|row| row.last_token);
        self.row = Some(Row {
            tokens: i64::try_from(tokens).unwrap(),
            last_refill: old.as_ref().and_then(|row| row.last_refill),
            last_token: if refill.tokens > 0 { Some(write.now.get()) } else { last_token },
            is_sealed: self.seals || old.is_some_and(|row| row.is_sealed),
            ours: Some(Ours { refilled: refill.until, left: refill.left }),
        });
        self.refills += 1;
        if refill.tokens > 0 {
            // The row was as it was seen, so the write could have arrived at once.
            self.grants.push(granted(write.decided_at, refill.tokens));
        }
        true
    }

    /// The first write of `get_token`.
    pub fn python_takes(&mut self) -> bool {
        let now = self.now + self.python_ahead;
        let fail_safe =
            now - i64::try_from((self.limit.window.as_millis() / u128::from(self.limit.tokens)).max(1)).unwrap();
        let Some(row) = &mut self.row else {
            let row = Row { tokens: -1, last_refill: None, last_token: Some(now), is_sealed: false, ours: None };
            self.row = Some(row);
            self.python_refills.push(now);
            return true;
        };
        let has_tokens = row.tokens > 0;
        if !has_tokens && row.last_token.is_none_or(|time| time >= fail_safe) {
            return false;
        }
        row.tokens -= 1;
        row.last_token = Some(now);
        self.python_refills.push(now);
        self.grants.push(Grant { at: i128::from(self.now) * NANOS_PER_MILLI, tokens: 1, is_fail_safe: !has_tokens });
        true
    }

    /// The second write of `get_token`. It sets the tokens to the limit less one, because it takes the time since 1970 for
    /// the time since the last refill.
    pub fn python_refills(&mut self, number: usize) {
        let now = self.python_refills.swap_remove(number);
        let Some(row) = &mut self.row else { return };
        if !row.is_sealed && row.last_refill.is_none_or(|time| time < now) {
            row.tokens = i64::try_from(self.limit.tokens).unwrap() - 1;
            row.last_refill = Some(now);
        }
    }

    /// A client takes tokens, call by call. Returns its denial if it gets none.
    pub fn take(&mut self, client: usize, tokens: u64) -> Result<(), Denial> {
        for _ in 0..4 {
            let write = self.ask(client, tokens, false);
            if let Step::Deny(denial) = write.step {
                return Err(denial);
            }
            if self.apply(&write, true) {
                return Ok(());
            }
        }
        panic!("no other client writes: {self:?}");
    }
}
