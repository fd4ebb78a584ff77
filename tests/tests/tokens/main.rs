//! The client crate on the token tables of rate-limiter-py.

mod fungible;
mod fungible_conditions;
mod fungible_costs;
mod fungible_faults;
mod fungible_python;
mod reservation_cancellation;
mod reservation_costs;
mod reservation_faults;
mod reservation_python;
mod reservations;
mod slot_conditions;
