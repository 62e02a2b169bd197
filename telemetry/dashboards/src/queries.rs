//! Every query of every dashboard and rule, for tests that run them.

use serde_json::Value;

use crate::Definitions;

/// A query and its place.
#[derive(Debug, Clone)]
pub struct Query {
    /// Dashboard and panel, or the rule.
    pub place: String,
    /// PromQL, or LogQL when [`Self::is_logs`].
    pub expression: String,
    /// True if it is for Loki.
    pub is_logs: bool,
}

/// Every query, dashboards first, then rules.
pub fn all(definitions: &Definitions) -> Vec<Query> {
    let mut all = Vec::new();
    for (path, content) in crate::files(definitions) {
        let Some(name) = path.strip_prefix("charts/packrat/dashboards/") else { continue };
        let Ok(dashboard) = serde_json::from_str::<Value>(&content) else { continue };
        let empty = Vec::new();
        for panel in dashboard["panels"].as_array().unwrap_or(&empty) {
            for target in panel["targets"].as_array().unwrap_or(&empty) {
                all.push(Query {
                    place: format!("{name}: {}", panel["title"].as_str().unwrap_or_default()),
                    expression: target["expr"].as_str().unwrap_or_default().to_owned(),
                    is_logs: target["datasource"]["type"] == "loki",
                });
            }
        }
    }
    for figure in &definitions.figures {
        all.push(Query {
            place: format!("recording rule {}", figure.record),
            expression: figure.expression.clone(),
            is_logs: false,
        });
    }
    for alert in &definitions.alerts {
        all.push(Query {
            place: format!("alert {}", alert.name),
            expression: alert.expression.clone(),
            is_logs: false,
        });
    }
    all
}

/// The expression with a dashboard's variables set: everything selected, rates over `window`.
pub fn resolved(expression: &str, window: &str) -> String {
    ["$gateway", "$namespace", "$route"]
        .iter()
        .fold(expression.replace("$__rate_interval", window), |text, variable| {
            text.replace(variable, ".*")
        })
}

/// The names of Packrat's series (metrics and recorded figures) in an expression.
pub fn names(expression: &str) -> Vec<&str> {
    expression
        .split(|character: char| {
            !(character.is_ascii_alphanumeric() || character == '_' || character == ':')
        })
        .filter(|word| word.starts_with("packrat_") || word.starts_with("packrat:"))
        .collect()
}
