//! The client crate on the token tables of rate-limiter-py.

mod beside_python;
mod fungible;
mod fungible_faults;
mod fungible_operations;
mod fungible_python;
mod fungible_rows;
mod reservation_costs;
mod reservation_faults;
mod reservations;
mod slots;
