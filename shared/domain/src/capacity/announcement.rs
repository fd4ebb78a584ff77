//! Announcements: which are accepted, and what those in force need together.

use std::{collections::BTreeMap, time::Duration};

use super::{Capacity, Target};
use crate::time::EpochMillis;

/// The most units of one announcement: a scalable target counts in 32 bits.
///
/// AWS: [`MinCapacity` is an integer](https://docs.aws.amazon.com/autoscaling/application/APIReference/API_RegisterScalableTarget.html).
pub const MOST_UNITS: Capacity = Capacity::new(2_000_000_000);

const MINUTE: Duration = Duration::from_mins(1);

/// How long it is known that a run has released an announcement. Its requests end within minutes.
const RUNS_KEPT: Duration = Duration::from_mins(10);

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
    /// When its capacity was found to be provisioned.
    pub ready: Option<EpochMillis>,
    /// When it was released. A request that began earlier does not announce it again.
    pub released: Option<EpochMillis>,
    /// Which runs of programs have released it lately, and when. They do not announce it again.
    pub released_runs: BTreeMap<String, EpochMillis>,
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
    /// The consumption of other traffic: what the latest announcement was made with.
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
    /// Which run of a program asks: see [`Announcement::released_runs`] and [`is_id`].
    pub run: Option<String>,
}

/// What was measured of a target before an announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The consumption in the last minutes. The metric of the very last one may not be complete yet.
    pub minutes: Vec<Minute>,
    /// The maximum of the scalable target. `None` for an on-demand table, which has none.
    pub maximum: Option<Capacity>,
    /// Whether auto scaling may lower a capacity that was raised.
    pub may_scale_in: bool,
}

/// The consumption in a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minute {
    /// When the minute began.
    pub from: EpochMillis,
    /// The mean consumption.
    pub consumption: Capacity,
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
    /// A raised capacity would stay.
    #[error(
        "auto scaling may not scale in {0}, so its capacity would stay raised: allow its policy to scale in, and resume its \
         dynamic scaling"
    )]
    ScaleInDisabled(Target),
    /// A limit of announced units would be exceeded.
    #[error(
        "{announced} units would be announced for {target}{whose}: the limit is {limit}; announce less, or wait until \
         another announcement has ended"
    )]
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
    #[error(
        "for_seconds is {}: the limit is {}; announce again with the same id before the end",
        asked.as_secs(),
        limit.as_secs()
    )]
    TooLong {
        /// What was asked for.
        asked: Duration,
        /// What is allowed.
        limit: Duration,
    },
    /// Too many announcements would be in force.
    #[error("{0} announcements are in force, which is the limit: release one, or wait until one has ended")]
    TooMany(usize),
    /// The announcement was released after the request had begun, or by the same run.
    #[error(
        "id {0:?} was released after this request had begun, or by the same run: announce again, if the work is still to \
         be done"
    )]
    Released(String),
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
    /// Returns whether the announcement counts at the moment `now`. By any clock, it does not after its release.
    #[must_use]
    pub fn is_in_force(&self, now: EpochMillis) -> bool {
        self.until > now && self.released.is_none()
    }

    /// Returns what it needs of a target, if anything.
    #[must_use]
    pub fn need(&self, target: &Target) -> Option<&Need> {
        self.needs.iter().find(|need| need.target == *target)
    }

    fn targets(&self) -> impl Iterator<Item = &Target> {
        self.needs.iter().map(|need| &need.target)
    }

    /// Returns the announcement as it is after its release at the moment `now`, by a run.
    #[must_use]
    pub fn release(self, run: Option<&str>, now: EpochMillis) -> Self {
        let mut released_runs = self.runs_at(now);
        released_runs.extend(run.map(|run| (run.to_owned(), now)));
        // A clock may be slow: a release is never moved back.
        let released = self.released.map_or(now, |released| now.max(released.after(Duration::from_millis(1))));
        Self { until: self.until.min(now), released: Some(released), released_runs, ..self }
    }

    /// Returns whether a run has released the announcement before.
    #[must_use]
    pub fn was_released_by(&self, run: Option<&str>) -> bool {
        run.is_some_and(|run| self.released_runs.contains_key(run))
    }

    /// The runs whose requests may still be on their way.
    fn runs_at(&self, now: EpochMillis) -> BTreeMap<String, EpochMillis> {
        let recent = self.released_runs.iter().filter(|(_, released)| now.since(**released) < RUNS_KEPT);
        recent.map(|(run, released)| (run.clone(), *released)).collect()
    }

    /// Whether a request is for the same work.
    fn is_of(&self, request: &Request) -> bool {
        self.id == request.id && self.caller == request.caller && self.targets().eq(&request.targets)
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
    let needs = in_force.filter_map(|announcement| Some((announcement, announcement.need(target)?)));
    let mut latest = EpochMillis::EPOCH;
    needs.fold(None, |demand: Option<Demand>, (announcement, need)| {
        let Demand { mut other, announced } = demand.unwrap_or(Demand::NONE);
        if demand.is_none() || announcement.since >= latest {
            (latest, other) = (announcement.since, need.other);
        }
        Some(Demand { other, announced: announced.plus(announcement.units) })
    })
}

/// Decides on a request at the moment `now`. Returns the announcement to write. `begun` is when the request began.
///
/// `measured` holds what was measured of each target of the request, in its order. `announcements` are all that are stored,
/// in force or not. An announcement that is [`continued`] is made again: its units are replaced, and it never ends earlier
/// than before. What was measured is not used.
///
/// The work of other announcements is a part of the consumption if it may have run while that was measured. It is not
/// counted twice: its units are taken off, but never so that less other traffic is left than the work was announced with.
/// If nothing was measured, the other traffic is what the announcements in force were made with.
///
/// # Errors
/// See [`Refusal`].
pub fn accept(
    request: Request,
    measured: &[Measured],
    announcements: &[Announcement],
    limits: &Limits,
    begun: EpochMillis,
    now: EpochMillis,
) -> Result<Announcement, Refusal> {
    if request.duration > limits.duration {
        return Err(Refusal::TooLong { asked: request.duration, limit: limits.duration });
    }
    let (stored, others): (Vec<&Announcement>, Vec<_>) =
        announcements.iter().partition(|announcement| announcement.id == request.id);
    let stored = stored.first().copied();
    if stored.is_some_and(|stored| stored.released.is_some_and(|released| released >= begun))
        || stored.is_some_and(|stored| stored.was_released_by(request.run.as_deref()))
    {
        return Err(Refusal::Released(request.id));
    }
    let in_force_already = stored.filter(|stored| stored.is_in_force(now));
    if let Some(same) = in_force_already
        && !same.is_of(&request)
    {
        let targets: Vec<_> = same.targets().map(ToString::to_string).collect();
        let (caller, until) = (same.caller.clone(), same.until);
        return Err(Refusal::IdTaken { id: request.id, targets: targets.join(" and "), caller, until });
    }
    let in_force: Vec<_> = others.iter().copied().filter(|announcement| announcement.is_in_force(now)).collect();
    if in_force.len() >= limits.announcements {
        return Err(Refusal::TooMany(in_force.len()));
    }
    let continued = continued(&request, announcements);
    // What is in force was accepted already: others may have announced since, or the traffic may have grown.
    let is_accepted = in_force_already.is_some_and(|same| request.units <= same.units);
    let mut needs = Vec::new();
    for (target, measured) in request.targets.iter().zip(measured) {
        if !measured.may_scale_in && in_force_already.is_none() {
            return Err(Refusal::ScaleInDisabled(target.clone()));
        }
        let on_target: Vec<_> =
            in_force.iter().copied().filter(|announcement| announcement.need(target).is_some()).collect();
        let mine = on_target.iter().copied().filter(|announcement| announcement.caller == request.caller);
        let by_caller = sum(mine).plus(request.units);
        let announced = sum(on_target.iter().copied()).plus(request.units);
        check(limits.units, announced, target, String::new)?;
        check(limits.units_per_caller, by_caller, target, || format!(" by caller {:?}", request.caller))?;
        let other = match continued.and_then(|continued| continued.need(target)) {
            Some(need) => need.other,
            None => other_traffic(measured, announcements, target, now),
        };
        if let Some(maximum) = measured.maximum
            && other.plus(announced) > maximum
            && !is_accepted
        {
            return Err(Refusal::MaximumTooLow { target: target.clone(), maximum, other, announced });
        }
        needs.push(Need { target: target.clone(), other });
    }
    let until = now.after(request.duration);
    Ok(Announcement {
        needs,
        since: continued.map_or(now, |continued| continued.since),
        until: continued.map_or(until, |continued| continued.until.max(until)),
        // More units need more capacity, which is not ready yet.
        ready: in_force_already.filter(|_| is_accepted).and_then(|same| same.ready),
        released: None,
        released_runs: stored.map(|stored| stored.runs_at(now)).unwrap_or_default(),
        id: request.id,
        caller: request.caller,
        units: request.units,
    })
}

/// Returns the announcement that a request makes again: the stored one with the same id, caller and targets, unless it was
/// released. It need not be in force. Its own work may run, so its other traffic is not measured again.
#[must_use]
pub fn continued<'a>(request: &Request, announcements: &'a [Announcement]) -> Option<&'a Announcement> {
    announcements.iter().find(|announcement| announcement.released.is_none() && announcement.is_of(request))
}

/// Returns the measured consumption of a target without that of announced work: that of the minute in which it was highest.
fn other_traffic(measured: &Measured, announcements: &[Announcement], target: &Target, now: EpochMillis) -> Capacity {
    let other = |minute: &Minute| {
        let end = minute.from.after(MINUTE);
        let may_have_run = |announcement: &&Announcement| announcement.since < end && announcement.until > minute.from;
        let ran = announcements.iter().filter(may_have_run);
        let ran = ran.filter_map(|announcement| Some((announcement.units, announcement.need(target)?.other)));
        let (units, known) = ran.fold((Capacity::ZERO, Capacity::ZERO), |(units, known), (more, other)| {
            (units.plus(more), known.max(other))
        });
        minute.consumption.minus(units).max(known).min(minute.consumption)
    };
    measured.minutes.iter().map(other).max().unwrap_or_else(|| {
        let in_force = announcements.iter().filter(|announcement| announcement.is_in_force(now));
        in_force.filter_map(|announcement| Some(announcement.need(target)?.other)).max().unwrap_or_default()
    })
}

fn sum<'a>(announcements: impl Iterator<Item = &'a Announcement>) -> Capacity {
    announcements.fold(Capacity::ZERO, |sum, announcement| sum.plus(announcement.units))
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
