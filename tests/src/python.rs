//! The scripts of `tests/python`, which drive the real clients.

use std::ffi::OsStr;

pub use tidegate_sandbox::python::{another_version, interpreter, python_at};
use tokio::process::Command;

use crate::root;

/// The command that runs a script of `tests/python`. It looks for every AWS service at this endpoint.
pub fn script(python: impl AsRef<OsStr>, name: &str, endpoint: &str) -> Command {
    let mut command = python_at(python, endpoint);
    command.arg(root().join("tests/python").join(name));
    command
}
