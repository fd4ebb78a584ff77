//! The level and the growth: how a fleet uses a room up without exceeding it, in whole millionths of a unit.
//!
//! This is max-min fair allocation by water-filling: each worker's part rises from what it holds to what it wants, in
//! proportion to its weight.

use std::{cmp::Ordering, num::NonZeroU32};

use crate::rates::Rate;

/// What a worker wants and holds of one kind of capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// What the worker would use without a limit.
    pub wants: Rate,
    /// What the worker may use already.
    pub held: Rate,
    /// How many shares the worker gets.
    pub weight: NonZeroU32,
}

/// Returns `rate * weight`, at most [`Rate::MAX`].
#[must_use]
pub fn by_weight(rate: Rate, weight: NonZeroU32) -> Rate {
    Rate::from_millionths(rate.millionths().saturating_mul(weight.get().into()))
}

/// Returns the greatest level, at most `room`, with `sum(min(wants, level * weight)) <= room`.
///
/// It is `room` itself if all workers can have what they want. Takes `O(n log n)`.
///
/// ```
/// use tidegate_domain::{lease::{EQUAL_WEIGHT, level::{Demand, level}}, rates::Rate};
///
/// let rate = Rate::from_millionths;
/// let wants = |wants| Demand { wants: rate(wants), held: rate(0), weight: EQUAL_WEIGHT };
/// // The first worker gets the 10 that it wants, and the others get 45 each.
/// assert_eq!(level(&[wants(10), wants(80), wants(50)], rate(100)), rate(45));
/// ```
#[must_use]
pub fn level(demands: &[Demand], room: Rate) -> Rate {
    let columns =
        demands.iter().map(|demand| Column { floor: 0, ceiling: demand.wants.millionths(), of: demand.weight });
    fill(columns, room).map_or(Rate::default(), |level| level.min(room))
}

/// Returns the greatest growth, at most `level`, with
/// `sum(max(held, min(wants, level * weight, growth * weight))) <= room`. It is 0 if the workers hold more than `room`.
///
/// Takes `O(n log n)`.
///
/// ```
/// use tidegate_domain::{lease::{EQUAL_WEIGHT, level::{Demand, growth, level}}, rates::Rate};
///
/// let rate = Rate::from_millionths;
/// let demand = |held| Demand { wants: rate(100), held: rate(held), weight: EQUAL_WEIGHT };
/// // The first worker has to shrink from 70 to 50. Until then, the other one can grow to 30.
/// let demands = [demand(70), demand(10)];
/// assert_eq!(level(&demands, rate(100)), rate(50));
/// assert_eq!(growth(&demands, rate(50), rate(100)), rate(30));
/// ```
#[must_use]
pub fn growth(demands: &[Demand], level: Rate, room: Rate) -> Rate {
    // The result is at most the level, so `level * weight` is no further limit.
    let columns = demands.iter().map(|demand| Column {
        floor: demand.held.millionths(),
        ceiling: demand.wants.millionths(),
        of: demand.weight,
    });
    fill(columns, room).map_or(Rate::default(), |growth| growth.min(level))
}

/// A worker's part: `max(floor, min(ceiling, height * weight))`.
struct Column {
    floor: u64,
    ceiling: u64,
    of: NonZeroU32,
}

/// A height, as a fraction, at which a column starts or ends to rise.
struct Step {
    amount: u128,
    weight: u128,
    starts: bool,
    /// The height, rounded down. It decides almost all comparisons, and is faster to compare than a fraction.
    whole: u64,
}

impl Step {
    fn new(amount: u64, of: NonZeroU32, starts: bool) -> Self {
        let whole = amount / u64::from(of.get());
        Self { amount: amount.into(), weight: of.get().into(), starts, whole }
    }

    /// Compares heights exactly. Both products fit: amounts and weights have 64 and 32 bits.
    fn by_height(&self, other: &Self) -> Ordering {
        let exact = || (self.amount * other.weight).cmp(&(other.amount * self.weight));
        self.whole.cmp(&other.whole).then_with(exact)
    }
}

/// Returns the greatest height at which the columns together are no more than `room`. It is the greatest rate if they
/// never exceed `room`, and `None` if even their floors do.
fn fill(columns: impl Iterator<Item = Column>, room: Rate) -> Option<Rate> {
    let room = u128::from(room.millionths());
    // The columns that do not rise at a height are `still` together; the others are `height * rising`.
    let (mut still, mut rising) = (0_u128, 0_u128);
    let mut steps = Vec::new();
    for Column { floor, ceiling, of } in columns {
        still += u128::from(floor);
        if floor < ceiling {
            steps.push(Step::new(floor, of, true));
            steps.push(Step::new(ceiling, of, false));
        }
    }
    if still > room {
        return None;
    }
    // The order of steps at one height does not matter: no column starts and ends at the same one.
    steps.sort_unstable_by(Step::by_height);
    for Step { amount, weight, starts, .. } in steps {
        if still * weight + rising * amount > room * weight {
            break;
        }
        if starts {
            (still, rising) = (still - amount, rising + weight);
        } else {
            (still, rising) = (still + amount, rising - weight);
        }
    }
    let height = (room - still).checked_div(rising).and_then(|height| u64::try_from(height).ok());
    Some(height.map_or(Rate::MAX, Rate::from_millionths))
}
