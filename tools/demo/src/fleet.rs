//! The loop that the rate aggregator closes, as pure code: workers that follow AWS's rule or hold leases, this aggregator, and
//! an S3 that is slow and loses calls, on a virtual clock.
//!
//! | module | holds |
//! |---|---|
//! | [`python`] | [`python::Rule`]: how a Python worker sets its limit by the summary, and what it may consume |
//! | [`leasing`] | [`leasing::Leasing`]: a worker that holds a lease |
//! | [`worker`] | [`worker::Worker`]: a worker of either kind, and its file |
//! | [`store`], [`aggregator`] | the files and the summary in S3, and what the aggregator makes of them |
//! | [`scenario`] | [`scenario::Scenario`]: who wants how much from when on; [`scenario::NetworkConditions`] |
//! | [`simulation`] | [`simulation::run`]: a scenario and a seed become a [`simulation::FleetTrace`] |
//! | [`figures`] | [`figures::Figures`]: time to settle, overshoot, fairness, utilisation |
//! | [`comparison`] | [`comparison::CaseFigures`]: a scenario with many seeds, and what it must reach |
//!
//! # What Python workers do
//!
//! This follows the article [Rate-limiting calls to Amazon DynamoDB using Python Boto3, part 2][article] and the program that
//! it describes, [Bulk Executor for DynamoDB][program] (`DistributedDynamoDBMonitorWorker`, `DynamoDBMonitor`, `TokenBucket`):
//!
//! - A worker waits 5 s ± 10 %, writes its report, reads the summary, sets its limits, and waits again. The jitter is on
//!   the wait, and on nothing else.
//! - It reports the capacity that it has consumed since its last report, by the time that has passed. Its first report
//!   says 0.
//! - Reads and writes go the same way, each by its own cap, maximum and sum; so one kind is simulated, as reads.
//! - `target = min(limit * cap / sum, maximum)`, and the limit goes four tenths of the way to it. A sum of 0 scales by 1.
//!   It is the **limit** that is scaled, not what was consumed.
//! - If there is no summary, or a call fails, the limit stays. The age of a summary is **not** checked: a summary that is
//!   not renewed is applied again, every 5 s.
//! - A limit below 1 is refused: the previous one stays. (In the program, a refused read limit also discards the write
//!   limit's change; that is not simulated.)
//! - The limit fills a bucket of tokens, at most for two seconds, and at first for one. A new limit scales what is in it.
//!
//! Simplified here, or not defined by the sources: consumption flows instead of coming in requests, so a bucket is never
//! overdrawn; demand that a limit refuses is not made up for later; the initial limit is at least 1, where the program
//! would not start; the time that a call takes is uniformly distributed; and workers that start do so at the same moment.
//!
//! # What leasing workers do
//!
//! The domain decides: [`tidegate_domain::lease`]. This is the schedule of the calls:
//!
//! - A worker reads the summary, adopts its grant and reports: when it starts, and then every 5 s ± 10 %.
//! - It reports at once when what it wants changes by a fifth, and a second after a report that failed.
//! - It looks at the summary every second while it wants more than it may use.
//! - What it uses flows, and is at most what it wants and what its lease allows. It wants what it could use at most.
//!
//! The aggregator repeats a write that fails, twice at most, as its SDK does.
//!
//! # What follows from AWS's rule
//!
//! The figures of `cargo run -- rates` show these effects, and the tests prove them. They come from the rule, not from the
//! aggregator:
//!
//! - **Wind-up.** A fleet that wants less than the cap raises all its limits to the maximum. When it wants
//!   more, it exceeds the cap until new reports and a new summary arrive.
//! - **No catching up.** All limits are scaled by the same factor, so two limits keep their proportion unless one is at the
//!   maximum: a worker that joins late with a higher limit keeps it.
//! - **An old summary compounds.** While the aggregator is down, limits grow or shrink by a constant factor every 5 s.
//! - **A blind start.** The first reports say 0, so a fleet consumes `n * min(maximum, cap / 10)` until the second ones are
//!   summed up.
//!
//! [article]: https://aws.amazon.com/blogs/database/rate-limiting-calls-to-amazon-dynamodb-using-python-boto3-part-2-distributed-coordination
//! [program]: https://github.com/awslabs/amazon-dynamodb-tools/tree/main/bulk_executor

mod aggregator;
pub(crate) mod comparison;
pub(crate) mod figures;
mod leasing;
pub(crate) mod python;
pub(crate) mod scenario;
pub(crate) mod simulation;
mod store;
mod worker;

#[cfg(test)]
mod tests {
    //! The laws of the loop between workers and aggregator: of AWS's rule, of leases, of what a summary is made from, and
    //! of the figures. A weakness of AWS's rule is proved like a law, so that leases can be compared with it.

    mod comparison;
    mod figures;
    mod leases;
    mod python;
    mod simulation;

    use super::{
        python::Rule,
        scenario::{Member, NetworkConditions, Scenario},
        worker::Kind,
    };

    /// Whether two numbers are the same, except for rounding.
    fn is_near(one: f64, other: f64) -> bool {
        (one - other).abs() <= 1e-9 * one.abs().max(other.abs()).max(1.0)
    }

    fn scenario(members: Vec<Member>, rule: Rule, length: u32) -> Scenario {
        Scenario {
            name: "made up",
            summary: "",
            rule,
            members,
            conditions: NetworkConditions::nominal(),
            outage: 0..0,
            takeover: None,
            event: 0,
            settles_from: 0,
            length,
            goal: None,
        }
    }

    /// A Python worker with one demand.
    fn wanting(rate: f64) -> Member {
        Member { kind: Kind::Python, joins: 0, dies: None, wants: vec![(0, rate)] }
    }
}
