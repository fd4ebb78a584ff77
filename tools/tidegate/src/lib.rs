//! The operator's command, `tidegate`.

pub mod redrive;
