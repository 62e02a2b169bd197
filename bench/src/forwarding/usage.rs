//! Processor time and calls of a gateway's process, as the kernel counts them.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::gateways::Gateway;

/// Counts of all threads of a process since it was started.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    /// Seconds of processor time.
    pub(crate) cpu_seconds: f64,
    /// Times at which a thread gave up its processor to wait.
    pub(crate) wakeups: u64,
}

impl Usage {
    pub(crate) fn of(gateway: &Gateway) -> Self {
        let folder = format!("/proc/{}/task", gateway.process_id());
        let Ok(threads) = fs::read_dir(folder) else { return Self::default() };
        let mut usage = Self::default();
        for thread in threads.flatten() {
            let read = |file: &str| fs::read_to_string(thread.path().join(file)).ok();
            let nanoseconds = read("schedstat").and_then(|text| first_number(&text));
            usage.cpu_seconds += nanoseconds.unwrap_or_default() as f64 / 1e9;
            usage.wakeups += read("status").and_then(|text| switches(&text)).unwrap_or_default();
        }
        usage
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            wakeups: self.wakeups.saturating_sub(before.wakeups),
        }
    }
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// The number of waits in a thread's status.
fn switches(status: &str) -> Option<u64> {
    first_number(status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?)
}

/// A count of system calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SystemCalls {
    calls: f64,
    seconds: f64,
}

impl SystemCalls {
    /// Counts the gateway's system calls for a while; `None` if perf or the kernel cannot count.
    pub(crate) fn count(gateway: &Gateway, window: Duration) -> Option<Self> {
        let output = Command::new("perf")
            .args(["stat", "-x", ";", "-e", "raw_syscalls:sys_enter", "-p"])
            .arg(gateway.process_id().to_string())
            .args(["--", "sleep", &window.as_secs_f64().to_string()])
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let calls = parse(&String::from_utf8_lossy(&output.stderr))?;
        Some(Self { calls, seconds: window.as_secs_f64() })
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.calls / self.seconds
    }
}

/// The count, the first field of perf's line. (The line's times are the times in which threads have
/// run.)
fn parse(text: &str) -> Option<f64> {
    text.lines().find(|line| line.contains("raw_syscalls"))?.split(';').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_and_perfs_words_are_understood() {
        let status =
            "Name:\tx\nvoluntary_ctxt_switches:\t21256\nnonvoluntary_ctxt_switches:\t259\n";
        assert_eq!(switches(status), Some(21_256));
        assert_eq!(first_number("1500 20 3\n"), Some(1500));
        let perf = "# started\n\n10278;;raw_syscalls:sys_enter;2000000000;100.00;;\n";
        assert_eq!(parse(perf), Some(10_278.0));
        assert_eq!(parse("<not supported>;;raw_syscalls:sys_enter;0;0.00;;\n"), None);
    }
}
