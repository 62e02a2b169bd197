//! The files of the matrix: rows as they are measured, then the table, the comparison, the pictures.

use super::amount::Amount;
use super::cells::Task;
use super::measure::Row;
use super::sharing::{self, SharingRow};
use super::summary::{Comparison, Summary};
use super::table;
use crate::drawing::{self, Figure, HeatMap, Panel};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The rows so far, one JSON object a line, after a line with the settings.
const JOURNAL_NAME: &str = "field.jsonl";

/// The settings of the rows in a journal: rows of others do not go with them.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) version: String,
    pub(super) amount: Amount,
    pub(super) traces: bool,
}

/// The folder of the results.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn create(path: &Path) -> Result<Self, Box<dyn Error>> {
        let folder = Self(path.to_owned());
        fs::create_dir_all(path).map_err(|source| folder.unwritable("", source))?;
        Ok(folder)
    }

    /// The journal, and the rows that are already in it when it is to be resumed.
    pub(super) fn journal(
        &self,
        settings: &Settings,
        resume: bool,
    ) -> Result<(File, Vec<Row>), Box<dyn Error>> {
        let path = self.0.join(JOURNAL_NAME);
        let unwritable = |source| self.unwritable(JOURNAL_NAME, source);
        let malformed = |reason: String| {
            let path = path.display();
            format!(
                "{path} cannot be resumed: {reason}; use the same options, or leave --resume out to begin anew"
            )
        };
        let mut rows = Vec::new();
        let resumed = resume && path.exists();
        let mut kept = format!("{}\n", json(settings)?);
        if resumed {
            let text = fs::read_to_string(&path).map_err(unwritable)?;
            let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            let first = lines.next().unwrap_or_default();
            let of: Settings =
                serde_json::from_str(first).map_err(|error| malformed(error.to_string()))?;
            if of != *settings {
                return Err(malformed(format!("it was measured with {}", first.trim_end())).into());
            }
            // A last line without an end was being written when the command ended.
            for line in lines {
                rows.push(
                    serde_json::from_str(line).map_err(|error| malformed(error.to_string()))?,
                );
                kept.push_str(line);
            }
        }
        fs::write(&path, kept).map_err(unwritable)?;
        let file = OpenOptions::new().append(true).open(&path).map_err(unwritable)?;
        Ok((file, rows))
    }

    pub(super) fn append(&self, journal: &mut File, row: &Row) -> Result<(), Box<dyn Error>> {
        writeln!(journal, "{}", json(row)?)
            .map_err(|source| self.unwritable(JOURNAL_NAME, source).into())
    }

    /// Writes the table, the comparison and the pictures.
    pub(super) fn write(
        &self,
        rows: &[Row],
        cells: &[Comparison],
        summary: &[Summary],
        sharing: &[SharingRow],
    ) -> Result<(), Box<dyn Error>> {
        let all = serde_json::json!({
            "summary": summary,
            "cells": cells,
            "rows": rows,
            "sharing": sharing,
        });
        if !sharing.is_empty() {
            self.file("field-sharing.csv", &sharing::csv(sharing))?;
        }
        self.file("field.csv", &table::csv(rows))?;
        self.file("field.json", &format!("{}\n", json(&all)?))?;
        type Ratio = fn(&Comparison) -> f64;
        let pictures: [(&str, &str, Ratio); 2] = [
            ("unassisted", "assisted ÷ unassisted", Comparison::to_unassisted),
            ("lossless", "assisted ÷ lossless", Comparison::to_lossless),
        ];
        for (name, title, ratio) in pictures {
            let figure = heat_map(name, title, cells, ratio);
            self.file(&format!("field-{name}.svg"), &drawing::svg(&figure, 2)?)?;
        }
        Ok(())
    }

    fn file(&self, name: &str, text: &str) -> Result<(), Box<dyn Error>> {
        fs::write(self.0.join(name), text).map_err(|source| self.unwritable(name, source).into())
    }

    fn unwritable(&self, name: &str, source: std::io::Error) -> String {
        let path = self.0.join(name);
        let path = path.display();
        format!("cannot write {path}: {source}; name a folder that you may write to with --out")
    }
}

fn json(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value)
}

/// Work that has no row yet.
pub(super) fn missing(tasks: Vec<Task>, rows: &[Row]) -> Vec<Task> {
    tasks.into_iter().filter(|task| !rows.iter().any(|row| row.is_of(task))).collect()
}

/// A map for each sender: paths over losses.
fn heat_map(
    name: &str,
    title: &str,
    cells: &[Comparison],
    ratio: fn(&Comparison) -> f64,
) -> Figure {
    let (mut paths, mut senders, mut losses) = (Vec::new(), Vec::new(), Vec::new());
    for cell in cells {
        if !paths.contains(&cell.path.as_str()) {
            paths.push(&cell.path);
        }
        if !senders.contains(&cell.sender) {
            senders.push(cell.sender);
        }
        if !cell.own_loss && !losses.contains(&cell.loss) {
            losses.push(cell.loss);
        }
    }
    losses.sort_by(f64::total_cmp);
    let mut columns: Vec<(String, Option<f64>)> =
        losses.into_iter().map(|loss| (format!("{} %", loss * 100.0), Some(loss))).collect();
    if cells.iter().any(|cell| cell.own_loss) {
        columns.push(("own".to_owned(), None));
    }
    let panels = senders.into_iter().map(|sender| {
        let value = |path: &str, loss: Option<f64>| {
            let mut same = cells.iter().filter(|cell| cell.path == path && cell.sender == sender);
            let cell = same.find(|cell| match loss {
                Some(loss) => !cell.own_loss && cell.loss == loss,
                None => cell.own_loss,
            });
            cell.map(ratio)
        };
        Panel::Heat(HeatMap {
            title: sender.name().to_owned(),
            rows: paths.iter().map(|path| (*path).to_owned()).collect(),
            columns: columns.iter().map(|(label, _)| label.clone()).collect(),
            values: paths
                .iter()
                .map(|path| columns.iter().map(|(_, loss)| value(path, *loss)).collect())
                .collect(),
        })
    });
    Figure::new(
        format!("field-{name}"),
        format!("The field matrix: goodput, {title}"),
        "Medians over the seeds, in virtual time. Columns: random loss of the last mile.",
        panels.collect(),
    )
}
