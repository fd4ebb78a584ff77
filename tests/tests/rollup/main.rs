//! `usage-rollup` over a real table and queue, with faults and with the stream of a real client.

mod captured_stream;
mod events;
mod undeliverable;
mod writes;
