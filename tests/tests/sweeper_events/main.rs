//! Events, as the function handles them over a real table.

mod conditions;
mod deletion;
mod early;
mod strays;
