//! Curves as SVG.

use std::fmt::Write;

/// Fewest and most seconds from the left to the right edge.
const SPAN_SECONDS: std::ops::RangeInclusive<f64> = 120.0..=900.0;
/// Units of the picture from the left to the right edge of a chart.
const CHART_WIDTH: f64 = 460.0;
/// Units of the picture from the top to the bottom of a chart.
const CHART_HEIGHT: f64 = 130.0;
/// Units of the picture to the left of the curves, for labels.
const LEFT_MARGIN: f64 = 66.0;
/// Units of the picture to the right of the curves.
const RIGHT_MARGIN: f64 = 8.0;
/// Units of the picture above the curves.
const TOP_MARGIN: f64 = 10.0;
/// Units of the picture below the curves, for labels.
const BOTTOM_MARGIN: f64 = 20.0;
/// Seconds between two readings beyond which the curve is interrupted.
const GAP_SECONDS: f64 = 16.0;

/// One curve.
pub(super) struct Line {
    pub(super) name: &'static str,
    /// Class in the style sheet, with `fill` to fill the space below.
    pub(super) class: &'static str,
    /// Age in seconds, and value.
    pub(super) points: Vec<(f64, Option<f64>)>,
}

/// Curves with a common scale.
pub(super) struct Chart {
    pub(super) title: &'static str,
    pub(super) format: fn(f64) -> String,
    /// True if the scale ends at a power of two.
    pub(super) binary: bool,
    pub(super) lines: Vec<Line>,
}

impl Chart {
    pub(super) fn draw(&self, html: &mut String) {
        let largest = self
            .lines
            .iter()
            .flat_map(|line| &line.points)
            .filter_map(|(_, value)| *value)
            .fold(0.0f64, f64::max);
        let top =
            if self.binary { largest.max(1024.0).log2().ceil().exp2() } else { round_up(largest) };
        let oldest = self
            .lines
            .iter()
            .flat_map(|line| &line.points)
            .map(|(age, _)| *age)
            .fold(0.0f64, f64::max);
        // Whole minutes, so that the scale does not change at every reload.
        let span =
            ((oldest / 60.0).ceil() * 60.0).clamp(*SPAN_SECONDS.start(), *SPAN_SECONDS.end());
        let _ = write!(html, "<figure><figcaption>{}<span>", self.title);
        for line in &self.lines {
            let now = line.points.iter().rev().find_map(|(_, value)| *value);
            let now = now.map_or_else(|| "–".to_owned(), self.format);
            let _ = write!(html, "<em class=\"{}\">{} {now}</em>", line.class, line.name);
        }
        let _ = write!(
            html,
            "</span></figcaption><svg viewBox=\"0 0 {CHART_WIDTH} {CHART_HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            self.title
        );
        self.draw_values(html, top);
        draw_ages(html, span);
        for line in &self.lines {
            draw_line(html, line, top, span);
        }
        html.push_str("</svg></figure>");
    }

    /// The lines of the grid with their values.
    fn draw_values(&self, html: &mut String, top: f64) {
        for (share, value) in [(0.0, 0.0), (0.5, top / 2.0), (1.0, top)] {
            let y =
                CHART_HEIGHT - BOTTOM_MARGIN - share * (CHART_HEIGHT - TOP_MARGIN - BOTTOM_MARGIN);
            let _ = write!(
                html,
                "<line class=\"grid\" x1=\"{LEFT_MARGIN}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                CHART_WIDTH - RIGHT_MARGIN,
                LEFT_MARGIN - 6.0,
                y + 3.5,
                (self.format)(value)
            );
        }
    }
}

/// The scale of the ages below.
fn draw_ages(html: &mut String, span: f64) {
    for (share, anchor) in [(1.0, "start"), (0.5, "middle"), (0.0, "end")] {
        let minutes = share * span / 60.0;
        let text = match minutes {
            0.0 => "now".to_owned(),
            _ if minutes.fract() == 0.0 => format!("−{minutes:.0} min"),
            _ => format!("−{minutes:.1} min"),
        };
        let _ = write!(
            html,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{text}</text>",
            x_of(share * span, span),
            CHART_HEIGHT - 5.0
        );
    }
}

fn x_of(age: f64, span: f64) -> f64 {
    LEFT_MARGIN + (1.0 - age / span) * (CHART_WIDTH - LEFT_MARGIN - RIGHT_MARGIN)
}

fn draw_line(html: &mut String, line: &Line, top: f64, span: f64) {
    let floor = CHART_HEIGHT - BOTTOM_MARGIN;
    let place =
        |age: f64, value: f64| (x_of(age, span), floor - value / top * (floor - TOP_MARGIN));
    let mut segments: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut last = None;
    for (age, value) in line.points.iter().filter(|(age, _)| *age <= span) {
        let Some(value) = value else {
            last = None;
            continue;
        };
        let joined = last.is_some_and(|last: f64| last - age <= GAP_SECONDS);
        last = Some(*age);
        match segments.last_mut() {
            Some(segment) if joined => segment.push(place(*age, *value)),
            _ => segments.push(vec![place(*age, *value)]),
        }
    }
    for segment in &segments {
        let (Some(first), Some(end)) = (segment.first(), segment.last()) else { continue };
        let mut path = String::new();
        for (index, (x, y)) in segment.iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" });
        }
        if line.class.contains("fill") {
            let _ = write!(
                html,
                "<path class=\"{} area\" d=\"{path}L{:.1} {floor}L{:.1} {floor}Z\"/>",
                line.class, end.0, first.0
            );
        }
        let _ = write!(html, "<path class=\"{} line\" d=\"{path}\"/>", line.class);
    }
}

/// The next of 1, 2, 5 times a power of ten, so that the scale has few digits and changes rarely.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= value)
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_round_numbers() {
        for (value, scale) in [(0.0, 1.0), (0.041, 0.05), (1.0, 1.0), (18.7e6, 20e6), (60.0, 100.0)]
        {
            assert!((round_up(value) - scale).abs() < scale * 1e-9, "{value}");
        }
    }

    #[test]
    fn what_is_not_known_is_a_gap_and_not_a_zero() {
        let points = vec![
            (20.0, Some(1.0)),
            (15.0, Some(1.0)),
            (10.0, None),
            (5.0, Some(1.0)),
            (0.0, Some(1.0)),
        ];
        let mut html = String::new();
        let chart = Chart {
            title: "test",
            format: |value| format!("{value}"),
            binary: false,
            lines: vec![Line { name: "one", class: "a", points }],
        };
        chart.draw(&mut html);
        assert_eq!(html.matches("class=\"a line\"").count(), 2, "{html}");
    }
}
