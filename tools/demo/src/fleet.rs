//! The loop that the rate aggregator closes, as pure code: workers that follow AWS's rule, this aggregator, and an S3 that is
//! slow and loses calls, on a virtual clock.
//!
//! | module | holds |
//! |---|---|
//! | [`worker`] | [`worker::Rule`]: how a worker sets its limit by the summary; what it may consume; its reports |
//! | [`scenario`] | [`scenario::Scenario`]: who wants how much from when on; [`scenario::NetworkConditions`] |
//! | [`simulation`] | [`simulation::run`]: a scenario and a seed become a [`simulation::FleetTrace`] |
//! | [`figures`] | [`figures::Figures`]: time to settle, overshoot, fairness, utilisation |
//! | [`random`] | random numbers that a seed repeats |
//!
//! # What the workers do
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
//! # What follows from the rule
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

pub(crate) mod figures;
mod random;
pub(crate) mod scenario;
pub(crate) mod simulation;
pub(crate) mod worker;

#[cfg(test)]
mod tests {
    //! The laws of the loop between workers and aggregator: of the workers' rule, of what a summary is made from, and
    //! of the figures. A weakness of the rule is proved like a law, so that a better rule can be compared with it.

    mod figures;
    mod simulation;
    mod worker;

    /// Whether two numbers are the same, except for rounding.
    fn is_near(one: f64, other: f64) -> bool {
        (one - other).abs() <= 1e-9 * one.abs().max(other.abs()).max(1.0)
    }
}
