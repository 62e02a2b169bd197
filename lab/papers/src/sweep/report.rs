//! The sweep's tables and pictures.

use super::cache::Cache;
use super::check::Checked;
use super::grid::{Cell, DELAYS_MILLIS, LOSSES_PERCENT, RATES_MBPS};
use super::paths::Filter;
use packrat_lab::drawing::{Figure, HeatMap, Panel};
use packrat_lab::statistics::median;
use std::fmt::Write;

/// The row of a sender's classes of paths.
pub(super) fn classes(caches: &[Cache]) -> String {
    let mut text = String::from(
        "| sender | segments measured | paths | split > 3 × | and > 0.5 of the rate | class I | class II | class III | other |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for cache in caches {
        let Filter { paths, faster, used, classes } = Filter::new(cache);
        let [one, two, three, other] = classes;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {paths} | {faster} | {used} | {one} | {two} | {three} | {other} |",
            cache.extent.sender.name(),
            cache.len()
        );
    }
    text
}

/// The corners of each sender's map: its distinctive features.
pub(super) fn fingerprints(caches: &[Cache]) -> String {
    let mut text = String::from(
        "| sender | 1 ms, 0 % | 100 ms, 0 % | 1 ms, 4 % | 40 ms, 1 % | 100 ms, 4 % | half of the rate at 40 ms is lost at |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let cell = |delay_ms, loss_percent| Cell { rate_mbps: RATES_MBPS[0], delay_ms, loss_percent };
    for cache in caches {
        let shares = [cell(1, 0), cell(100, 0), cell(1, 4), cell(40, 1), cell(100, 4)]
            .map(|cell| share(cache, cell));
        let half = LOSSES_PERCENT.into_iter().find(|loss| cache.utilisation(cell(40, *loss)) < 0.5);
        let half = half.map_or_else(|| "more than 4 %".to_owned(), |loss| format!("{loss} %"));
        let _ =
            writeln!(text, "| {} | {} | {half} |", cache.extent.sender.name(), shares.join(" | "));
    }
    text
}

/// The share of the rate, for people.
fn share(cache: &Cache, cell: Cell) -> String {
    cache.spread(cell).map_or_else(|| "< 0.05".to_owned(), |[_, median, _]| format!("{median:.2}"))
}

/// The errors of one sender's predictions.
pub(super) fn errors(sender: &str, checked: &[Checked]) -> String {
    let sizes = || checked.iter().map(|one| one.error().abs());
    let mean = sizes().sum::<f64>() / checked.len().max(1) as f64;
    let largest = checked.iter().max_by(|one, two| one.error().abs().total_cmp(&two.error().abs()));
    let mut text = format!(
        "{sender}: {} paths split in virtual time; error of the prediction: mean {:.1} %, median {:.1} %, largest {:.1} %",
        checked.len(),
        mean * 100.0,
        median(sizes()) * 100.0,
        sizes().fold(0.0, f64::max) * 100.0
    );
    if let Some(Checked { far, near, predicted, measured }) = largest {
        let segment = |cell: &Cell| {
            format!("{} Mbit/s {} ms {} %", cell.rate_mbps, cell.delay_ms, cell.loss_percent)
        };
        let _ = write!(
            text,
            " ({} and {}: {predicted:.2} of the rate predicted, {measured:.2} measured)",
            segment(far),
            segment(near)
        );
    }
    text + "\n"
}

/// All segments of all senders (RFC 4180), as shares of the rate.
pub(super) fn csv(caches: &[Cache]) -> String {
    let mut text = String::from("sender,rate_mbps,delay_ms,loss_percent,p10,p50,p90\n");
    for cache in caches {
        for cell in Cell::all() {
            let Some([low, median, high]) = cache.spread(cell) else { continue };
            let Cell { rate_mbps, delay_ms, loss_percent } = cell;
            let sender = cache.extent.sender.name();
            let _ = writeln!(
                text,
                "{sender},{rate_mbps},{delay_ms},{loss_percent},{low:.3},{median:.3},{high:.3}"
            );
        }
    }
    text
}

/// A map for each sender at the smallest rate: delays over losses.
pub(super) fn heat_map(caches: &[Cache]) -> Figure {
    let rate_mbps = RATES_MBPS[0];
    let panels = caches.iter().map(|cache| {
        let rows: Vec<u64> = DELAYS_MILLIS.into_iter().rev().collect();
        let value = |delay_ms, loss_percent| {
            cache.spread(Cell { rate_mbps, delay_ms, loss_percent }).map(|[_, median, _]| median)
        };
        Panel::Heat(HeatMap {
            title: cache.extent.sender.name().to_owned(),
            rows: rows.iter().map(|delay| format!("{delay} ms")).collect(),
            columns: LOSSES_PERCENT.iter().map(|loss| format!("{loss} %")).collect(),
            values: rows
                .iter()
                .map(|delay| LOSSES_PERCENT.iter().map(|loss| value(*delay, *loss)).collect())
                .collect(),
        })
    });
    Figure::new(
        "sweep",
        format!("Share of a link of {rate_mbps} Mbit/s that a download uses"),
        "One segment, end to end, in virtual time. Rows: delay one way. Columns: random loss in both directions. Empty: below 0.05, or harder than that.",
        panels.collect(),
    )
}
