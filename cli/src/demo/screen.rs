//! Output for the user: progress, the table, the bar chart.

use std::fmt::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::options::ArmName;
use super::report::{self, ArmReport, DemoReport, TimesReport};

/// Characters of the longest bar.
const BAR_WIDTH: usize = 50;
/// Characters of a label.
const LABEL_WIDTH: usize = 34;
/// Characters of a column.
const COLUMN_WIDTH: usize = 16;

/// A progress bar over the bytes of one transfer; silent when the output is not a terminal.
pub(crate) fn progress_bar(name: ArmName, size: u64) -> ProgressBar {
    let bar = ProgressBar::new(size);
    let template = "{prefix:>15} [{bar:40}] {decimal_bytes:>10}/{decimal_total_bytes} {decimal_bytes_per_sec} {elapsed}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(name.to_string());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A line about an arm that has just ended.
pub(crate) fn arm_line(arm: &ArmReport) -> String {
    let ending = match (arm.complete, arm.sha256_ok) {
        (true, true) => "sha256 right".to_owned(),
        (false, true) => format!("stopped after {:.0} s; what arrived is right", arm.seconds),
        (_, false) => "SHA256 WRONG".to_owned(),
    };
    format!("{:>15}: {:6.2} Mbit/s in {:.1} s, {ending}", arm.name, arm.goodput_mbps, arm.seconds)
}

/// The table and the bar chart.
pub(crate) fn summary(report: &DemoReport) -> String {
    let mut text = format!(
        "\n{} {} through {}, profile {}, {:.1} % loss on the last mile\n\n",
        if report.upload { "Uploads to" } else { "Downloads from" },
        report.server,
        report.gateway,
        report.profile,
        report.loss * 100.0
    );
    text += &table(&report.arms, report.upload);
    text += "\n";
    text += &chart(&report.arms);
    if let Some(ratio) = report.flooded_to_undisturbed {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\nBeside the flood: {:.1} % of the goodput without", ratio * 100.0);
    }
    if let (Some(ratio), Some(after)) = (report.moved_to_unmoved, report.rebind_after_seconds) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "\nWith another address after {after:.1} s: {:.1} % of the goodput without",
            ratio * 100.0
        );
    }
    if let Some(lateness) = report::lateness(&report.arms) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{lateness}");
    }
    text
}

fn table(arms: &[ArmReport], upload: bool) -> String {
    let mut text = String::new();
    let mut row = |label: &str, value: &dyn Fn(&ArmReport) -> String| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{label:<LABEL_WIDTH$}");
        for arm in arms {
            let _ = write!(text, "{:>COLUMN_WIDTH$}", value(arm));
        }
        text.push('\n');
    };
    let known = |value: Option<u64>| value.map_or("unknown".to_owned(), |value| value.to_string());
    row("", &|arm| arm.name.to_string());
    row("goodput, Mbit/s", &|arm| format!("{:.2}", arm.goodput_mbps));
    row("time, s", &|arm| {
        format!("{:.1}{}", arm.seconds, if arm.complete { "" } else { " (cut)" })
    });
    row("sha256", &|arm| if arm.sha256_ok { "right" } else { "WRONG" }.to_owned());
    row("lost on the last mile", &|arm| arm.losses.lost_last_mile.to_string());
    if upload {
        row("sent again to the gateway", &|arm| arm.losses.repairs.to_string());
        row("declared lost by the client", &|arm| known(arm.declared_lost));
    } else {
        row("repairs", &|arm| arm.losses.repairs.to_string());
        row("  of them too late", &|arm| arm.losses.repairs_late.to_string());
        row("declared lost by the server", &|arm| known(arm.declared_lost));
        row("  of them spuriously", &|arm| known(arm.losses.spurious));
    }
    if let Some(what) = arms.iter().find_map(|arm| Some(arm.times.as_ref()?.what)) {
        let of = |arm: &ArmReport, value: &dyn Fn(&TimesReport) -> String| {
            arm.times.as_ref().map(value).unwrap_or_default()
        };
        row(what, &|arm| of(arm, &|times| format!("{} of {}", times.completed, times.attempted)));
        row("  of them answered by the server", &|arm| of(arm, &|times| known(times.answered)));
        row("  wrong", &|arm| of(arm, &|times| times.wrong.to_string()));
        row("  freezes", &|arm| of(arm, &|times| known(times.freezes)));
        row("  median, ms", &|arm| of(arm, &|times| format!("{:.1}", times.median_ms)));
        row("  p90, ms", &|arm| of(arm, &|times| format!("{:.1}", times.p90_ms)));
        row("  p99, ms", &|arm| of(arm, &|times| format!("{:.1}", times.p99_ms)));
        row("  p99.9, ms", &|arm| of(arm, &|times| format!("{:.1}", times.p999_ms)));
    }
    row("moved to another address", &|arm| arm.gateway.paths_moved.to_string());
    if arms.iter().any(|arm| arm.gateway.flood_datagrams > 0) {
        row("datagrams of the flood", &|arm| arm.gateway.flood_datagrams.to_string());
        row("gateway's memory grew by, KiB", &|arm| {
            arm.gateway
                .gateway_memory_growth_bytes
                .map_or("unknown".to_owned(), |bytes| (bytes / 1024).to_string())
        });
    }
    row("Resets", &|arm| arm.gateway.resets.to_string());
    if !upload {
        row("cache high-water mark, bytes", &|arm| arm.gateway.cache_high_water_bytes.to_string());
        row("eACK bytes", &|arm| arm.eack_bytes.to_string());
    }
    text
}

fn chart(arms: &[ArmReport]) -> String {
    let most = arms.iter().map(|arm| arm.goodput_mbps).fold(0.0, f64::max);
    let mut text = String::new();
    for arm in arms {
        let eighths = if most > 0.0 {
            (arm.goodput_mbps / most * (BAR_WIDTH * 8) as f64).round() as usize
        } else {
            0
        };
        let _ = writeln!(text, "{:>15} {} {:.2} Mbit/s", arm.name, bar(eighths), arm.goodput_mbps);
    }
    text
}

/// A bar of `eighths` of a character.
fn bar(eighths: usize) -> String {
    const BAR_PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    "█".repeat(eighths / 8) + BAR_PARTS[eighths % 8]
}
