//! The text that Prometheus reads.

use std::fmt::Write;
use std::sync::Arc;

use super::state::Route;
use crate::metrics::{Definition, definitions, process};

/// All metrics of all routes and of the process in the Prometheus text format, version 0.0.4.
pub fn prometheus_text(routes: &[Arc<Route>]) -> String {
    let mut text = String::new();
    let all: Vec<(String, Vec<u64>)> =
        routes.iter().map(|route| (labels_of(route), route.metrics().values().collect())).collect();
    let mut begun: Vec<&str> = Vec::new();
    for definition in definitions() {
        // The series of one name stand together, and so do the parts of a histogram.
        if begun.contains(&definition.family()) {
            continue;
        }
        begun.push(definition.family());
        let mut described = false;
        for (index, series) in definitions().iter().enumerate() {
            if series.family() != definition.family() {
                continue;
            }
            if !described {
                describe(&mut text, definition);
                described = true;
            }
            for (labels, values) in &all {
                let value = values.get(index).copied().unwrap_or_default();
                let _ = write!(text, "{}{{{labels}", series.name);
                for (label, value) in series.labels {
                    let _ = write!(text, ",{label}=\"{value}\"");
                }
                // Writing to a String cannot fail.
                let _ = writeln!(text, "}} {value}");
            }
        }
    }
    let gateway = routes.first().map(|route| route.gateway_name()).unwrap_or_default();
    for (definition, value) in process::definitions().iter().zip(process::values()) {
        describe(&mut text, definition);
        let _ =
            writeln!(text, "{}{{gateway=\"{}\"}} {value}", definition.name, escape_label(&gateway));
    }
    text
}

fn describe(text: &mut String, definition: &Definition) {
    let (name, kind) = (definition.family(), definition.kind.name());
    let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", definition.help);
}

fn labels_of(route: &Route) -> String {
    format!(
        "route=\"{}\",gateway=\"{}\",namespace=\"{}\"",
        escape_label(route.name()),
        escape_label(&route.gateway_name()),
        escape_label(&route.namespace())
    )
}

fn escape_label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
