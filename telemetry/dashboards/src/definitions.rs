//! The definitions of figures, alerts and dashboards, as the files in `data` have them.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Labels of a route's series.
const ROUTE_LABELS: &str = "cluster, gateway, namespace, route";

/// Quantiles of a histogram, and their legends.
const QUANTILES: [(&str, &str); 3] =
    [("0.5", "half"), ("0.9", "nine of ten"), ("0.99", "99 of 100")];

/// The contents of `data`.
#[derive(Debug, Clone)]
pub struct Definitions {
    /// In the order of the recording rules: later ones use earlier ones.
    pub figures: Vec<Figure>,
    /// Every alert.
    pub alerts: Vec<Alert>,
    /// Metrics and events that other crates define.
    pub metrics: Metrics,
    pub(crate) dashboards: Vec<Dashboard>,
    /// Grafana's JSON of a dashboard, its variables, and each kind of panel.
    pub(crate) grafana: Value,
}

/// A figure as a recording rule.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Name of the recording rule, by Prometheus' convention `level:metric:operations`.
    pub record: String,
    /// The title in panels.
    pub title: String,
    /// Meaning of the figure, and its reliability.
    pub help: String,
    /// A key of `units` in grafana.json.
    pub(crate) unit: String,
    /// The labels of the aggregated series.
    #[serde(default = "route_labels")]
    pub(crate) labels: String,
    /// The query of the recording rule: over five minutes, with other figures by their names.
    pub expression: String,
}

/// An alert; its section in docs/RUNBOOK.md has the same name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alert {
    /// The name.
    pub name: String,
    /// `warning` or `critical`.
    pub severity: String,
    /// Duration for which the condition must hold.
    #[serde(rename = "for")]
    pub patience: String,
    /// Summary of the alert in one line, with the labels of the subject.
    pub summary: String,
    /// The meaning of the alert.
    pub description: String,
    /// The condition.
    pub expression: String,
}

/// Metrics and events that other crates define.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Gauges of the operator: name without `packrat_operator_`, and meaning.
    pub operator: Vec<(String, String)>,
    /// Metrics of an agent itself: name without `packrat_agent_`, and meaning.
    pub agent: Vec<(String, String)>,
    /// Log events of the shells around the data plane: name, level, cause and keys.
    pub(crate) events_of_shells: Vec<(String, String, String)>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dashboard {
    /// Part of its address, and the name of its file.
    pub(crate) uid: String,
    pub(crate) title: String,
    pub(crate) description: String,
    /// Keys of `variables` in grafana.json.
    pub(crate) variables: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    pub(crate) title: String,
    pub(crate) panels: Vec<Panel>,
}

/// A panel; fields that its kind does not need are empty.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Panel {
    /// A key of `kinds` in grafana.json.
    pub(crate) kind: String,
    /// Name of the figure that gives texts, unit and, by default, the query.
    pub(crate) figure: String,
    pub(crate) title: String,
    pub(crate) description: String,
    /// A key of `units` in grafana.json.
    pub(crate) unit: String,
    /// In 24ths of the page, if not as its kind.
    pub(crate) width: Option<u64>,
    /// PromQL or LogQL, and the legend.
    pub(crate) queries: Vec<(String, String)>,
    /// A query of the quantile `SHARE`: median and high quantiles are shown.
    pub(crate) quantiles: String,
    /// Names of the figures that are the columns of a table.
    pub(crate) columns: Vec<String>,
    /// Amber from the first, green from the second value.
    pub(crate) better_above: Option<[f64; 2]>,
    /// Amber from the first, red from the second value.
    pub(crate) worse_above: Option<[f64; 2]>,
}

/// A file of `data` that is not as its type requires.
#[derive(Debug, thiserror::Error)]
#[error("telemetry/dashboards/data/{file}: {reason}")]
pub struct DefinitionError {
    file: &'static str,
    reason: String,
}

#[derive(Deserialize)]
struct FiguresFile {
    macros: Vec<(String, String)>,
    figures: Vec<Figure>,
}

#[derive(Deserialize)]
struct AlertsFile {
    macros: Vec<(String, String)>,
    alerts: Vec<Alert>,
}

impl Definitions {
    /// Reads the definitions.
    ///
    /// # Errors
    ///
    /// If a file is not as its type requires.
    pub fn read() -> Result<Self, DefinitionError> {
        let FiguresFile { macros, mut figures } =
            toml("figures.toml", include_str!("../data/figures.toml"))?;
        let AlertsFile { macros: alert_macros, mut alerts } =
            toml("alerts.toml", include_str!("../data/alerts.toml"))?;
        for figure in &mut figures {
            figure.expression = expanded(&figure.expression, &macros, &figure.labels);
        }
        let macros = [alert_macros, macros].concat();
        for alert in &mut alerts {
            alert.expression = expanded(&alert.expression, &macros, ROUTE_LABELS);
        }
        let mut dashboards: Vec<Dashboard> = vec![
            toml("overview.toml", include_str!("../data/overview.toml"))?,
            toml("route.toml", include_str!("../data/route.toml"))?,
            toml("capacity.toml", include_str!("../data/capacity.toml"))?,
            toml("operator.toml", include_str!("../data/operator.toml"))?,
        ];
        let rows = dashboards.iter_mut().flat_map(|dashboard| &mut dashboard.rows);
        for panel in rows.flat_map(|row| &mut row.panels) {
            panel.complete(&figures);
        }
        let grafana = serde_json::from_str(include_str!("../data/grafana.json")).map_err(
            |error: serde_json::Error| DefinitionError {
                file: "grafana.json",
                reason: error.to_string(),
            },
        )?;
        let metrics = toml("metrics.toml", include_str!("../data/metrics.toml"))?;
        Ok(Self { figures, alerts, metrics, dashboards, grafana })
    }

    /// The figure with this record.
    pub fn figure(&self, record: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.record == record)
    }
}

impl Panel {
    /// Writes the figure, the quantiles and the columns out, as texts and queries.
    fn complete(&mut self, figures: &[Figure]) {
        if let Some(figure) = figures.iter().find(|figure| figure.record == self.figure) {
            self.title.clone_from(&figure.title);
            self.description.clone_from(&figure.help);
            self.unit.clone_from(&figure.unit);
            if self.queries.is_empty() {
                self.queries.push((figure.record.clone(), figure.legend().to_owned()));
            }
        }
        if !self.quantiles.is_empty() {
            let query = |(share, legend): (&str, &str)| {
                (self.quantiles.replace("SHARE", share), legend.to_owned())
            };
            self.queries.extend(QUANTILES.map(query));
        }
        self.queries.extend(self.columns.iter().map(|record| (record.clone(), String::new())));
    }
}

impl Figure {
    fn legend(&self) -> &'static str {
        if self.labels == ROUTE_LABELS {
            "{{gateway}} {{namespace}}/{{route}}"
        } else {
            "{{gateway}}"
        }
    }
}

fn toml<T: DeserializeOwned>(file: &'static str, text: &str) -> Result<T, DefinitionError> {
    toml::from_str(text).map_err(|error| DefinitionError { file, reason: error.to_string() })
}

fn route_labels() -> String {
    ROUTE_LABELS.to_owned()
}

/// The expression with the macros' texts; each macro may use later ones.
fn expanded(expression: &str, macros: &[(String, String)], labels: &str) -> String {
    let mut text = expression.to_owned();
    for (name, body) in macros {
        while let Some((head, tail)) = text.split_once(&format!("{name}(")) {
            let (argument, tail) = tail.split_once(')').unwrap_or((tail, ""));
            text = format!("{head}{}{tail}", body.replace("$1", argument));
        }
    }
    text.replace("LABELS", labels)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test may fail anywhere
mod tests {
    use super::*;

    #[test]
    fn queries_name_their_labels_and_leave_other_functions_alone() {
        let definitions = Definitions::read().unwrap();
        assert_eq!(
            definitions.figure("packrat:loss_hidden:ratio_rate5m").unwrap().expression,
            "clamp_max(sum by (cluster, gateway, namespace, route) (rate(packrat_repairs_arrived_total[5m])) / \
             (sum by (cluster, gateway, namespace, route) (rate(packrat_datagrams_missing_total[5m])) > 0), 1)"
        );
        for Figure { expression, help, .. } in &definitions.figures {
            assert_eq!(
                expression.matches('(').count(),
                expression.matches(')').count(),
                "{expression}"
            );
            let macros = ["RATE", "SUM", "MEAN", "WIDTH", "PRECISION", "LABELS", "$1"];
            assert!(!macros.iter().any(|word| expression.contains(word)), "{expression}");
            assert!(help.ends_with('.'), "{help}");
        }
    }
}
