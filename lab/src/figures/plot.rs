//! Draws figures.

use super::canvas::{Anchor, Canvas, DrawError, FAINT_INK, GRID, INK};
use super::data::{Bars, Figure, Form, HeatMap, Lines, Panel, Point, Series, Subject};
use super::scale::{Scale, thousands};
use plotters::style::{Color, RGBColor};

/// Pixels of a panel, and of the margins around the plot inside it.
const PANEL: (i32, i32) = (400, 270);
const LEFT: i32 = 46;
const RIGHT: i32 = 92;
const TOP: i32 = 58;
const BOTTOM: i32 = 44;
/// Pixels above and below all panels.
const HEAD: i32 = 40;
const FOOT: i32 = 30;
const TEXT: i32 = 14;
const SMALL: i32 = 13;
/// Pixels between the lines of labels.
const LEADING: i32 = 16;
/// Height of a row of bars, and of a row of a heat map.
const ROW: i32 = 26;
const CELL: i32 = 20;
/// The ratio, and its inverse, from which the colour of a heat map is full.
const FULL: f64 = 2.0;

impl Subject {
    /// Colours that colour-blind readers can also distinguish (Okabe and Ito).
    pub(crate) fn color(self) -> RGBColor {
        match self {
            Self::Packrat => RGBColor(0xd5, 0x5e, 0x00),
            Self::Variant => RGBColor(0xb4, 0x6a, 0x9a),
            Self::Split => RGBColor(0x00, 0x72, 0xb2),
            Self::EndToEnd => RGBColor(0x4a, 0x4f, 0x55),
            Self::Bound => RGBColor(0xa8, 0xae, 0xb4),
        }
    }
}

/// The figure as an SVG, with at most `columns` panels side by side.
pub(crate) fn svg(figure: &Figure, columns: usize) -> Result<String, DrawError> {
    let columns = columns.clamp(1, figure.panels.len().max(1));
    let rows: Vec<&[Panel]> = figure.panels.chunks(columns).collect();
    let heights: Vec<i32> =
        rows.iter().map(|row| row.iter().map(height).max().unwrap_or(0)).collect();
    let size = (columns as i32 * PANEL.0, HEAD + heights.iter().sum::<i32>() + FOOT);
    let mut svg = String::new();
    let canvas = Canvas::new(&mut svg, size.0, size.1)?;
    canvas.text((12, 22), &figure.title, 19, INK, Anchor::Left, true)?;
    canvas.text((12, size.1 - FOOT / 2), &figure.caption, SMALL, FAINT_INK, Anchor::Left, false)?;
    let mut top = HEAD;
    for (row, height) in rows.iter().zip(heights) {
        for (column, panel) in row.iter().enumerate() {
            let origin = (column as i32 * PANEL.0, top);
            match panel {
                Panel::Lines(lines) => draw_lines(&canvas, origin, lines)?,
                Panel::Bars(bars) => draw_bars(&canvas, origin, bars)?,
                Panel::Heat(map) => draw_heat(&canvas, origin, map)?,
            }
        }
        top += height;
    }
    canvas.finish()?;
    Ok(svg)
}

fn height(panel: &Panel) -> i32 {
    match panel {
        Panel::Lines(_) => PANEL.1,
        Panel::Bars(bars) => TOP + ROW * bars.bars.len() as i32 + 16,
        Panel::Heat(map) => TOP + CELL * map.rows.len() as i32 + 16,
    }
}

fn draw_lines(canvas: &Canvas<'_>, origin: (i32, i32), lines: &Lines) -> Result<(), DrawError> {
    let (left, top) = (origin.0 + LEFT, origin.1 + TOP);
    let (right, bottom) = (origin.0 + PANEL.0 - RIGHT, origin.1 + PANEL.1 - BOTTOM);
    let points = || lines.series.iter().flat_map(|series| &series.points);
    let x = Scale::new(&lines.x, points().map(|point| point.x), (left + 6, right - 4), 7);
    let y =
        Scale::new(&lines.y, points().flat_map(|point| [point.low, point.high]), (bottom, top), 5);
    canvas.text((origin.0 + 12, origin.1 + 14), &lines.title, TEXT + 1, INK, Anchor::Left, true)?;
    canvas.text(
        (origin.0 + 12, origin.1 + 34),
        &lines.y.label,
        SMALL,
        FAINT_INK,
        Anchor::Left,
        false,
    )?;
    for (value, text) in y.ticks() {
        let at = y.pixel(value);
        canvas.line(&[(left, at), (right, at)], GRID, 1)?;
        canvas.text((left - 6, at), &text, SMALL, FAINT_INK, Anchor::Right, false)?;
    }
    for (value, text) in x.ticks() {
        let at = x.pixel(value);
        canvas.line(&[(at, bottom), (at, bottom + 4)], FAINT_INK, 1)?;
        canvas.text((at, bottom + 14), &text, SMALL, FAINT_INK, Anchor::Middle, false)?;
    }
    canvas.line(&[(left, bottom), (right, bottom)], FAINT_INK, 1)?;
    let middle = i32::midpoint(left, right);
    canvas.text((middle, bottom + 32), &lines.x.label, SMALL, FAINT_INK, Anchor::Middle, false)?;
    let place = |point: &Point| (x.pixel(point.x), y.pixel(point.y));
    // The most important series is drawn last, on top of the others.
    for series in lines.series.iter().rev() {
        draw_series(canvas, series, &place, &y)?;
    }
    let mut labels: Vec<Label<'_>> = lines
        .series
        .iter()
        .filter(|series| !series.label.is_empty())
        .filter_map(|series| {
            let (x, y) = place(series.points.last()?);
            (series.form != Form::Paper).then_some(Label {
                at: x,
                y,
                text: &series.label,
                color: series.subject.color(),
            })
        })
        .collect();
    spread(&mut labels, top, bottom);
    for label in labels {
        canvas.text(
            (label.at.max(right - 60) + 8, label.y),
            label.text,
            SMALL,
            label.color,
            Anchor::Left,
            true,
        )?;
    }
    Ok(())
}

fn draw_series(
    canvas: &Canvas<'_>,
    series: &Series,
    place: &impl Fn(&Point) -> (i32, i32),
    y: &Scale,
) -> Result<(), DrawError> {
    let color = series.subject.color();
    let points: Vec<(i32, i32)> = series.points.iter().map(place).collect();
    if series.form == Form::Paper {
        for point in points {
            canvas.diamond(point, 5, color, false)?;
        }
        return Ok(());
    }
    canvas.line(&points, color, 2)?;
    if series.form == Form::Line {
        for (point, at) in series.points.iter().zip(points) {
            if point.high > point.low {
                canvas.line(
                    &[(at.0, y.pixel(point.low)), (at.0, y.pixel(point.high))],
                    color.mix(0.55),
                    3,
                )?;
            }
            canvas.disc(at, 3, color)?;
        }
    }
    Ok(())
}

struct Label<'a> {
    at: i32,
    y: i32,
    text: &'a str,
    color: RGBColor,
}

/// Moves labels apart that would lie on each other, as little as that takes, within the plot.
fn spread(labels: &mut [Label<'_>], top: i32, bottom: i32) {
    labels.sort_by_key(|label| label.y);
    let mut lowest = top;
    for label in labels.iter_mut() {
        label.y = label.y.max(lowest);
        lowest = label.y + LEADING;
    }
    let mut highest = bottom;
    for label in labels.iter_mut().rev() {
        label.y = label.y.min(highest);
        highest = label.y - LEADING;
    }
}

fn draw_bars(canvas: &Canvas<'_>, origin: (i32, i32), bars: &Bars) -> Result<(), DrawError> {
    const LABELS: i32 = 150;
    let (left, right) = (origin.0 + LABELS, origin.0 + PANEL.0 - 64);
    canvas.text((origin.0 + 12, origin.1 + 14), &bars.title, TEXT + 1, INK, Anchor::Left, true)?;
    canvas.text(
        (origin.0 + 12, origin.1 + 34),
        &bars.unit,
        SMALL,
        FAINT_INK,
        Anchor::Left,
        false,
    )?;
    let most = bars
        .bars
        .iter()
        .flat_map(|bar| [bar.value.high, bar.paper.unwrap_or(0.0)])
        .fold(0.0, f64::max);
    let pixel =
        |value: f64| left + (value / most.max(f64::MIN_POSITIVE) * f64::from(right - left)) as i32;
    for (row, bar) in bars.bars.iter().enumerate() {
        let y = origin.1 + TOP + row as i32 * ROW + 4;
        let color = bar.subject.color();
        canvas.text((left - 8, y), &bar.label, SMALL, INK, Anchor::Right, false)?;
        canvas.rectangle([(left, y - 8), (pixel(bar.value.y).max(left + 1), y + 8)], color)?;
        let paper = bar.paper.map(pixel);
        if let Some(at) = paper {
            canvas.diamond((at, y), 5, color, false)?;
        }
        let beside = pixel(bar.value.y).max(paper.map_or(0, |at| at + 6)) + 6;
        canvas.text(
            (beside, y),
            &thousands(bar.value.y, bars.digits),
            SMALL,
            color,
            Anchor::Left,
            true,
        )?;
    }
    Ok(())
}

/// White at 1, orange below, blue above.
fn heat(ratio: f64) -> RGBColor {
    let strength = (ratio.max(f64::MIN_POSITIVE).ln() / FULL.ln()).clamp(-1.0, 1.0);
    let full = if strength < 0.0 { (0xe0, 0x70, 0x20) } else { (0x38, 0x8c, 0xc8) };
    let part = |full: i32| (255.0 - strength.abs() * f64::from(255 - full)) as u8;
    RGBColor(part(full.0), part(full.1), part(full.2))
}

fn draw_heat(canvas: &Canvas<'_>, origin: (i32, i32), map: &HeatMap) -> Result<(), DrawError> {
    const LABELS: i32 = 130;
    let (left, top) = (origin.0 + LABELS, origin.1 + TOP);
    let width = (PANEL.0 - LABELS - 12) / (map.columns.len().max(1) as i32);
    canvas.text((origin.0 + 12, origin.1 + 14), &map.title, TEXT + 1, INK, Anchor::Left, true)?;
    for (column, label) in (0..).zip(&map.columns) {
        let at = (left + column * width + width / 2, top - 12);
        canvas.text(at, label, SMALL, FAINT_INK, Anchor::Middle, false)?;
    }
    for (row, (label, values)) in (0..).zip(map.rows.iter().zip(&map.values)) {
        let y = top + row * CELL;
        canvas.text((left - 8, y + CELL / 2), label, SMALL, INK, Anchor::Right, false)?;
        for (column, value) in (0..).zip(values) {
            let Some(value) = value else { continue };
            let x = left + column * width;
            canvas.rectangle([(x, y), (x + width - 1, y + CELL - 1)], heat(*value))?;
            let digits = if *value < 10.0 { 2 } else { 0 };
            let at = (x + width / 2, y + CELL / 2);
            canvas.text(at, &format!("{value:.digits$}"), SMALL, INK, Anchor::Middle, false)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_of_one_is_white_and_equal_factors_are_equally_strong() {
        assert_eq!(heat(1.0), RGBColor(255, 255, 255));
        assert_eq!(heat(0.1), heat(0.5), "full");
        let (half, whole) = (heat(0.75), heat(0.5));
        assert!(half.2 > whole.2 && half.0 > half.2, "orange grows with the distance from 1");
        assert!(heat(1.5).2 > heat(1.5).0);
    }

    #[test]
    fn labels_keep_their_distance_and_stay_inside() {
        let mut labels: Vec<_> = [100, 104, 20, 198, 199, 200]
            .map(|y| Label { at: 0, y, text: "", color: INK })
            .into_iter()
            .collect();
        spread(&mut labels, 10, 200);
        assert!(labels.windows(2).all(|pair| pair[1].y - pair[0].y >= LEADING));
        assert!(labels.iter().all(|label| (10..=200).contains(&label.y)));
        assert_eq!(labels[0].y, 20);
    }
}
