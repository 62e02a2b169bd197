//! The committed files match the definitions, name only defined series, and follow the rules of a
//! good dashboard.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use packrat_dashboards::queries::{all, names};
use packrat_dashboards::{Definitions, files, rules};
use packrat_dataplane::metrics::{Definition, definitions, process};
use serde_json::Value;

fn defined() -> Definitions {
    Definitions::read().unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

#[test]
fn the_committed_files_are_up_to_date() {
    for (path, content) in files(&defined()) {
        let committed = fs::read_to_string(root().join(&path)).unwrap_or_default();
        assert!(
            committed == content,
            "{path} is out of date: run `cargo run -p packrat-dashboards` and commit"
        );
    }
}

#[test]
fn every_query_names_only_series_that_exist() {
    let defined = defined();
    let known: BTreeSet<String> = definitions()
        .iter()
        .chain(process::definitions())
        .map(|definition| definition.name.to_string())
        .chain(defined.metrics.operator.iter().map(|(name, _)| format!("packrat_operator_{name}")))
        .chain(defined.figures.iter().map(|figure| figure.record.clone()))
        .collect();
    for query in all(&defined).iter().filter(|query| !query.is_logs) {
        for name in names(&query.expression) {
            assert!(known.contains(name), "{}: {name} does not exist", query.place);
        }
    }
}

#[test]
fn the_operator_exports_the_listed_metrics() {
    let source = fs::read_to_string(root().join("operator/src/shell/health.rs")).unwrap();
    let listed = defined().metrics.operator;
    for (name, _) in &listed {
        assert!(
            source.contains(&format!("\"{name}\"")),
            "the operator does not export packrat_operator_{name}"
        );
    }
    for exported in
        source.split("(\n                \"").skip(1).chain(source.split("            (\"").skip(1))
    {
        let name = exported.split('"').next().unwrap();
        let is_name = name.bytes().all(|letter| letter.is_ascii_lowercase() || letter == b'_');
        let known = listed.iter().any(|(known, _)| known == name);
        assert!(!is_name || known, "packrat_operator_{name} is missing in metrics.toml");
    }
}

#[test]
fn the_agent_exports_the_listed_metrics() {
    let source = fs::read_to_string(root().join("client-sdk/agent/src/statistics.rs")).unwrap();
    let agent = defined().metrics.agent;
    let listed: BTreeSet<&str> =
        agent.iter().map(|(name, _)| name.trim_end_matches("_total")).collect();
    for name in &listed {
        let is_exported = [format!("\"{name}\""), format!("\"{name}_total\"")]
            .iter()
            .any(|name| source.contains(name));
        assert!(is_exported, "the agent does not export packrat_agent_{name}");
    }
    let starts = [
        "series(\"",
        "series(\n            \"",
        "            (\"",
        "            (\n                \"",
    ];
    for after in starts.iter().flat_map(|start| source.split(start).skip(1)) {
        let name = after.split('"').next().unwrap().trim_end_matches("_total");
        assert!(listed.contains(name), "packrat_agent_{name} is missing in metrics.toml");
    }
}

#[test]
fn every_label_value_in_a_query_exists() {
    let selectors: Vec<&Definition> =
        definitions().iter().filter(|definition| !definition.labels.is_empty()).collect();
    // Reasons of conditions; the operator writes them.
    let of_conditions = ["NoRoutes", "RolloutStuck", "ScaledToZero"];
    for query in all(&defined()).iter().filter(|query| !query.is_logs) {
        for label in ["reason", "result", "side", "bound"] {
            for after in query.expression.split(&format!("{label}=\"")).skip(1) {
                let value = after.split('"').next().unwrap();
                assert!(
                    of_conditions.contains(&value)
                        || selectors
                            .iter()
                            .any(|definition| definition.labels.contains(&(label, value))),
                    "{}: no series has {label}=\"{value}\"",
                    query.place
                );
            }
        }
    }
}

/// All metrics for people are on a dashboard; the exceptions are listed here, with the reason.
#[test]
fn every_metric_is_shown_somewhere_or_for_a_reason_not() {
    let not_shown = [
        // Shown through values derived from them.
        ("packrat_sessions_opened_total", "the number of sessions is shown"),
        ("packrat_sessions_closed_total", "the number of sessions is shown"),
        ("packrat_sessions_begun_total", "handshakes by result are shown"),
        ("packrat_assist_enabled", "it is configuration"),
        ("packrat_repair_bytes_total", "the overhead is shown"),
        ("packrat_sparse_copy_bytes_total", "the number of copies is shown"),
        ("packrat_stream_symbol_bytes_total", "the number of symbols is shown"),
    ];
    let shown: BTreeSet<String> = all(&defined())
        .iter()
        .flat_map(|query| {
            names(&query.expression).into_iter().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    for (name, _) in not_shown {
        assert!(
            definitions().iter().any(|definition| definition.name == name),
            "{name} does not exist any more"
        );
    }
    let missing: BTreeSet<&str> = definitions()
        .iter()
        .map(|definition| definition.name.as_ref())
        // Of a histogram, the buckets are shown.
        .filter(|name| !name.ends_with("_sum") && !name.ends_with("_count"))
        .filter(|name| !shown.contains(*name) && !not_shown.iter().any(|(known, _)| known == name))
        .collect();
    // Metrics that only help to find a cause are in docs/METRICS.md alone.
    assert!(missing.len() <= 24, "many metrics are on no dashboard: {missing:?}");
}

#[test]
fn every_alert_has_a_section_in_the_runbook_and_a_test() {
    let runbook = fs::read_to_string(root().join("docs/RUNBOOK.md")).unwrap();
    let tests = fs::read_to_string(root().join("telemetry/dashboards/tests/alerts.yaml")).unwrap();
    let alerts = defined().alerts;
    for alert in &alerts {
        let section = runbook.split(&format!("\n## {}\n", alert.name)).nth(1);
        let section =
            section.unwrap_or_else(|| panic!("docs/RUNBOOK.md has no section {}", alert.name));
        let section = section.split("\n## ").next().unwrap();
        for part in ["**Users notice:**", "**Look:**", "**Do:**"] {
            assert!(section.contains(part), "{}: no {part}", alert.name);
        }
        assert!(
            tests.contains(&format!("alertname: {}\n", alert.name)),
            "alerts.yaml has no test of {}",
            alert.name
        );
    }
    // Conversely, every section has its alert, except sections that `packrat check` refers to.
    for section in runbook.split("\n## ").skip(1) {
        let name = section.lines().next().unwrap();
        assert!(
            name.starts_with("Check: ") || alerts.iter().any(|alert| alert.name == name),
            "no alert {name}"
        );
    }
}

/// Bounds the number of series of each route and each Pod, because Prometheus pays for each; a
/// smaller set holds only the series that rules and alerts need.
#[test]
fn a_route_has_so_many_series_and_no_more() {
    let essential = rules::essential(&defined());
    let essential: BTreeSet<&str> = essential.trim().trim_matches(['(', ')']).split('|').collect();
    let count = |is_kept: &dyn Fn(&str) -> bool| {
        definitions().iter().filter(|definition| is_kept(&definition.name)).count()
    };
    let of_comparison = |name: &str| {
        ["packrat_transfer_", "packrat_transfers_compared", "packrat_assistance_stopped"]
            .iter()
            .any(|begin| name.starts_with(begin))
            && !name.ends_with("_total")
    };
    assert!(count(&of_comparison) <= 100, "{} of comparison", count(&of_comparison));
    let total = count(&|_| true);
    assert!(total <= 400, "{total} series");
    let kept = count(&|name| essential.contains(name));
    // Every gateway Pod has these for each of its routes.
    assert!((40..=100).contains(&kept), "{kept} series");
    // Every rule and alert has what it needs.
    let known: BTreeSet<String> = definitions()
        .iter()
        .chain(process::definitions())
        .map(|definition| definition.name.to_string())
        .collect();
    for name in &essential {
        assert!(known.contains(*name) || name.starts_with("envoy_"), "{name} does not exist");
    }
    for query in all(&defined()).iter().filter(|query| !query.place.contains(".json")) {
        for name in names(&query.expression) {
            let is_of_gateways = known.contains(name);
            assert!(!is_of_gateways || essential.contains(name), "{}: {name}", query.place);
        }
    }
}

fn dashboards() -> Vec<(String, Value)> {
    files(&defined())
        .into_iter()
        .filter(|(path, _)| path.ends_with(".json"))
        .map(|(path, content)| (path, serde_json::from_str(&content).unwrap()))
        .collect()
}

/// The rules of Grafana's dashboard linter that apply here. The series have no `job` of their own
/// to select by.
#[test]
fn dashboards_follow_the_rules_of_grafanas_linter() {
    assert_eq!(dashboards().len(), 4);
    let mut addresses = BTreeSet::new();
    for (path, dashboard) in dashboards() {
        let uid = dashboard["uid"].as_str().unwrap();
        assert!(
            addresses.insert(uid.to_owned()) && path.ends_with(&format!("/{uid}.json")),
            "{path}"
        );
        assert_eq!(dashboard["editable"], false, "{path}");
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        assert_eq!(variables[0]["type"], "datasource", "{path}");
        assert_eq!(variables[0]["label"], "Data source", "{path}");
        for variable in variables.iter().filter(|variable| variable["type"] == "query") {
            // The choices follow the time range.
            assert_eq!(variable["refresh"], 2, "{path}: {}", variable["name"]);
        }
        let mut ids = BTreeSet::new();
        let mut bottom = 0;
        for panel in dashboard["panels"].as_array().unwrap() {
            let title = panel["title"].as_str().unwrap();
            assert!(
                !title.is_empty() && ids.insert(panel["id"].as_u64().unwrap()),
                "{path}: {title}"
            );
            let place = &panel["gridPos"];
            let (x, y) = (place["x"].as_u64().unwrap(), place["y"].as_u64().unwrap());
            assert!(x + place["w"].as_u64().unwrap() <= 24, "{path}: {title}");
            assert!(y >= bottom || panel["type"] != "row", "{path}: {title} overlaps");
            bottom = bottom.max(y);
            if panel["type"] == "row" {
                continue;
            }
            assert!(panel["description"].as_str().unwrap().ends_with('.'), "{path}: {title}");
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{path}: {title}");
            for target in targets {
                let source = target["datasource"]["uid"].as_str().unwrap();
                assert!(source == "${datasource}" || source == "${loki}", "{path}: {title}");
                let query = target["expr"].as_str().unwrap();
                assert!(!query.contains("RATE(") && !query.is_empty(), "{path}: {title}");
                for window in query.split("rate(").skip(1) {
                    let window = window.split('[').nth(1).unwrap().split(']').next().unwrap();
                    assert_eq!(window, "$__rate_interval", "{path}: {title}");
                }
            }
            if panel["type"] != "logs" {
                assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{path}: {title}");
                assert!(
                    panel["fieldConfig"]["defaults"]["thresholds"]["steps"].is_array(),
                    "{path}: {title}"
                );
            }
        }
    }
}
