//! `template.yaml` deploys what the code expects, and the manifests keep the layers apart.

mod document;
mod environment;
mod filters;
mod manifests;
mod metrics;
mod parameters;
mod permissions;
mod rules;
mod sources;
mod stack;
mod tables;
