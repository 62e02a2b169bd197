//! Panels, as Grafana's JSON has them.

use packrat_figures::{Figure, Selector, Unit};
use serde_json::{Value, json};

/// The series selected by a dashboard's variables.
pub(crate) const SELECTED_SERIES: Selector = Selector {
    of_routes: "gateway=~\"$gateway\", namespace=~\"$namespace\", route=~\"$route\"",
    of_processes: "gateway=~\"$gateway\"",
};
/// The window of rates: a few scrapes, longer with a wider zoom.
pub(crate) const RATE_WINDOW: &str = "$__rate_interval";

/// The values at which a number changes its colour.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Thresholds {
    /// No threshold: the number is neither good nor bad.
    None,
    /// Better above: amber from the first, green from the second value.
    Above(f64, f64),
    /// Worse above: amber from the first, red from the second value.
    Below(f64, f64),
}

impl Thresholds {
    fn json(self) -> Value {
        let steps = match self {
            Self::None => json!([{ "color": "blue", "value": null }]),
            Self::Above(amber, green) => json!([
                { "color": "red", "value": null }, { "color": "orange", "value": amber }, { "color": "green", "value": green },
            ]),
            Self::Below(amber, red) => json!([
                { "color": "green", "value": null }, { "color": "orange", "value": amber }, { "color": "red", "value": red },
            ]),
        };
        json!({ "mode": "absolute", "steps": steps })
    }
}

/// A panel without its position.
#[derive(Debug, Clone)]
pub(crate) struct Panel {
    width: u64,
    height: u64,
    body: Value,
}

/// A query of a panel and its legend.
pub(crate) type Query = (String, &'static str);

/// The figure with this name, for queries of the selected series.
pub(crate) fn figure(record: &str) -> Figure {
    // A name that does not exist shows up in the test of all queries, with an empty one.
    Figure::named(record).copied().unwrap_or(packrat_figures::ALL_FIGURES[0])
}

/// A counter's rate, summed by `labels`.
pub(crate) fn rate(series: &str, labels: &str) -> String {
    format!("sum by ({labels}) (rate({}[{RATE_WINDOW}]))", selected(series))
}

/// A series, restricted to the selection.
pub(crate) fn selected(series: &str) -> String {
    let matchers = if series.starts_with("packrat_process_") || series.starts_with("packrat_log_") {
        SELECTED_SERIES.of_processes
    } else {
        SELECTED_SERIES.of_routes
    };
    match series.split_once('{') {
        Some((name, labels)) => format!("{name}{{{matchers}, {labels}"),
        None => format!("{series}{{{matchers}}}"),
    }
}

fn targets(queries: &[Query], instant: bool) -> Vec<Value> {
    queries
        .iter()
        .zip('A'..='Z')
        .map(|((expression, legend), name)| {
            json!({
                "refId": name.to_string(),
                "datasource": { "type": "prometheus", "uid": "${datasource}" },
                "expr": expression,
                "legendFormat": legend,
                "instant": instant,
                "range": !instant,
                "format": if instant { "table" } else { "time_series" },
            })
        })
        .collect()
}

/// A large number in front of its curve.
pub(crate) fn stat(
    title: &str,
    help: &str,
    unit: Unit,
    query: String,
    thresholds: Thresholds,
) -> Panel {
    let mut targets = targets(&[(query, "")], false);
    for target in &mut targets {
        target["format"] = "time_series".into();
    }
    Panel {
        width: 4,
        height: 4,
        body: json!({
            "type": "stat",
            "title": title,
            "description": help,
            "datasource": { "type": "prometheus", "uid": "${datasource}" },
            "targets": targets,
            "fieldConfig": { "defaults": {
                "unit": unit.grafana(), "decimals": decimals(unit), "thresholds": thresholds.json(), "noValue": "–",
            }, "overrides": [] },
            "options": {
                "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
                "colorMode": "value", "graphMode": "area", "textMode": "auto", "justifyMode": "auto",
            },
        }),
    }
}

/// The large number of a figure, `reduced` over routes by an aggregation.
pub(crate) fn figure_stat(record: &str, reduce: &str, thresholds: Thresholds) -> Panel {
    let figure = figure(record);
    let query = format!("{reduce}({})", figure.expanded(RATE_WINDOW, SELECTED_SERIES));
    stat(figure.title, figure.help, figure.unit, query, thresholds)
}

fn decimals(unit: Unit) -> u64 {
    match unit {
        Unit::Count => 0,
        Unit::Ratio | Unit::Points => 2,
        _ => 1,
    }
}

/// Curves over time.
pub(crate) fn curves(
    title: &str,
    help: &str,
    unit: Unit,
    queries: &[Query],
    thresholds: Thresholds,
) -> Panel {
    let defaults = json!({
        "unit": unit.grafana(),
        "min": 0,
        "thresholds": thresholds.json(),
        "noValue": "–",
        "color": { "mode": "palette-classic" },
        "custom": {
            "drawStyle": "line", "lineInterpolation": "linear", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never",
            "spanNulls": false,
            "thresholdsStyle": { "mode": if matches!(thresholds, Thresholds::None) { "off" } else { "dashed" } },
        },
    });
    Panel {
        width: 12,
        height: 8,
        body: json!({
            "type": "timeseries",
            "title": title,
            "description": help,
            "datasource": { "type": "prometheus", "uid": "${datasource}" },
            "targets": targets(queries, false),
            "fieldConfig": { "defaults": defaults, "overrides": [] },
            "options": {
                "legend": { "displayMode": "table", "placement": "bottom", "calcs": ["mean", "max"], "showLegend": true },
                "tooltip": { "mode": "multi", "sort": "desc" },
            },
        }),
    }
}

/// The curves of a figure, one per route (or gateway).
pub(crate) fn figure_curves(record: &str, thresholds: Thresholds) -> Panel {
    let figure = figure(record);
    let legend = match figure.scope {
        packrat_figures::Scope::Route => "{{gateway}} {{namespace}}/{{route}}",
        packrat_figures::Scope::Gateway => "{{gateway}}",
    };
    let query = figure.expanded(RATE_WINDOW, SELECTED_SERIES);
    curves(figure.title, figure.help, figure.unit, &[(query, legend)], thresholds)
}

/// A table with a row per route and a column per figure. A row links to its route's dashboard.
pub(crate) fn routes_table(title: &str, help: &str, records: &[&str]) -> Panel {
    let figures: Vec<Figure> = records.iter().map(|record| figure(record)).collect();
    let queries: Vec<Query> =
        figures.iter().map(|figure| (figure.expanded(RATE_WINDOW, SELECTED_SERIES), "")).collect();
    let mut overrides = vec![json!({
        "matcher": { "id": "byName", "options": "route" },
        "properties": [{ "id": "links", "value": [{
            "title": "This route",
            "url": "/d/packrat-route/packrat-route?var-gateway=${__data.fields.gateway}&var-namespace=${__data.fields.namespace}&var-route=${__data.fields.route}&${__url_time_range}",
        }] }],
    })];
    let mut names = serde_json::Map::new();
    let mut hidden = serde_json::Map::new();
    hidden.insert("Time".to_owned(), true.into());
    for (figure, name) in figures.iter().zip('A'..='Z') {
        let column = format!("Value #{name}");
        names.insert(column, figure.title.into());
        overrides.push(json!({
            "matcher": { "id": "byName", "options": figure.title },
            "properties": [
                { "id": "unit", "value": figure.unit.grafana() },
                { "id": "decimals", "value": decimals(figure.unit) },
            ],
        }));
    }
    Panel {
        width: 24,
        height: 9,
        body: json!({
            "type": "table",
            "title": title,
            "description": help,
            "datasource": { "type": "prometheus", "uid": "${datasource}" },
            "targets": targets(&queries, true),
            "transformations": [
                { "id": "merge", "options": {} },
                { "id": "organize", "options": { "renameByName": names, "excludeByName": hidden } },
            ],
            "fieldConfig": { "defaults": { "unit": "short", "noValue": "–", "thresholds": Thresholds::None.json() }, "overrides": overrides },
            "options": { "showHeader": true, "cellHeight": "sm" },
        }),
    }
}

/// The buckets of a histogram, as rates over `window` or (`sparse`) as increases within an hour,
/// summed by `labels`.
fn buckets(histogram: &str, labels: &str, sparse: bool) -> String {
    let series = selected(&format!("{histogram}_bucket"));
    if sparse {
        format!("sum by ({labels}) (increase({series}[1h]))")
    } else {
        format!("sum by ({labels}) (rate({series}[{RATE_WINDOW}]))")
    }
}

/// The quantile `share` of a histogram, in the histogram's unit divided by `divisor`. `sparse`
/// histograms get values only now and then, so their window is an hour.
pub(crate) fn quantile(share: f64, histogram: &str, divisor: f64, sparse: bool) -> String {
    let value = format!("histogram_quantile({share}, {})", buckets(histogram, "le", sparse));
    if divisor == 1.0 { value } else { format!("{value} / {divisor:e}") }
}

/// Median and high quantiles of a histogram over time.
pub(crate) fn quantiles(
    title: &str,
    help: &str,
    unit: Unit,
    histogram: &str,
    divisor: f64,
    sparse: bool,
) -> Panel {
    let queries = [(0.5, "half"), (0.9, "nine of ten"), (0.99, "99 of 100")]
        .map(|(share, legend)| (quantile(share, histogram, divisor, sparse), legend));
    curves(title, help, unit, &queries, Thresholds::None)
}

/// The distribution of a histogram's values over time. `unit`: Grafana's name of the histogram's
/// own unit.
pub(crate) fn heat_map(title: &str, help: &str, unit: &str, histogram: &str) -> Panel {
    let mut targets = targets(&[(buckets(histogram, "le", false), "{{le}}")], false);
    for target in &mut targets {
        target["format"] = "heatmap".into();
    }
    Panel {
        width: 12,
        height: 8,
        body: json!({
            "type": "heatmap",
            "title": title,
            "description": help,
            "datasource": { "type": "prometheus", "uid": "${datasource}" },
            "targets": targets,
            "fieldConfig": { "defaults": { "unit": unit, "thresholds": Thresholds::None.json() }, "overrides": [] },
            "options": {
                "calculate": false,
                "cellGap": 1,
                "cellValues": { "unit": "cps" },
                "color": { "mode": "scheme", "scheme": "Blues", "steps": 64, "exponent": 0.5, "reverse": false },
                "filterValues": { "le": 1e-9 },
                "rowsFrame": { "layout": "auto" },
                "yAxis": { "unit": unit, "axisPlacement": "left" },
                "tooltip": { "show": true, "yHistogram": true },
                "legend": { "show": true },
            },
        }),
    }
}

/// Log lines from Loki.
pub(crate) fn logs(title: &str, help: &str, query: &str) -> Panel {
    Panel {
        width: 12,
        height: 8,
        body: json!({
            "type": "logs",
            "title": title,
            "description": help,
            "datasource": { "type": "loki", "uid": "${loki}" },
            "targets": [{
                "refId": "A",
                "datasource": { "type": "loki", "uid": "${loki}" },
                "expr": query,
                "queryType": "range",
            }],
            "fieldConfig": { "defaults": {}, "overrides": [] },
            "options": {
                "showTime": true, "wrapLogMessage": true, "prettifyLogMessage": false, "enableLogDetails": true,
                "sortOrder": "Descending", "dedupStrategy": "none",
            },
        }),
    }
}

impl Panel {
    /// Sets the width, in 24ths of the page.
    pub(crate) const fn wide(mut self, width: u64) -> Self {
        self.width = width;
        self
    }

    /// The panel's JSON, with its position.
    pub(crate) fn placed(&self, number: usize, x: u64, y: u64) -> Value {
        let mut body = self.body.clone();
        body["id"] = number.into();
        body["gridPos"] = json!({ "x": x, "y": y, "w": self.width, "h": self.height });
        body
    }

    pub(crate) const fn width(&self) -> u64 {
        self.width
    }

    pub(crate) const fn height(&self) -> u64 {
        self.height
    }
}
