//! `template.yaml` deploys what the code expects, and the manifests keep the layers apart.

mod manifests;
mod metrics;
mod parameters;
mod permissions;
mod sources;
mod stack;
mod tables;
