//! CPU time and memory of a process, read from outside of it.

use std::time::Duration;

use anyhow::Context;
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
