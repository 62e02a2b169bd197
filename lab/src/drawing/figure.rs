//! The numbers that a figure shows, apart from their drawing: the content of the JSON and CSV
//! files.

use crate::statistics::{quantile, sorted};
use serde::{Deserialize, Serialize};

/// A figure: several panels with a title and a caption.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Figure {
    /// Name on the command line, and of the figure's files.
    pub name: String,
    /// Title of the figure.
    pub title: String,
    /// The method of measurement.
    pub caption: String,
    /// Panels in reading order.
    pub panels: Vec<Panel>,
}

/// A coordinate system.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Panel {
    /// Quantities over a quantity.
    Lines(Lines),
    /// Quantities side by side.
    Bars(Bars),
    /// A ratio over two other things.
    Heat(HeatMap),
}

/// Lines and points.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Lines {
    /// The panel's title.
    pub title: String,
    /// The independent variable.
    pub x: Axis,
    /// The measured quantity.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// True if equal distances are equal factors. The values must be positive then.
    pub logarithmic: bool,
    /// Values to write at the axis; empty: chosen when the figure is drawn.
    pub ticks: Vec<f64>,
}

impl Axis {
    /// A linear axis from zero.
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), logarithmic: false, ticks: Vec::new() }
    }

    /// A logarithmic axis.
    pub fn logarithmic(label: &str) -> Self {
        Self { logarithmic: true, ..Self::linear(label) }
    }

    /// Returns the axis with these values written at it.
    #[must_use]
    pub fn with_ticks(mut self, ticks: &[f64]) -> Self {
        self.ticks = ticks.to_vec();
        self
    }
}

/// A side of a comparison; it has the same colour in every figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// Packrat.
    Packrat,
    /// Packrat's repairs without its hold, or another variant of it.
    Variant,
    /// The split connection, or another way to the same end.
    Split,
    /// No assistance.
    EndToEnd,
    /// An upper bound.
    Bound,
}

/// The way a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Measured points, joined.
    Line,
    /// A curve without points.
    Curve,
    /// Points of the paper.
    Paper,
}

/// A line, or some points.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Series {
    /// Written beside it.
    pub label: String,
    /// The subject, which decides the colour.
    pub subject: Subject,
    /// Line, curve or points.
    pub form: Form,
    /// Ascending in x.
    pub points: Vec<Point>,
}

/// A value and its spread.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
pub struct Point {
    /// The position on the x axis.
    pub x: f64,
    /// Median, or the only value.
    pub y: f64,
    /// Lower quartile.
    pub low: f64,
    /// Upper quartile.
    pub high: f64,
}

impl Series {
    /// Measured points, joined.
    pub fn line(label: impl Into<String>, subject: Subject, points: Vec<Point>) -> Self {
        Self { label: label.into(), subject, form: Form::Line, points }
    }

    /// A curve without points.
    pub fn curve(label: impl Into<String>, subject: Subject, points: Vec<Point>) -> Self {
        Self { form: Form::Curve, ..Self::line(label, subject, points) }
    }

    /// Points of a paper.
    pub fn paper(label: impl Into<String>, subject: Subject, points: Vec<Point>) -> Self {
        Self { form: Form::Paper, ..Self::line(label, subject, points) }
    }
}

impl Bar {
    /// A bar with this label.
    pub fn new(
        label: impl Into<String>,
        subject: Subject,
        value: Point,
        paper: Option<f64>,
    ) -> Self {
        Self { label: label.into(), subject, value, paper }
    }
}

impl Panel {
    /// A panel with lines.
    pub fn lines(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Self {
        Self::Lines(Lines { title: title.into(), x, y, series })
    }

    /// A panel with bars, whose values have this many digits.
    pub fn bars(
        title: impl Into<String>,
        unit: impl Into<String>,
        digits: usize,
        bars: Vec<Bar>,
    ) -> Self {
        Self::Bars(Bars { title: title.into(), unit: unit.into(), digits, bars })
    }
}

impl Point {
    /// A value that does not vary.
    pub fn exact(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y }
    }

    /// Median and quartiles.
    pub fn of(x: f64, values: impl Iterator<Item = f64>) -> Self {
        let values = sorted(values);
        let [low, y, high] = [0.25, 0.5, 0.75].map(|share| quantile(&values, share));
        Self { x, y, low, high }
    }
}

/// Horizontal bars, each with its label.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Bars {
    /// The panel's title.
    pub title: String,
    /// Quantity and unit.
    pub unit: String,
    /// Digits after the point.
    pub digits: usize,
    /// The bars, from above.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Bar {
    /// Written before it.
    pub label: String,
    /// The subject, which decides the colour.
    pub subject: Subject,
    /// Length of the bar, with quartiles; `x` is unused.
    pub value: Point,
    /// The value in the paper.
    pub paper: Option<f64>,
}

/// A grid of ratios, whose colours distinguish values above 1 from those below.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct HeatMap {
    /// The panel's title.
    pub title: String,
    /// Labels of the rows, from above.
    pub rows: Vec<String>,
    /// Labels of the columns.
    pub columns: Vec<String>,
    /// A row of values for each row; `None` if the value is missing.
    pub values: Vec<Vec<Option<f64>>>,
}

impl Figure {
    /// A figure with these panels.
    pub fn new(
        name: impl Into<String>,
        title: impl Into<String>,
        caption: impl Into<String>,
        panels: Vec<Panel>,
    ) -> Self {
        Self { name: name.into(), title: title.into(), caption: caption.into(), panels }
    }

    /// All values, one in a line.
    pub fn csv(&self) -> String {
        let mut text =
            String::from("figure,panel,series,origin,x,y,lower_quartile,upper_quartile\n");
        let mut line = |panel: &str, series: &str, origin: &str, point: &Point| {
            let Point { x, y, low, high } = point;
            let fields = [&self.name, panel, series, origin].map(quoted);
            text.push_str(&format!("{},{x},{y},{low},{high}\n", fields.join(",")));
        };
        for panel in &self.panels {
            match panel {
                Panel::Lines(lines) => {
                    for series in &lines.series {
                        let origin = if series.form == Form::Paper { "paper" } else { "measured" };
                        series
                            .points
                            .iter()
                            .for_each(|point| line(&lines.title, &series.label, origin, point));
                    }
                }
                Panel::Heat(map) => {
                    for (row, values) in map.rows.iter().zip(&map.values) {
                        for (column, value) in map.columns.iter().zip(values) {
                            let Some(value) = value else { continue };
                            let series = format!("{row}, {column}");
                            line(&map.title, &series, "measured", &Point::exact(0.0, *value));
                        }
                    }
                }
                Panel::Bars(bars) => {
                    for bar in &bars.bars {
                        line(&bars.title, &bar.label, "measured", &bar.value);
                        if let Some(paper) = bar.paper {
                            line(&bars.title, &bar.label, "paper", &Point::exact(0.0, paper));
                        }
                    }
                }
            }
        }
        text
    }
}

/// A field of a CSV file (RFC 4180).
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_every_value_and_quotes_what_it_must() {
        let point = Point::of(1.0, [4.0, 2.0, 3.0].into_iter());
        let series = Series::paper("say \"s\"", Subject::Packrat, vec![point]);
        let bar = Bar::new("one", Subject::Split, Point::exact(0.0, 7.0), Some(8.0));
        let panels = vec![
            Panel::lines("a, b", Axis::linear("x"), Axis::linear("y"), vec![series]),
            Panel::bars("bars", "s", 0, vec![bar]),
        ];
        let figure = Figure::new("fig0", "", "", panels);
        let lines: Vec<_> = figure.csv().lines().skip(1).map(str::to_owned).collect();
        assert_eq!(
            lines,
            [
                "fig0,\"a, b\",\"say \"\"s\"\"\",paper,1,3,2.5,3.5",
                "fig0,bars,one,measured,0,7,7,7",
                "fig0,bars,one,paper,0,8,8,8"
            ]
        );
    }
}
