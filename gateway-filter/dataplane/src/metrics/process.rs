//! Metrics of the process as a whole, with the label `gateway` alone.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::definition::{Definition, Kind};

/// Log lines that the limit per second has kept back.
pub(crate) static LINES_SUPPRESSED: AtomicU64 = AtomicU64::new(0);

/// Definitions of the metrics of the process.
const PROCESS_DEFINITIONS: &[Definition] = &[
    of_process(
        "packrat_process_cpu_microseconds_total",
        Kind::Counter,
        "Processor time of the process, in Envoy of all Envoy.",
    ),
    of_process(
        "packrat_process_resident_memory_bytes",
        Kind::Gauge,
        "Resident memory of the process, in Envoy of all Envoy.",
    ),
    of_process("packrat_process_uptime_seconds", Kind::Gauge, "Age of the gateway's data plane."),
    of_process(
        "packrat_log_lines_suppressed_total",
        Kind::Counter,
        "Log lines suppressed: too many of one event within a second.",
    ),
];

const fn of_process(name: &'static str, kind: Kind, help: &'static str) -> Definition {
    Definition { name: Cow::Borrowed(name), labels: &[], kind, help: Cow::Borrowed(help) }
}

/// Every series of the process, in the order of [`values`].
pub const fn definitions() -> &'static [Definition] {
    PROCESS_DEFINITIONS
}

/// Time of the first reading; the data plane makes one when it starts.
static START_TIME: OnceLock<Instant> = OnceLock::new();

/// Every value now.
pub fn values() -> [u64; PROCESS_DEFINITIONS.len()] {
    [
        cpu_microseconds(),
        resident_bytes().unwrap_or_default(),
        START_TIME.get_or_init(Instant::now).elapsed().as_secs(),
        LINES_SUPPRESSED.load(Ordering::Relaxed),
    ]
}

/// Processor time of all threads, in user and kernel mode.
fn cpu_microseconds() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure has room for the answer, and all zeros is a valid one.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let microseconds = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or_default() * 1_000_000
            + u64::try_from(time.tv_usec).unwrap_or_default()
    };
    microseconds(usage.ru_utime) + microseconds(usage.ru_stime)
}

/// The second number of `/proc/self/statm`, in pages (proc(5)).
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: no pointers are involved.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_uses_time_and_memory() {
        let [before, ..] = values();
        let mut sum = 0u64;
        while cpu_microseconds() < before + 2000 {
            sum = (0..10_000).fold(sum, |sum, value| sum.wrapping_mul(31).wrapping_add(value));
        }
        let [cpu, memory, ..] = values();
        assert!(cpu >= before + 2000, "{cpu} {sum}");
        assert!(memory > 1 << 20, "{memory}");
    }
}
