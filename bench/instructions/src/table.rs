//! The table of instruction counts that is in git, and the tolerance of a measurement.

use std::fmt::Write;

/// The relative difference, up or down, beyond which table and measurement disagree.
pub const RELATIVE_TOLERANCE: f64 = 0.05;
/// Least number of calls into libraries, a rare event: a difference of less is none.
const SMALLEST_CALLS: f64 = 0.02;
/// First line of the table.
const TABLE_COLUMNS: &str = "what,bytes,loss_percent,instructions,library_calls";

/// A setting with its counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// "datagram", "eack", "receipt".
    pub what: String,
    /// Bytes of a datagram.
    pub bytes: u32,
    /// Percentage of datagrams that the last mile loses.
    pub loss_percent: u32,
    /// Instructions of the program, the C library's left out.
    pub instructions: f64,
    /// Calls into the C library.
    pub library_calls: f64,
}

impl Row {
    fn setting(&self) -> (&str, u32, u32) {
        (&self.what, self.bytes, self.loss_percent)
    }

    fn name(&self) -> String {
        let (what, bytes, loss) = self.setting();
        let what = if what == "eack" { "eACK" } else { what };
        format!("{what} at {bytes} bytes and {loss} % loss")
    }
}

/// The table as text; `command` is the command that writes it.
#[must_use]
pub fn write(rows: &[Row], command: &str) -> String {
    let mut text = format!(
        "# Means of one datagram and of one eACK; written by `{command}`.\n{TABLE_COLUMNS}\n"
    );
    for row in rows {
        let (what, bytes, loss) = row.setting();
        let (instructions, calls) = (row.instructions, row.library_calls);
        // Writing to a String does not fail.
        let _ = writeln!(text, "{what},{bytes},{loss},{instructions:.1},{calls:.3}");
    }
    text
}

/// Reads a table.
///
/// # Errors
///
/// Names the line that is not a row.
pub fn read(text: &str) -> Result<Vec<Row>, String> {
    let lines = (1..).zip(text.lines());
    let rows = lines.filter(|(_, line)| !line.starts_with('#') && *line != TABLE_COLUMNS);
    rows.map(|(number, line)| {
        row(line).ok_or_else(|| format!("line {number} is not a row of {TABLE_COLUMNS}: {line}"))
    })
    .collect()
}

fn row(line: &str) -> Option<Row> {
    let columns: Vec<_> = line.split(',').collect();
    let [what, bytes, loss, instructions, calls] = columns[..] else { return None };
    Some(Row {
        what: what.to_owned(),
        bytes: bytes.parse().ok()?,
        loss_percent: loss.parse().ok()?,
        instructions: instructions.parse().ok()?,
        library_calls: calls.parse().ok()?,
    })
}

/// Differences between the table and the measurement.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Disagreements {
    /// Counts above the table's.
    pub more: Vec<String>,
    /// Counts below the table's.
    pub less: Vec<String>,
    /// Settings that only one of the two has.
    pub unmatched: Vec<String>,
}

impl Disagreements {
    /// True if the table and the measurement agree.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.more.is_empty() && self.less.is_empty() && self.unmatched.is_empty()
    }
}

/// Compares `measured` with the `table`.
#[must_use]
pub fn compare(table: &[Row], measured: &[Row]) -> Disagreements {
    let mut found = Disagreements::default();
    for row in measured {
        let Some(listed) = table.iter().find(|listed| listed.setting() == row.setting()) else {
            found.unmatched.push(format!("{}: measured, and not in the table", row.name()));
            continue;
        };
        let counts = [
            ("instructions", listed.instructions, row.instructions, 1),
            ("calls into the C library", listed.library_calls, row.library_calls, 3),
        ];
        for (unit, before, now, digits) in counts {
            let difference = now - before;
            // Not a number, which a table could contain, disagrees as well.
            if difference.abs() <= (before * RELATIVE_TOLERANCE).max(SMALLEST_CALLS) {
                continue;
            }
            let percent = 100.0 * difference / before;
            let line = format!(
                "{}: {now:.digits$} {unit}, {before:.digits$} in the table ({percent:+.1} %)",
                row.name()
            );
            if difference < 0.0 { found.less.push(line) } else { found.more.push(line) }
        }
    }
    for listed in table {
        if !measured.iter().any(|row| row.setting() == listed.setting()) {
            found.unmatched.push(format!("{}: in the table, and not measured", listed.name()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eack(instructions: f64, library_calls: f64) -> Row {
        Row { what: "eack".to_owned(), bytes: 1452, loss_percent: 4, instructions, library_calls }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let rows = [eack(14_220.5, 12.25), Row { what: "datagram".to_owned(), ..eack(490.0, 1.0) }];
        assert_eq!(read(&write(&rows, "make write-instructions")).unwrap(), rows);
    }

    #[test]
    fn a_line_that_is_no_row_is_named() {
        let text = format!("{TABLE_COLUMNS}\neack,1452,4,14220.5\n");
        assert!(read(&text).unwrap_err().starts_with("line 2 "));
    }

    #[test]
    fn differences_above_five_percent_are_found_in_both_directions() {
        let table = [eack(1000.0, 10.0)];
        for (instructions, calls) in [(1049.0, 10.4), (951.0, 9.6)] {
            assert!(compare(&table, &[eack(instructions, calls)]).is_empty());
        }
        let found = compare(&table, &[eack(1051.0, 9.0)]);
        assert!(found.more[0].contains("1051.0 instructions, 1000.0 in the table (+5.1 %)"));
        assert!(found.less[0].contains("9.000 calls into the C library, 10.000 in the table"));
        assert_eq!((found.more.len(), found.less.len()), (1, 1));
        assert_eq!(compare(&table, &[eack(949.0, 10.0)]).less.len(), 1);
    }

    #[test]
    fn a_first_call_into_a_library_is_found() {
        assert_eq!(compare(&[eack(1000.0, 0.0)], &[eack(1000.0, 1.0)]).more.len(), 1);
    }

    #[test]
    fn a_setting_that_only_one_side_has_is_found() {
        assert_eq!(compare(&[], &[eack(1.0, 1.0)]).unmatched.len(), 1);
        assert_eq!(compare(&[eack(1.0, 1.0)], &[]).unmatched.len(), 1);
    }
}
