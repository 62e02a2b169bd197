//! Dashboards, rules and docs/METRICS.md, generated from `data` and the definitions of metrics.
//!
//! `cargo run -p packrat-dashboards` writes [`files`] into the source tree; a test fails when they
//! are not up to date. Queries can name only defined series: another test takes every name out of
//! every query and looks it up.
#![forbid(unsafe_code)]

mod definitions;
mod grafana;
mod metrics_page;
pub mod queries;
pub mod rules;
mod selection;

pub use definitions::{Alert, DefinitionError, Definitions, Figure, Metrics};
pub use selection::Selection;

/// Every generated file: path below the source tree, content.
pub fn files(definitions: &Definitions) -> Vec<(String, String)> {
    let dashboards = definitions.dashboards.iter().map(|dashboard| {
        let json = definitions.dashboard_json(dashboard);
        (format!("charts/packrat/dashboards/{}.json", dashboard.uid), format!("{json:#}\n"))
    });
    let others = [
        ("charts/packrat/rules/packrat-recording.yaml", rules::recording(definitions)),
        ("charts/packrat/rules/packrat-alerts.yaml", rules::alerts(definitions)),
        ("charts/packrat/rules/essential.txt", rules::essential(definitions)),
        ("docs/METRICS.md", metrics_page::page(definitions)),
    ];
    dashboards.chain(others.map(|(path, content)| (path.to_owned(), content))).collect()
}
