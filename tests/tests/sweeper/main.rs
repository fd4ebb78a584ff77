//! `token-sweeper` over real tables: events and reconciles, with faults and with the real client.

mod ends;
mod faults;
mod python_client;
mod reconcile;
mod strays;
