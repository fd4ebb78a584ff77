//! The operator's command, `tidegate`.

pub mod audit;
pub mod bucket;
pub mod capacity;
pub mod connection;
pub mod entity;
pub mod limits;
pub mod namespace;
pub mod output;
pub mod redrive;
pub mod scope;
pub mod switch;
pub mod tokens;
pub mod usage;
