//! The operators' commands, against a gateway that the operator has made.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::command::{Failure, Outcome};
use crate::suite::{SHOP_GATEWAY, SHOP_NAMESPACE, Suite};

/// The answer of `packrat ARGUMENTS -o json`.
fn packrat(suite: &Suite, arguments: &[&str]) -> Outcome<Value> {
    let program = suite.places.packrat.to_string_lossy();
    let words =
        std::iter::once(program.as_ref()).chain(arguments.iter().copied()).chain(["-o", "json"]);
    Ok(serde_json::from_str(&suite.cluster.administrator().output(words)?)?)
}

/// Every check passes, among them a real Discover to the gateway, the certificates and Envoy's
/// version.
pub(super) fn check(suite: &mut Suite) -> Outcome<String> {
    // The loss between this client and the gateway would be a warning.
    suite.last_mile.set_loss(0.0, 1.0)?;
    let report = packrat(suite, &["check"]);
    suite.last_mile.set_loss(crate::suite::LAST_MILE_LOSS, 1.0)?;
    let report = report?;
    let checks = report["checks"].as_array().cloned().unwrap_or_default();
    let text = |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
    let ill: Vec<String> = checks
        .iter()
        .filter(|check| check["verdict"] != "passed" && check["verdict"] != "unknown")
        // The check of a node's limit of open files is right, but the limit is not the product's.
        .filter(|check| {
            check["verdict"] == "failed" || !text(check, "detail").contains("RLIMIT_NOFILE")
        })
        // Without a far segment, the bottleneck is behind the gateway, and its queue overflows as
        // long as the server does not notice.
        .filter(|check| {
            check["verdict"] == "failed"
                || suite.far.is_some()
                || !text(check, "name").ends_with("repair budget")
        })
        .map(|check| format!("{}: {}", text(check, "name"), text(check, "detail")))
        .collect();
    if !ill.is_empty() {
        return Err(Failure(ill.join("; ")));
    }
    for group in [
        "kubernetes",
        "rights",
        "definitions",
        "operator",
        "gateways",
        "network",
        "certificates",
        "envoy",
        "routes",
        "from here",
    ] {
        if !checks.iter().any(|check| check["group"] == group) {
            return Err(Failure(format!("no check of the group {group:?}")));
        }
    }
    Ok(format!("{} checks", checks.len()))
}

/// The figures of the route reflect the download before.
pub(super) fn stat(suite: &mut Suite) -> Outcome<String> {
    let answer =
        packrat(suite, &["stat", "--namespace", SHOP_NAMESPACE, "--edge-gateway", SHOP_GATEWAY])?;
    let route = &answer["routes"][0];
    let total = |name: &str| route["totals"][name].as_f64().unwrap_or_default();
    let (sessions, arrived) =
        (route["sessions"].as_f64().unwrap_or_default(), total("packrat_repairs_arrived_total"));
    let text = format!("{}: {sessions} sessions, {arrived} repairs arrived", route["route"]);
    if sessions >= 1.0 && arrived > 0.0 {
        Ok(text)
    } else {
        Err(Failure(format!("{text} of {answer}")))
    }
}

/// The gateways' dashboards of the chart.
const GATEWAY_DASHBOARDS: [&str; 3] = ["overview", "route", "capacity"];

/// Checks after a download that the gateway reports every metric in the dashboards' queries.
pub(super) fn dashboards(suite: &mut Suite) -> Outcome<String> {
    let (pod, _) = suite.gateway_pod(SHOP_GATEWAY)?;
    let text = suite.metrics_page(&pod)?;
    let told: BTreeSet<&str> =
        text.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    let mut asked = BTreeSet::new();
    for name in GATEWAY_DASHBOARDS {
        let path =
            suite.places.project.join(format!("charts/packrat/dashboards/packrat-{name}.json"));
        collect_metrics(&serde_json::from_str(&fs::read_to_string(path)?)?, &mut asked);
    }
    let missing: Vec<&str> =
        asked.iter().map(String::as_str).filter(|name| !told.contains(name)).collect();
    if asked.is_empty() || !missing.is_empty() {
        return Err(Failure(format!(
            "of {} metrics these are missing: {}",
            asked.len(),
            missing.join(", ")
        )));
    }
    Ok(format!("{} metrics", asked.len()))
}

/// Names of metrics in all queries of a dashboard.
fn collect_metrics(dashboard: &Value, names: &mut BTreeSet<String>) {
    match dashboard {
        Value::Object(entries) => {
            if let Some(query) = entries.get("expr").and_then(Value::as_str) {
                let words =
                    query.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
                names.extend(words.filter(|word| word.starts_with("packrat_")).map(str::to_owned));
            }
            entries.values().for_each(|entry| collect_metrics(entry, names));
        }
        Value::Array(entries) => entries.iter().for_each(|entry| collect_metrics(entry, names)),
        _ => {}
    }
}
