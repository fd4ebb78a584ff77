//! The Python in which the real clients run.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use tokio::process::Command;

/// The variable that names the interpreter.
const NAMED: &str = "TIDEGATE_PYTHON";

/// Finds an interpreter that can import these modules: the one that `TIDEGATE_PYTHON` names, or else `python3`. It
/// needs the packages of `tests/python/requirements.txt`. If `python3` lacks them, prints the reason and returns
/// `None`: the caller skips its test.
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

/// Finds another version of a client, which is in a folder of this name in the virtual environment of `TIDEGATE_PYTHON`.
/// Without that variable, prints the reason and returns `None`: the caller skips its test.
pub fn another_version(python: &OsStr, name: &str) -> anyhow::Result<Option<PathBuf>> {
    if env::var_os(NAMED).is_none_or(|named| named.is_empty()) {
        println!("not tested: {NAMED} names no virtual environment with {name}");
        return Ok(None);
    }
    let path =
        Path::new(python).parent().and_then(Path::parent).context("the interpreter is in no virtual environment")?;
    let path = path.join(name);
    ensure!(path.is_dir(), "{NAMED}: {} is missing", path.display());
    Ok(Some(path))
}

/// The interpreter, which looks for every AWS service at this endpoint.
pub fn python_at(python: impl AsRef<OsStr>, endpoint: &str) -> Command {
    let mut command = Command::new(python);
    command
        .env("AWS_ENDPOINT_URL", endpoint)
        .env("AWS_DEFAULT_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .env("NO_PROXY", "127.0.0.1")
        .kill_on_drop(true);
    command
}
