//! `capacity-coordinator` over a state table and a control plane: requests, overlapping processes, faults, and owners.

mod announce;
mod moto;
mod on_demand;
mod overlap;
mod restore;
