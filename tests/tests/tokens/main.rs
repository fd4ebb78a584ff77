//! The client crate takes tokens from embedded token tables.

mod beside_python;
mod reservation_costs;
mod reservation_faults;
mod reservations;
mod slots;
