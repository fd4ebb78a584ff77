//! One day of one design, second by second.
//!
//! A table that throttles hits the users and the job in proportion to their requests. The users' SDK repeats a throttled
//! write in the next second; the job leaves it for later. So all work is done in the end, and each attempt that is refused
//! counts as a throttled request. One request is one write unit.

use tidegate_domain::capacity::{Capacity, ScalableTarget, Utilization};

use super::{
    designs::{Design, MINIMUM, Mode, Preparation, SCHEDULED_AHEAD},
    price,
    scaling::{ScaledTable, TargetTracking},
    table::OnDemandTable,
    traffic::{JOB_RATE, JOB_SECONDS, Job, MINUTE, SPIKE, USERS_AT_SPIKE},
};

/// One minute of a day, as CloudWatch would show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Minute {
    /// Write units.
    pub(crate) consumed: u64,
    /// The sum over its seconds of what the table provisions, or of its warm throughput.
    pub(crate) provided: u64,
    /// Requests.
    pub(crate) throttled: u64,
}

/// The first and the last second with throttled requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThrottledSpan {
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// What the table provisions in the second after the last one.
    pub(crate) capacity_after: u64,
}

/// How the day of a design went.
#[derive(Clone, Debug)]
pub(crate) struct DesignRun {
    pub(crate) design: Design,
    pub(crate) seed: u64,
    pub(crate) minutes: Vec<Minute>,
    pub(crate) throttled: Option<ThrottledSpan>,
    /// The highest provisioned capacity; `None` if the table is on-demand.
    pub(crate) highest: Option<u64>,
    /// In millionths of a dollar.
    pub(crate) cost: u64,
    /// Seconds by which the job ends later than if it were never held back. `None` if it does not end that day.
    pub(crate) delay: Option<u32>,
}

impl DesignRun {
    pub(crate) fn throttled_requests(&self) -> u64 {
        self.minutes.iter().map(|minute| minute.throttled).sum()
    }

    pub(crate) fn minutes_with_throttles(&self) -> usize {
        self.minutes.iter().filter(|minute| minute.throttled > 0).count()
    }
}

/// Runs the day of a design. `users` are their write units for each second, and `warm` is the warm throughput of an on-demand
/// table in the morning.
pub(crate) fn run(design: Design, seed: u64, users: &[u64], warm: u64) -> DesignRun {
    let mut table = Table::new(design.mode, users.first().copied().unwrap_or(0), warm);
    let mut job = Job::new(design.pace);
    let mut minutes = vec![Minute::default(); users.len().div_ceil(MINUTE as usize)];
    let mut throttled: Option<ThrottledSpan> = None;
    let mut highest = None;
    // Writes of users that were throttled in the last second.
    let mut repeated = 0;
    for (now, users) in (0..).zip(users) {
        table.prepare(&mut job, now);
        let (of_users, of_job) = (users + repeated, job.demand(now));
        let demanded = of_users + of_job;
        let served = table.serve(demanded, now);
        let refused = demanded - served;
        // The job's share is rounded down.
        let refused_job = (refused * of_job).checked_div(demanded).unwrap_or(0);
        repeated = refused - refused_job;
        job.count(of_job - refused_job, now);

        let minute = &mut minutes[(now / MINUTE) as usize];
        minute.consumed += served;
        minute.provided += table.provided();
        minute.throttled += refused;
        highest = highest.max(table.capacity());
        if refused > 0 {
            throttled.get_or_insert(ThrottledSpan { first: now, last: now, capacity_after: 0 }).last = now;
        } else if let Some(span) = throttled.as_mut().filter(|span| span.last + 1 == now) {
            span.capacity_after = table.provided();
        }
    }
    let sum = |part: fn(&Minute) -> u64| minutes.iter().map(part).sum();
    let cost = match table {
        Table::Provisioned { .. } => price::provisioned(sum(|minute| minute.provided)),
        Table::OnDemand(_) => price::on_demand(sum(|minute| minute.consumed), warm),
    };
    DesignRun { design, seed, minutes, throttled, highest, cost, delay: job.delay() }
}

#[derive(Clone, Debug)]
enum Table {
    Provisioned { table: ScaledTable, preparation: Preparation },
    OnDemand(OnDemandTable),
}

impl Table {
    fn new(mode: Mode, consumption: u64, warm: u64) -> Self {
        match mode {
            Mode::Provisioned { utilization, maximum, preparation } => {
                let target = TargetTracking { minimum: MINIMUM, maximum, utilization };
                Self::Provisioned { table: ScaledTable::new(target, consumption), preparation }
            }
            Mode::OnDemand => Self::OnDemand(OnDemandTable::new(warm)),
        }
    }

    /// Advances the table to the second `now`, raises and restores its minimum, and starts the job when it may.
    fn prepare(&mut self, job: &mut Job, now: u32) {
        let Self::Provisioned { table, preparation } = self else {
            if now == SPIKE {
                job.start(now);
            }
            return;
        };
        match preparation {
            Preparation::Schedule if now == SPIKE - SCHEDULED_AHEAD => {
                table.set_minimum(needed(table.target(), USERS_AT_SPIKE));
            }
            Preparation::Schedule if now == SPIKE + JOB_SECONDS => table.set_minimum(MINIMUM),
            Preparation::Announcement if now == SPIKE => {
                let consumption = table.consumption(now).unwrap_or(0);
                table.set_minimum(needed(table.target(), consumption));
            }
            // The job releases its announcement.
            Preparation::Announcement if job.ended() == Some(now) => table.set_minimum(MINIMUM),
            _ => {}
        }
        table.advance(now);
        let is_ready = *preparation != Preparation::Announcement || table.capacity() >= table.target().minimum;
        if now >= SPIKE && is_ready {
            job.start(now);
        }
    }

    fn serve(&mut self, demanded: u64, now: u32) -> u64 {
        match self {
            Self::Provisioned { table, .. } => table.serve(demanded, now),
            Self::OnDemand(table) => table.serve(demanded, now),
        }
    }

    /// What the table provisions, or its warm throughput.
    fn provided(&self) -> u64 {
        match self {
            Self::Provisioned { table, .. } => table.capacity(),
            Self::OnDemand(table) => table.warm(),
        }
    }

    fn capacity(&self) -> Option<u64> {
        matches!(self, Self::Provisioned { .. }).then(|| self.provided())
    }
}

/// Returns the minimum for the job, by the rule of the coordinator.
fn needed(target: TargetTracking, consumption: u64) -> u64 {
    let TargetTracking { minimum, maximum, utilization } = target;
    let target = ScalableTarget {
        minimum: Capacity::new(minimum),
        maximum: Capacity::new(maximum),
        // The target of each design is a percentage.
        utilization: Utilization::from_percent(utilization.into()).unwrap_or(Utilization::FULL),
    };
    target.needed(Capacity::new(consumption), Capacity::new(JOB_RATE)).get().max(minimum)
}
