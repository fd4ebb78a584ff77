//! `token-sweeper` over real tables: events and reconciles, with faults and with the clients of both kinds.

mod ends;
mod faults;
mod python_client;
mod reconcile;
mod rust_client;
mod strays;
