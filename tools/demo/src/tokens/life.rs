//! What a client will do with a reservation, and how the end of its resource will be told.

use rand::{RngExt as _, rngs::StdRng};

/// For how many seconds a client holds a token, if nobody frees it.
pub(super) const HELD: i64 = 7_200;
/// For how many seconds a client holds one for a resource that outlives the run.
pub(super) const HELD_FOR_LONG: i64 = 90 * 86_400;
/// The most seconds between a resource's end and the writing of its token.
const SLOWEST_WRITE: i64 = 100;

/// The scenario of a reservation. Scenarios take turns, so each occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Plain,
    /// The resource ends before its token is written.
    Early,
    /// The event comes minutes later.
    Late,
    /// The event never comes.
    Lost,
    /// The event comes again.
    Repeated,
    /// The resource ends soon, and the client uses the same reservation for another one.
    Reused,
    /// The client starts nothing.
    Abandoned,
}

/// Seconds between one thing and the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Life {
    /// From the reservation to the start of the resource.
    pub(super) start: i64,
    /// From the start to the writing of the token.
    pub(super) write: i64,
    pub(super) end: i64,
    /// From the end to each coming of its event.
    pub(super) told: Vec<i64>,
}

impl Fate {
    pub(super) const fn of(turn: usize) -> Self {
        match turn % 20 {
            2 | 11 => Self::Early,
            4 => Self::Late,
            6 => Self::Lost,
            8 | 13 | 17 => Self::Repeated,
            15 => Self::Reused,
            18 => Self::Abandoned,
            _ => Self::Plain,
        }
    }
}

impl Life {
    pub(super) fn draw(fate: Fate, rng: &mut StdRng) -> Self {
        let (start, soon) = (rng.random_range(1..20), rng.random_range(1..5));
        let (write, end) = match fate {
            Fate::Early => {
                let end = rng.random_range(1..10);
                (end + rng.random_range(1..=SLOWEST_WRITE), end)
            }
            Fate::Reused => (rng.random_range(1..5), rng.random_range(6..30)),
            _ => (rng.random_range(1..20), rng.random_range(60..1_200)),
        };
        let told = match fate {
            Fate::Late => vec![rng.random_range(300..1_200)],
            Fate::Lost => vec![],
            Fate::Repeated => vec![soon, soon + rng.random_range(0..5), soon + rng.random_range(5..600)],
            _ => vec![soon],
        };
        Self { start, write, end, told }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use tidegate_domain::sweep::{Outcome, Removals, decide};
    use token_sweeper::config::Config;

    use super::*;
    use crate::tokens::{
        client::RESERVED,
        queue::{MAX_RECEIVES, VISIBILITY},
    };

    #[test]
    fn a_token_is_written_while_its_reservation_lives_and_its_end_is_told_again_until_then() {
        let config = Config::read(|name| (name == "LIMITER_TABLES_BASE_NAME").then(|| "demo".to_owned())).unwrap();
        for turn in 0..2_000 {
            let life = Life::draw(Fate::of(turn), &mut StdRng::seed_from_u64(turn as u64));
            assert!(life.start + life.write < RESERVED, "{life:?}");
            assert!(life.start + life.end < HELD, "{life:?}");
            let age = std::time::Duration::from_secs((life.write - life.end).try_into().unwrap_or_default());
            assert_eq!(decide(&Removals::default(), age, config.grace), Outcome::Early, "{life:?}");
        }
        let grace = i64::try_from(config.grace.as_secs()).unwrap();
        assert!(i64::from(MAX_RECEIVES - 1) * VISIBILITY > grace);
    }

    #[test]
    fn only_an_early_end_comes_before_its_token() {
        for turn in 0..200 {
            let (fate, mut rng) = (Fate::of(turn), StdRng::seed_from_u64(turn as u64));
            let life = Life::draw(fate, &mut rng);
            // An abandoned reservation has no life, whatever is drawn.
            if fate == Fate::Early {
                assert!(life.end < life.write);
            } else if fate == Fate::Reused {
                assert!(life.write < life.end);
            }
            assert_eq!(life.told.is_empty(), fate == Fate::Lost);
            assert_eq!(life.told.len() > 1, fate == Fate::Repeated);
        }
    }
}
