//! The machine on which the figures were measured.

use std::fs;

use crate::summary::Summary;

/// The time-stamp counter's frequency in GHz, which is the processor's nominal one; `None` when it
/// is unknown.
pub(crate) fn gigahertz() -> Option<f64> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
    Some(line.split(':').nth(1)?.trim().parse::<f64>().ok()? / 1000.0)
}

/// Number of processors that this process may use.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Adds a description of this machine.
pub(crate) fn describe(summary: &mut Summary) {
    let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let information = file("/proc/cpuinfo");
    let model = information.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split(':').nth(1)).unwrap_or("unknown").trim();
    let kernel = file("/proc/sys/kernel/osrelease");
    let load = file("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or("?");
    let frequency = gigahertz().map_or_else(|| "?".to_owned(), |value| format!("{value:.2}"));
    let line = format!(
        "{} processors ({model}, {frequency} GHz nominal), Linux {}, load {load} at the start",
        processors(),
        kernel.trim()
    );
    summary.note("machine", &line);
    summary.say(&format!("Machine: {line}"));
}
