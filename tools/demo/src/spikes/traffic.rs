//! One day of users' traffic, and a job of fixed work.

use crate::random::SeededRandom;

/// Seconds of the simulated day, which begins at midnight UTC.
pub(crate) const DAY: u32 = 24 * HOUR;
pub(crate) const HOUR: u32 = 60 * MINUTE;
pub(crate) const MINUTE: u32 = 60;

/// The job is due at noon: a schedule starts it, so it begins with a whole minute.
pub(crate) const SPIKE: u32 = 12 * HOUR;
/// How long the job takes if it is never held back.
pub(crate) const JOB_SECONDS: u32 = HOUR;
/// Write units a second of the users when the job is due.
pub(crate) const USERS_AT_SPIKE: u64 = 4_000;
/// Write units a second of the job if it is never held back. With the users, the table gets 18,000.
pub(crate) const JOB_RATE: u64 = 14_000;

/// Write units a second of the users at some seconds of the day, with straight lines between them. They peak in the morning,
/// so the table still has the capacity of that peak when the job is due.
const USERS: [(u32, u64); 10] = [
    (0, 1_500),
    (5 * HOUR, 1_500),
    (9 * HOUR + HOUR / 2, 5_600),
    (10 * HOUR + HOUR / 2, 5_600),
    (SPIKE, USERS_AT_SPIKE),
    (14 * HOUR, USERS_AT_SPIKE),
    (16 * HOUR, 5_000),
    (19 * HOUR, 5_000),
    (23 * HOUR, 1_500),
    (DAY, 1_500),
];

/// Jitter in thousandths: of each minute, and of each second.
const MINUTE_JITTER: usize = 10;
const SECOND_JITTER: usize = 100;

/// Returns the write units of the users for each second of the day.
pub(crate) fn users(seed: u64) -> Vec<u64> {
    let mut random = SeededRandom::new(seed);
    let mut seconds = Vec::new();
    for span in USERS.windows(2) {
        let &[from, to] = span else { continue };
        for now in from.0..to.0 {
            seconds.push(between(from, to, now));
        }
    }
    for minute in seconds.chunks_mut(MINUTE as usize) {
        let level = factor(&mut random, MINUTE_JITTER);
        for second in minute {
            *second = *second * level * factor(&mut random, SECOND_JITTER) / 1_000_000;
        }
    }
    seconds
}

/// Returns a factor in thousandths: 1 with this jitter.
fn factor(random: &mut SeededRandom, jitter: usize) -> u64 {
    (1_000 - jitter + random.below(2 * jitter + 1)) as u64
}

fn between(from: (u32, u64), to: (u32, u64), now: u32) -> u64 {
    let (length, passed) = (u64::from(to.0 - from.0), u64::from(now - from.0));
    (from.1 * (length - passed) + to.1 * passed) / length
}

/// The rate of a job from some second after its start on, in write units a second.
pub(crate) type Step = (u32, u64);

/// A job of fixed work: what the table throttles is left for later.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pace: &'static [Step],
    /// Write units that are not written yet.
    left: u64,
    started: Option<u32>,
    ended: Option<u32>,
}

impl Job {
    pub(crate) fn new(pace: &'static [Step]) -> Self {
        Self { pace, left: JOB_RATE * u64::from(JOB_SECONDS), started: None, ended: None }
    }

    pub(crate) fn start(&mut self, now: u32) {
        self.started.get_or_insert(now);
    }

    /// Returns the write units that the job requests in this second.
    pub(crate) fn demand(&self, now: u32) -> u64 {
        let Some(running) = self.started.and_then(|started| now.checked_sub(started)) else { return 0 };
        let step = self.pace.iter().rev().find(|(from, _)| *from <= running);
        step.map_or(0, |(_, rate)| *rate).min(self.left)
    }

    /// Counts what the table has served in this second.
    pub(crate) fn count(&mut self, served: u64, now: u32) {
        self.left = self.left.saturating_sub(served);
        if self.left == 0 {
            self.ended.get_or_insert(now + 1);
        }
    }

    /// The second in which the job has nothing left to write, if it has come.
    pub(crate) fn ended(&self) -> Option<u32> {
        self.ended
    }

    /// Seconds by which the job ends later than if it were never held back. `None` if it does not end that day.
    pub(crate) fn delay(&self) -> Option<u32> {
        self.ended.map(|ended| ended.saturating_sub(SPIKE + JOB_SECONDS))
    }
}
