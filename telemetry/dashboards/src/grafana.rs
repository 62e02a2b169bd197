//! Dashboards as Grafana's JSON.

use serde_json::{Value, json};

use crate::definitions::{Dashboard, Definitions, Panel};
use crate::selection::Selection;

/// The series and the window that a dashboard's user selects.
const SELECTED_BY_USER: Selection = Selection {
    of_routes: "gateway=~\"$gateway\", namespace=~\"$namespace\", route=~\"$route\"",
    of_processes: "gateway=~\"$gateway\"",
    window: "$__rate_interval",
};
const PAGE_COLUMNS: u64 = 24;

impl Definitions {
    pub(crate) fn dashboard_json(&self, dashboard: &Dashboard) -> Value {
        let mut panels = Vec::new();
        let mut y = 0;
        for row in &dashboard.rows {
            panels.push(json!({
                "id": panels.len() + 1, "type": "row", "title": row.title, "collapsed": false, "panels": [],
                "gridPos": { "x": 0, "y": y, "w": PAGE_COLUMNS, "h": 1 },
            }));
            y += 1;
            let (mut x, mut row_height) = (0, 0);
            for panel in &row.panels {
                let size = |side: &str| self.grafana["kinds"][&panel.kind][side].as_u64();
                let width = panel.width.or(size("width")).unwrap_or_default();
                let height = size("height").unwrap_or_default();
                if x + width > PAGE_COLUMNS {
                    y += row_height;
                    (x, row_height) = (0, 0);
                }
                let mut placed = self.panel_json(panel);
                placed["id"] = (panels.len() + 1).into();
                placed["gridPos"] = json!({ "x": x, "y": y, "w": width, "h": height });
                panels.push(placed);
                x += width;
                row_height = row_height.max(height);
            }
            y += row_height;
        }
        let variables = dashboard.variables.iter().map(|name| &self.grafana["variables"][name]);
        let mut json = self.grafana["dashboard"].clone();
        json["uid"] = dashboard.uid.as_str().into();
        json["title"] = dashboard.title.as_str().into();
        json["description"] = dashboard.description.as_str().into();
        json["templating"]["list"] = variables.cloned().collect();
        json["panels"] = panels.into();
        json
    }

    fn panel_json(&self, panel: &Panel) -> Value {
        let mut json = self.grafana["kinds"][&panel.kind]["panel"].clone();
        json["title"] = panel.title.as_str().into();
        json["description"] = panel.description.as_str().into();
        let model = json["targets"][0].clone();
        let targets = panel.queries.iter().zip('A'..='Z').map(|((query, legend), name)| {
            let mut target = model.clone();
            target["refId"] = name.to_string().into();
            target["expr"] = SELECTED_BY_USER.apply(query, self).into();
            set(&mut target, "/legendFormat", legend.as_str().into());
            target
        });
        json["targets"] = targets.collect();
        let unit = &self.grafana["units"][&panel.unit];
        set(&mut json, "/fieldConfig/defaults/unit", unit["unit"].clone());
        set(&mut json, "/fieldConfig/defaults/decimals", unit["decimals"].clone());
        let (model, values) = match (panel.better_above, panel.worse_above) {
            (Some(values), _) => ("better_above", values),
            (_, Some(values)) => ("worse_above", values),
            _ => ("none", [0.0; 2]),
        };
        let mut thresholds = self.grafana["thresholds"][model].clone();
        set(&mut thresholds, "/steps/1/value", values[0].into());
        set(&mut thresholds, "/steps/2/value", values[1].into());
        set(&mut json, "/fieldConfig/defaults/thresholds", thresholds);
        let style = if model == "none" { "off" } else { "dashed" };
        set(&mut json, "/fieldConfig/defaults/custom/thresholdsStyle/mode", style.into());
        for (figure, name) in panel.columns.iter().flat_map(|name| self.figure(name)).zip('A'..) {
            let names = &mut json["transformations"][1]["options"]["renameByName"];
            names[format!("Value #{name}")] = figure.title.as_str().into();
            let unit = &self.grafana["units"][&figure.unit];
            let properties = ["unit", "decimals"].map(|id| json!({ "id": id, "value": unit[id] }));
            if let Some(overrides) = json["fieldConfig"]["overrides"].as_array_mut() {
                let column = json!({ "id": "byName", "options": figure.title });
                overrides.push(json!({ "matcher": column, "properties": properties }));
            }
        }
        json
    }
}

/// Sets a place that the kind of panel has.
fn set(json: &mut Value, place: &str, value: Value) {
    if let Some(slot) = json.pointer_mut(place) {
        *slot = value;
    }
}
