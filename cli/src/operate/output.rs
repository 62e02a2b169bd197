//! Tables, numbers, and colours on a terminal.

use std::io::IsTerminal;

use clap::ValueEnum;
pub(crate) use packrat_figures::text::{age, bits, bytes, count, milliseconds, percent};

/// Output format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table for people.
    Table,
    /// A table for people with a wide screen.
    Wide,
    /// JSON for machines.
    Json,
}

/// A colour with a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Good,
    Warning,
    Bad,
    Soft,
    Strong,
}

/// True if standard output is a terminal and its user wants colours (<https://no-color.org>).
pub(crate) fn colours() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal()
        && !no_color
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// `text`, coloured where colours are wanted.
pub(crate) fn painted(text: &str, paint: Paint) -> String {
    if !colours() {
        return text.to_owned();
    }
    let code = match paint {
        Paint::Good => "32",
        Paint::Warning => "33",
        Paint::Bad => "31",
        Paint::Soft => "2",
        Paint::Strong => "1",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// Alignment of a column's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under a head, in columns that are as wide as they have to be.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<(String, Option<Paint>)>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<(String, Option<Paint>)>) {
        self.rows.push(cells);
    }

    pub(crate) fn text(&self) -> String {
        let width_of = |index: usize, name: &str| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            cells.map(|(text, _)| text.chars().count()).max().unwrap_or(0).max(name.chars().count())
        };
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, (name, _))| width_of(index, name))
            .collect();
        let mut text = String::new();
        let head: Vec<_> =
            self.columns.iter().map(|(name, _)| ((*name).to_owned(), Some(Paint::Soft))).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            let mut line = String::new();
            for (((cell, paint), width), (_, align)) in row.iter().zip(&widths).zip(&self.columns) {
                let space = " ".repeat(width.saturating_sub(cell.chars().count()));
                let cell = paint.map_or_else(|| cell.clone(), |paint| painted(cell, paint));
                if !line.is_empty() {
                    line.push_str("  ");
                }
                match align {
                    Align::Left => line.extend([cell, space]),
                    Align::Right => line.extend([space, cell]),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A value, or a dash.
pub(crate) fn or_dash(value: Option<f64>, show: fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_have_no_colours_away_from_a_terminal() {
        let mut table = Table::new(&[("ROUTE", Align::Left), ("LOSS", Align::Right)]);
        table.row(vec![("web".to_owned(), None), ("4.1%".to_owned(), Some(Paint::Bad))]);
        table.row(vec![("media-live".to_owned(), None), ("-".to_owned(), None)]);
        // Tests have no terminal.
        assert_eq!(table.text(), "ROUTE       LOSS\nweb         4.1%\nmedia-live     -\n");
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        assert_eq!(or_dash(None, percent), "-");
        assert_eq!(or_dash(Some(0.041), percent), "4.1%");
    }
}
