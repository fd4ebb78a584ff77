//! CPU time and memory of a process, measured and limited from outside of it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use procfs::process::Process;

/// Reads `/proc/PID`.
#[derive(Debug)]
pub(crate) struct Meter {
    process: Process,
}

/// The CPU time, user and system, that a process has used up to a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTime {
    /// CPU time of live threads from schedstat: exact, but without threads that have ended.
    living: Duration,
    /// By the process's own account: all threads, but rounded down to whole ticks.
    ticked: Duration,
    tick: Duration,
}

impl Meter {
    /// A meter of the process `pid`.
    pub(crate) fn new(pid: u32) -> anyhow::Result<Self> {
        let process = Process::new(i32::try_from(pid)?).context("cannot find the process in /proc")?;
        Ok(Self { process })
    }

    /// CPU time up to now. Right to the nanosecond if the process is idle; a running thread's last
    /// few milliseconds may be missing.
    pub(crate) fn cpu(&self) -> anyhow::Result<CpuTime> {
        let stat = self.process.stat().context("cannot read the process's CPU time")?;
        let tick = Duration::from_secs(1) / u32::try_from(procfs::ticks_per_second())?;
        let threads = self.process.tasks().context("cannot list the process's threads")?;
        // A thread may end between being listed and being read; where the kernel keeps no such
        // accounts, none is read, and the ticks are what is left.
        let living = threads.flatten().filter_map(|thread| thread.schedstat().ok());
        Ok(CpuTime {
            living: Duration::from_nanos(living.map(|thread| thread.sum_exec_runtime).sum()),
            ticked: tick * u32::try_from(stat.utime + stat.stime)?,
            tick,
        })
    }

    /// The most memory that the process ever had resident, in KiB.
    pub(crate) fn peak_memory_kib(&self) -> anyhow::Result<u64> {
        let status = self.process.status().context("cannot read the process's memory")?;
        status.vmhwm.context("/proc has no VmHWM")
    }
}

impl CpuTime {
    /// The CPU time between a moment and this later one.
    pub(crate) fn since(&self, earlier: &Self) -> Duration {
        let living = self.living.saturating_sub(earlier.living);
        let ticked = self.ticked.saturating_sub(earlier.ticked);
        // User and system time are rounded apart, so two ticks may be rounding. More than that means
        // that threads have ended and took their accounts with them.
        if ticked > living + 2 * self.tick { ticked } else { living }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(living_ms: u64, ticked_ms: u64, expected_ms: u64) {
        let at = |living, ticked| CpuTime {
            living: Duration::from_millis(living),
            ticked: Duration::from_millis(ticked),
            tick: Duration::from_millis(10),
        };
        let used = at(1_000 + living_ms, 1_010 + ticked_ms).since(&at(1_000, 1_010));
        assert_eq!(used, Duration::from_millis(expected_ms));
    }

    #[test]
    fn the_exact_account_counts_unless_threads_have_ended() {
        check(503, 500, 503);
        check(497, 500, 497);
        check(480, 500, 480);
        check(120, 500, 500);
    }

    #[test]
    fn a_process_can_be_read() {
        let meter = Meter::new(std::process::id()).unwrap();
        let before = meter.cpu().unwrap();
        assert!(meter.cpu().unwrap().ticked >= before.ticked);
        assert!(meter.peak_memory_kib().unwrap() > 0);
    }
}
