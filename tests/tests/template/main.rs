//! `template.yaml` and the code are held together: what the one deploys is what the other expects.

mod document;
mod environment;
mod filters;
mod metrics;
mod parameters;
mod permissions;
mod rules;
mod sources;
mod stack;
mod tables;
