//! Announcements: which are accepted, and what those in force need together.

use std::time::Duration;

use super::{Capacity, Target};
use crate::time::EpochMillis;

/// The most units of one announcement: a scalable target counts in 32 bits.
///
/// AWS: [`MinCapacity` is an integer](https://docs.aws.amazon.com/autoscaling/application/APIReference/API_RegisterScalableTarget.html).
pub const MOST_UNITS: Capacity = Capacity::new(2_000_000_000);

/// The most characters of an id and of a caller's name.
const LONGEST_NAME: usize = 128;

/// Work that was announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Unique among the announcements in force.
    pub id: String,
    /// Who announced it: a name that callers give themselves, or nothing.
    pub caller: String,
    /// What it needs: the table, an index, or both.
    pub needs: Vec<Need>,
    /// The units a second that the work will consume on each of its targets.
    pub units: Capacity,
    /// When it was first announced.
    pub since: EpochMillis,
    /// When it ends.
    pub until: EpochMillis,
    /// When its capacity was found to be provisioned, so that the work may have started.
    pub ready: Option<EpochMillis>,
}

/// What an announcement needs of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The target.
    pub target: Target,
    /// The consumption of other traffic, not announced, when this was announced.
    pub other: Capacity,
}

/// What the announcements in force need of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The consumption of other traffic: the highest that the announcements were made with.
    pub other: Capacity,
    /// The sum of the announced units.
    pub announced: Capacity,
}

/// A request to announce work, or to announce it again under the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// See [`Announcement::id`] and [`is_id`].
    pub id: String,
    /// See [`Announcement::caller`] and [`is_caller`].
    pub caller: String,
    /// What the work needs: one target, or an index and its table.
    pub targets: Vec<Target>,
    /// See [`Announcement::units`].
    pub units: Capacity,
    /// How long the announcement lasts from now on.
    pub duration: Duration,
}

/// What was measured of a target before an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The consumption in the last complete minute.
    pub consumption: Capacity,
    /// When that minute began.
    pub minute: EpochMillis,
    /// The maximum of the scalable target. `None` for an on-demand table, which has none.
    pub maximum: Option<Capacity>,
}

/// What callers may announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most announced units in force for one target.
    pub units: Option<Capacity>,
    /// The most announced units in force for one target from one caller.
    pub units_per_caller: Option<Capacity>,
    /// The longest announcement.
    pub duration: Duration,
    /// The most announcements in force.
    pub announcements: usize,
}

/// Why an announcement is not accepted. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another announcement in force has the id.
    #[error(
        "id {id:?} is in force for {targets} from caller {caller:?} until {}: release it, or choose another id",
        until.rfc3339()
    )]
    IdTaken {
        /// The id.
        id: String,
        /// What that announcement needs.
        targets: String,
        /// Who announced it.
        caller: String,
        /// When it ends.
        until: EpochMillis,
    },
    /// The target can never have the capacity.
    #[error(
        "the maximum of {target} is {maximum}, too low by {} for a consumption of {other} and {announced} announced units: \
         raise the maximum of the scalable target, or announce less",
        other.plus(*announced).minus(*maximum)
    )]
    MaximumTooLow {
        /// The target.
        target: Target,
        /// Its maximum.
        maximum: Capacity,
        /// The consumption of other traffic.
        other: Capacity,
        /// What would be announced, with this request.
        announced: Capacity,
    },
    /// A limit of announced units would be exceeded.
    #[error("{announced} units would be announced for {target}{whose}: the limit is {limit}")]
    TooManyUnits {
        /// The target.
        target: Target,
        /// What would be announced, with this request.
        announced: Capacity,
        /// What is allowed.
        limit: Capacity,
        /// Whose limit it is: empty, or ` by` a caller.
        whose: String,
    },
    /// The announcement would last too long.
    #[error("for_seconds is {}: the limit is {}", asked.as_secs(), limit.as_secs())]
    TooLong {
        /// What was asked for.
        asked: Duration,
        /// What is allowed.
        limit: Duration,
    },
    /// Too many announcements would be in force.
    #[error("{0} announcements are in force, which is the limit")]
    TooMany(usize),
}

/// Returns whether a text can be an announcement's id: 1 to 128 letters, digits and `_-.:/#@` of ASCII.
#[must_use]
pub fn is_id(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/#@".contains(&byte);
    (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// Returns whether a text can name a caller: up to 128 characters, none of them a control character.
#[must_use]
pub fn is_caller(text: &str) -> bool {
    text.chars().count() <= LONGEST_NAME && !text.chars().any(char::is_control)
}

impl Demand {
    /// No demand.
    pub const NONE: Self = Self { other: Capacity::ZERO, announced: Capacity::ZERO };

    /// Returns the consumption that is expected.
    #[must_use]
    pub const fn total(self) -> Capacity {
        self.other.plus(self.announced)
    }
}

impl Announcement {
    /// Returns whether the announcement counts at the moment `now`.
    #[must_use]
    pub fn is_in_force(&self, now: EpochMillis) -> bool {
        self.until > now
    }

    /// Returns what it needs of a target, if anything.
    #[must_use]
    pub fn need(&self, target: &Target) -> Option<&Need> {
        self.needs.iter().find(|need| need.target == *target)
    }

    fn targets(&self) -> impl Iterator<Item = &Target> {
        self.needs.iter().map(|need| &need.target)
    }
}

/// Returns what the announcements in force at the moment `now` need of a target. `None` if there are none.
#[must_use]
pub fn demand<'a>(
    announcements: impl IntoIterator<Item = &'a Announcement>,
    target: &Target,
    now: EpochMillis,
) -> Option<Demand> {
    let in_force = announcements.into_iter().filter(|announcement| announcement.is_in_force(now));
    let needs = in_force.filter_map(|announcement| Some((announcement.need(target)?.other, announcement.units)));
    needs.fold(None, |demand: Option<Demand>, (other, units)| {
        let Demand { other: highest, announced } = demand.unwrap_or(Demand::NONE);
        Some(Demand { other: highest.max(other), announced: announced.plus(units) })
    })
}

/// Decides on a request at the moment `now`. Returns the announcement to write.
///
/// `measured` holds what was measured of each target of the request, in its order. `announcements` are all that are stored,
/// in force or not. An announcement in force with the same id, caller and targets is made again: its units are replaced, and
/// it never ends earlier than before.
///
/// Announced work that may have started is a part of the consumption. It is not counted twice: its units are taken off, but
/// never so that less other traffic is left than an announcement in force was made with.
///
/// # Errors
/// See [`Refusal`].
pub fn accept(
    request: Request,
    measured: &[Measured],
    announcements: &[Announcement],
    limits: &Limits,
    now: EpochMillis,
) -> Result<Announcement, Refusal> {
    if request.duration > limits.duration {
        return Err(Refusal::TooLong { asked: request.duration, limit: limits.duration });
    }
    let in_force: Vec<_> = announcements.iter().filter(|announcement| announcement.is_in_force(now)).collect();
    let (same, others): (Vec<&Announcement>, Vec<_>) =
        in_force.iter().partition(|announcement| announcement.id == request.id);
    let same = same.first().copied();
    if let Some(same) = same
        && !(same.caller == request.caller && same.targets().eq(&request.targets))
    {
        let targets: Vec<_> = same.targets().map(ToString::to_string).collect();
        let (caller, until) = (same.caller.clone(), same.until);
        return Err(Refusal::IdTaken { id: request.id, targets: targets.join(" and "), caller, until });
    }
    if others.len() >= limits.announcements {
        return Err(Refusal::TooMany(others.len()));
    }
    let mut needs = Vec::new();
    for (target, measured) in request.targets.iter().zip(measured) {
        let sum = |announcements: &mut dyn Iterator<Item = &&Announcement>| {
            announcements.map(|announcement| announcement.units).fold(Capacity::ZERO, Capacity::plus)
        };
        let on_target = |announcement: &&&Announcement| announcement.need(target).is_some();
        let mine = |announcement: &&&Announcement| announcement.caller == request.caller;
        let announced = sum(&mut others.iter().filter(on_target)).plus(request.units);
        check(limits.units, announced, target, String::new)?;
        let by_caller = sum(&mut others.iter().filter(on_target).filter(mine)).plus(request.units);
        check(limits.units_per_caller, by_caller, target, || format!(" by caller {:?}", request.caller))?;

        let may_have_started =
            |announcement: &&&Announcement| announcement.ready.is_some_and(|ready| ready <= measured.minute);
        let started = sum(&mut in_force.iter().filter(on_target).filter(may_have_started));
        let known = in_force.iter().filter_map(|announcement| announcement.need(target)).map(|need| need.other).max();
        let other = measured.consumption.minus(started).max(known.unwrap_or_default());
        if let Some(maximum) = measured.maximum
            && other.plus(announced) > maximum
        {
            return Err(Refusal::MaximumTooLow { target: target.clone(), maximum, other, announced });
        }
        needs.push(Need { target: target.clone(), other });
    }
    let until = now.after(request.duration);
    Ok(Announcement {
        needs,
        since: same.map_or(now, |same| same.since),
        until: same.map_or(until, |same| same.until.max(until)),
        // More units need more capacity, which is not ready yet.
        ready: same.filter(|same| same.units >= request.units).and_then(|same| same.ready),
        id: request.id,
        caller: request.caller,
        units: request.units,
    })
}

fn check(
    limit: Option<Capacity>,
    announced: Capacity,
    target: &Target,
    whose: impl FnOnce() -> String,
) -> Result<(), Refusal> {
    match limit {
        Some(limit) if announced > limit => {
            Err(Refusal::TooManyUnits { target: target.clone(), announced, limit, whose: whose() })
        }
        _ => Ok(()),
    }
}
