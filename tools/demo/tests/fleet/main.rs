//! The laws of the loop between workers and aggregator: of the workers' rule, of what a summary is made from, and
//! of the figures. Where the rule has a weakness, it is proved here like a law, so that a better one can be told by it.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod allowance;
mod figures;
mod passes;
mod rule;
mod simulation;

/// Whether two numbers are the same, but for what floats lose.
fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs()).max(1.0)
}
