//! Whole dashboards: rows of panels, variables, links.

use serde_json::{Value, json};

use crate::panel::Panel;

/// A dashboard before it is JSON.
pub(crate) struct Dashboard {
    /// Part of its address, and the name of its file.
    pub(crate) uid: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    /// True if it has a variable to select routes.
    pub(crate) by_route: bool,
    /// True if its panels query Loki.
    pub(crate) has_logs: bool,
    /// Titles of the rows, and their panels.
    pub(crate) rows: Vec<(&'static str, Vec<Panel>)>,
}

/// Tag of dashboards, by which they link to each other.
const DASHBOARD_TAG: &str = "packrat";

impl Dashboard {
    pub(crate) fn json(&self) -> Value {
        json!({
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": [DASHBOARD_TAG],
            "schemaVersion": 39,
            "version": 1,
            "editable": false,
            "graphTooltip": 1,
            "time": { "from": "now-1h", "to": "now" },
            "timezone": "browser",
            "refresh": "30s",
            "links": [{
                "type": "dashboards", "title": "Packrat", "tags": [DASHBOARD_TAG], "asDropdown": false, "includeVars": true, "keepTime": true,
                "icon": "external link", "targetBlank": false, "tooltip": "", "url": "",
            }],
            "annotations": { "list": [] },
            "templating": { "list": self.variables() },
            "panels": self.panels(),
        })
    }

    fn panels(&self) -> Vec<Value> {
        let mut panels = Vec::new();
        let mut y = 0;
        for (title, row) in &self.rows {
            panels.push(json!({
                "id": panels.len() + 1, "type": "row", "title": title, "collapsed": false, "panels": [],
                "gridPos": { "x": 0, "y": y, "w": 24, "h": 1 },
            }));
            y += 1;
            let (mut x, mut height) = (0, 0);
            for panel in row {
                if x + panel.width() > 24 {
                    y += height;
                    (x, height) = (0, 0);
                }
                panels.push(panel.placed(panels.len() + 1, x, y));
                x += panel.width();
                height = height.max(panel.height());
            }
            y += height;
        }
        panels
    }

    fn variables(&self) -> Vec<Value> {
        let mut variables = vec![source("datasource", "Data source", "prometheus")];
        if self.has_logs {
            variables.push(source("loki", "Logs", "loki"));
        }
        let every = "packrat_sessions";
        variables.push(choice("gateway", "Gateway", &format!("label_values({every}, gateway)")));
        if self.by_route {
            let of_gateway = format!("{every}{{gateway=~\"$gateway\"}}");
            variables.push(choice(
                "namespace",
                "Namespace",
                &format!("label_values({of_gateway}, namespace)"),
            ));
            let of_namespace =
                format!("{every}{{gateway=~\"$gateway\", namespace=~\"$namespace\"}}");
            variables.push(choice(
                "route",
                "Route",
                &format!("label_values({of_namespace}, route)"),
            ));
        }
        variables
    }
}

fn source(name: &str, label: &str, kind: &str) -> Value {
    json!({
        "name": name, "label": label, "type": "datasource", "query": kind, "refresh": 1, "hide": 0, "multi": false,
        "includeAll": false, "regex": "", "options": [], "current": {},
    })
}

fn choice(name: &str, label: &str, query: &str) -> Value {
    json!({
        "name": name, "label": label, "type": "query", "refresh": 2, "sort": 1, "multi": true, "includeAll": true,
        "allValue": ".*", "hide": 0, "regex": "", "options": [],
        "datasource": { "type": "prometheus", "uid": "${datasource}" },
        "query": { "query": query, "refId": format!("variable-{name}") },
        "current": { "selected": true, "text": ["All"], "value": ["$__all"] },
    })
}
