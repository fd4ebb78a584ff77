//! The Python in which the real clients run.

use std::{
    env,
    ffi::{OsStr, OsString},
};

use anyhow::ensure;
use tokio::process::Command;

use crate::root;

/// The variable that names the interpreter.
const NAMED: &str = "TIDEGATE_PYTHON";

/// Finds an interpreter that can import these modules: the one that `TIDEGATE_PYTHON` names, or else `python3`. It
/// needs the packages of `tests/python/requirements.txt`. If `python3` lacks them, prints the reason and returns
/// `None`: the caller skips its test.
///
/// # Errors
/// When `TIDEGATE_PYTHON` names an interpreter that cannot import the modules.
pub async fn interpreter(modules: &str) -> anyhow::Result<Option<OsString>> {
    let named = env::var_os(NAMED).filter(|named| !named.is_empty());
    let python = named.clone().unwrap_or_else(|| "python3".into());
    let reason = match Command::new(&python).args(["-c", &format!("import {modules}")]).output().await {
        Ok(output) if output.status.success() => return Ok(Some(python)),
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    let reason = format!("{} cannot import {modules}: {reason}", python.display());
    ensure!(named.is_none(), "{NAMED}: {reason}");
    println!("not tested: {reason}");
    Ok(None)
}

/// The command that runs a script of `tests/python`. It looks for every AWS service at this endpoint.
#[must_use]
pub fn script(python: impl AsRef<OsStr>, name: &str, endpoint: &str) -> Command {
    let mut command = Command::new(python);
    command
        .arg(root().join("tests/python").join(name))
        .env("AWS_ENDPOINT_URL", endpoint)
        .env("AWS_DEFAULT_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .env("NO_PROXY", "127.0.0.1")
        .kill_on_drop(true);
    command
}
