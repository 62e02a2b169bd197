//! Dashboards, rules and docs/METRICS.md, generated from the definitions of metrics and figures.
//!
//! `cargo run -p packrat-dashboards` writes [`files`] into the source tree; a test fails when they
//! are not up to date. Queries can name only defined series: another test takes every name out of
//! every query and looks it up.
#![forbid(unsafe_code)]

mod agent_metrics;
mod capacity;
mod dashboard;
mod metrics_page;
mod operator;
mod operator_metrics;
mod overview;
mod panel;
pub mod queries;
mod route;
pub mod rules;

pub use agent_metrics::{AGENT_METRICS, AgentMetric};
pub use operator_metrics::OPERATOR_METRICS;

/// Every generated file: path below the source tree, content.
pub fn files() -> Vec<(&'static str, String)> {
    let json = |value: serde_json::Value| format!("{value:#}\n");
    vec![
        ("charts/packrat/dashboards/packrat-overview.json", json(overview::dashboard())),
        ("charts/packrat/dashboards/packrat-route.json", json(route::dashboard())),
        ("charts/packrat/dashboards/packrat-capacity.json", json(capacity::dashboard())),
        ("charts/packrat/dashboards/packrat-operator.json", json(operator::dashboard())),
        ("charts/packrat/rules/packrat-recording.yaml", rules::recording()),
        ("charts/packrat/rules/packrat-alerts.yaml", rules::alerts()),
        ("charts/packrat/rules/essential.txt", rules::essential()),
        ("docs/METRICS.md", metrics_page::page()),
    ]
}
