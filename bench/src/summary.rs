//! The results: flat keys for programs, tables for people.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use serde_json::{Number, Value};

use crate::Fallible;

/// Figures by flat key (`part.what.unit`), and the tables that show them.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    figures: BTreeMap<String, Value>,
    text: String,
    failures: Vec<String>,
}

impl Summary {
    /// Records a figure under its key.
    pub(crate) fn set(&mut self, key: &str, value: f64) {
        // Four significant digits are more than the measurement has.
        let digits = if value == 0.0 { 0 } else { (3 - value.abs().log10().floor() as i32).max(0) };
        let scale = 10f64.powi(digits);
        let rounded = (value * scale).round() / scale;
        self.figures
            .insert(key.to_owned(), Number::from_f64(rounded).map_or(Value::Null, Value::Number));
    }

    /// Records a text under its key.
    pub(crate) fn note(&mut self, key: &str, text: &str) {
        self.figures.insert(key.to_owned(), text.into());
    }

    /// A figure recorded before.
    pub(crate) fn get(&self, key: &str) -> Option<f64> {
        self.figures.get(key)?.as_f64()
    }

    /// Prints a part of the report, and records it.
    pub(crate) fn say(&mut self, text: &str) {
        println!("{text}");
        let _ = writeln!(self.text, "{text}");
    }

    /// Records a failed measurement; the others go on.
    pub(crate) fn fail(&mut self, what: &str, error: Box<dyn Error>) {
        eprintln!("FAILED: {what}: {error}");
        self.failures.push(format!("{what}: {error}"));
    }

    /// Fails with the names of all failed measurements, if any.
    pub(crate) fn failures(&self) -> Fallible {
        if self.failures.is_empty() {
            return Ok(());
        }
        Err(format!(
            "{} measurements have failed:\n{}",
            self.failures.len(),
            self.failures.join("\n")
        )
        .into())
    }

    /// Prints a table and records it.
    pub(crate) fn table(&mut self, title: &str, header: &[&str], rows: &[Vec<String>]) {
        let mut text = format!(
            "\n### {title}\n\n| {} |\n|{}",
            header.join(" | "),
            "---|".repeat(header.len())
        );
        for row in rows {
            let _ = write!(text, "\n| {} |", row.join(" | "));
        }
        self.say(&text);
    }

    /// Writes the figures as JSON beside the report as Markdown.
    pub(crate) fn write(&self, json: &Path) -> io::Result<()> {
        if let Some(directory) = json.parent() {
            std::fs::create_dir_all(directory)?;
        }
        std::fs::write(json, serde_json::to_string_pretty(&self.figures)? + "\n")?;
        std::fs::write(json.with_extension("md"), &self.text)
    }
}

/// A figure with its significant digits.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A figure, or a dash for none.
pub(crate) fn digits_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), digits)
}
