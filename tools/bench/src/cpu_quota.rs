//! A limit on a process's CPU time, as Lambda sets one by a function's memory.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// Memory with which a function has the CPU time of one CPU, in MB.
///
/// AWS: [memory](https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html).
const ONE_CPU: u32 = 1_769;
/// The kernel stops the process when it has used up its share of this time, until the next period begins.
const PERIOD_MICROS: u32 = 20_000;
/// Where Linux has control groups for CPU time: those of version 1, and those of version 2.
const VERSION_1: &str = "/sys/fs/cgroup/cpu";
const VERSION_2: &str = "/sys/fs/cgroup";

/// A control group that limits one process. Drop it after the process has ended.
#[derive(Debug)]
pub(crate) struct CpuQuota {
    directory: PathBuf,
}

impl CpuQuota {
    /// Limits a process to the CPU time of a function with `memory` MB, which it has before all other processes.
    pub(crate) fn limit(process: u32, memory: u32) -> anyhow::Result<Self> {
        let quota = u64::from(PERIOD_MICROS) * u64::from(memory) / u64::from(ONE_CPU);
        let is_version_1 = Path::new(VERSION_1).is_dir();
        let parent = Path::new(if is_version_1 { VERSION_1 } else { VERSION_2 });
        let directory = parent.join(format!("tidegate-bench-{process}"));
        fs::create_dir(&directory).with_context(|| format!("cannot create {}: run as root", directory.display()))?;
        let group = Self { directory };
        if is_version_1 {
            group.write("cpu.cfs_period_us", &PERIOD_MICROS.to_string())?;
            group.write("cpu.cfs_quota_us", &quota.to_string())?;
            group.write("cpu.shares", "262144")?;
        } else {
            group.write("cpu.max", &format!("{quota} {PERIOD_MICROS}"))?;
            group.write("cpu.weight", "10000")?;
        }
        group.write("cgroup.procs", &process.to_string())?;
        Ok(group)
    }

    /// The share of one CPU that a function with `memory` MB has.
    pub(crate) fn share(memory: u32) -> f64 {
        f64::from(memory) / f64::from(ONE_CPU)
    }

    fn write(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let path = self.directory.join(file);
        fs::write(&path, value).with_context(|| format!("cannot write {value} to {}", path.display()))
    }
}

impl Drop for CpuQuota {
    fn drop(&mut self) {
        // This fails while the process lives, and then leaves an unused group behind.
        let _ = fs::remove_dir(&self.directory);
    }
}
