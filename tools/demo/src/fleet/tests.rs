//! The laws of the loop between workers and aggregator: of the workers' rule, of what a summary is made from, and
//! of the figures. A weakness of the rule is proved like a law, so that a better rule can be compared with it.

mod figures;
mod simulation;
mod worker;

/// Whether two numbers are the same, except for rounding.
fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs()).max(1.0)
}
