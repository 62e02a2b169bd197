//! Draws figures.

use super::canvas::{
    AXIS_FONT, Anchor, Canvas, DrawError, FAINT_INK, Font, GRID_COLOUR, HEADING_PIXELS, INK_COLOUR,
    SMALL_PIXELS, TEXT_PIXELS, width, wrap,
};
use super::figure::{Bar, Bars, Figure, Form, HeatMap, Lines, Panel, Point, Series, Subject};
use super::scale::{Scale, thousands};
use plotters::style::{Color, RGBColor};

/// Pixels of a picture's width: as wide as a page shows it, so that text is not made smaller.
const WIDTH: i32 = 800;
/// Pixels of a panel with lines, and of the margins above and below its plot.
const HEIGHT: i32 = 270;
/// Pixels of a panel above the plot.
const TOP_MARGIN: i32 = 58;
/// Pixels of a panel below the plot.
const BOTTOM_MARGIN: i32 = 44;
/// Pixels left and right of panels, and above and below each line of the caption.
const MARGIN: i32 = 12;
/// Pixels of a line of a label, at most.
const LABEL: i32 = 150;
/// Pixels between the lines of labels.
const LEADING_PIXELS: i32 = 16;
/// Height of a row of bars, pixels.
const ROW_PIXELS: i32 = 26;
/// Height of a row of a heat map, pixels.
const CELL_PIXELS: i32 = 20;
/// The ratio, and its inverse, from which the colour of a heat map is full.
const FULL_RATIO: f64 = 2.0;

impl Subject {
    /// Colours that colour-blind readers can also distinguish (Okabe and Ito).
    pub(crate) fn color(self) -> RGBColor {
        match self {
            Self::Packrat => RGBColor(0xd5, 0x5e, 0x00),
            Self::Variant => RGBColor(0xb4, 0x6a, 0x9a),
            Self::Split => RGBColor(0x00, 0x72, 0xb2),
            Self::EndToEnd => RGBColor(0x4a, 0x4f, 0x55),
            Self::Bound => RGBColor(0x7d, 0x85, 0x8d),
        }
    }
}

/// The figure as an SVG, with at most `columns` panels side by side.
pub fn svg(figure: &Figure, columns: usize) -> Result<String, DrawError> {
    let columns = columns.clamp(1, figure.panels.len().max(1));
    let rows: Vec<&[Panel]> = figure.panels.chunks(columns).collect();
    let heights: Vec<i32> =
        rows.iter().map(|row| row.iter().map(height).max().unwrap_or(0)).collect();
    let title = wrap(&figure.title, HEADING_PIXELS, true, WIDTH - 2 * MARGIN);
    let caption = wrap(&figure.caption, SMALL_PIXELS, false, WIDTH - 2 * MARGIN);
    let legend = legend(figure, columns);
    let head = 18 + 22 * (title.len() + usize::from(legend.is_some())) as i32;
    let foot = 2 * MARGIN + LEADING_PIXELS * caption.len() as i32;
    let size = (WIDTH, head + heights.iter().sum::<i32>() + foot);
    let mut svg = String::new();
    let canvas = Canvas::new(&mut svg, size.0, size.1)?;
    for (line, text) in (0..).zip(&title) {
        canvas.text((MARGIN, 22 + 22 * line), text, Font::heading(INK_COLOUR), Anchor::Left)?;
    }
    let mut left = MARGIN;
    for series in legend.unwrap_or_default() {
        let (color, y) = (series.subject.color(), head - 18);
        canvas.line(&[(left, y), (left + 24, y)], color, 3)?;
        canvas.text((left + 32, y), &series.label, Font::text(color).bold(), Anchor::Left)?;
        left += 60 + width(&series.label, TEXT_PIXELS, true);
    }
    let below = size.1 - foot + MARGIN + LEADING_PIXELS / 2;
    for (line, text) in (0..).zip(&caption) {
        let at = (MARGIN, below + LEADING_PIXELS * line);
        canvas.text(at, text, AXIS_FONT, Anchor::Left)?;
    }
    let panel_width = WIDTH / columns as i32;
    let mut top = head;
    for (row, height) in rows.iter().zip(heights) {
        for (column, panel) in row.iter().enumerate() {
            let area = Area { left: column as i32 * panel_width, top, width: panel_width };
            match panel {
                Panel::Lines(lines) => draw_lines(&canvas, area, lines, columns < LEGEND)?,
                Panel::Bars(bars) => draw_bars(&canvas, area, bars)?,
                Panel::Heat(map) => draw_heat(&canvas, area, map)?,
            }
        }
        top += height;
    }
    canvas.finish()?;
    Ok(svg)
}

/// The place of a panel.
#[derive(Clone, Copy)]
struct Area {
    left: i32,
    top: i32,
    width: i32,
}

impl Area {
    /// Writes title and unit.
    fn head(self, canvas: &Canvas<'_>, title: &str, unit: &str) -> Result<(), DrawError> {
        let left = self.left + MARGIN;
        canvas.text((left, self.top + 14), title, Font::text(INK_COLOUR).bold(), Anchor::Left)?;
        canvas.text((left, self.top + 34), unit, AXIS_FONT, Anchor::Left)
    }
}

/// The number of columns from which lines are labelled once, above all panels.
const LEGEND: usize = 3;

/// The lines to label above all panels: there is no room beside them.
fn legend(figure: &Figure, columns: usize) -> Option<Vec<&Series>> {
    match figure.panels.first() {
        Some(Panel::Lines(lines)) if columns >= LEGEND => {
            Some(lines.series.iter().filter(|series| series.form != Form::Paper).collect())
        }
        _ => None,
    }
}

fn height(panel: &Panel) -> i32 {
    match panel {
        Panel::Lines(_) => HEIGHT,
        Panel::Bars(bars) => TOP_MARGIN + ROW_PIXELS * bars.bars.len() as i32 + 16,
        Panel::Heat(map) => TOP_MARGIN + CELL_PIXELS * map.rows.len() as i32 + 16,
    }
}

fn draw_lines(
    canvas: &Canvas<'_>,
    area: Area,
    lines: &Lines,
    labelled: bool,
) -> Result<(), DrawError> {
    let (top, bottom) = (area.top + TOP_MARGIN, area.top + HEIGHT - BOTTOM_MARGIN);
    let points = || lines.series.iter().flat_map(|series| &series.points);
    let y =
        Scale::new(&lines.y, points().flat_map(|point| [point.low, point.high]), (bottom, top), 5);
    let labels: Vec<(&Series, Vec<String>)> = lines
        .series
        .iter()
        .filter(|series| labelled && !series.label.is_empty() && series.form != Form::Paper)
        .map(|series| (series, wrap(&series.label, SMALL_PIXELS, true, LABEL)))
        .collect();
    let widest = |texts: &mut dyn Iterator<Item = &String>, bold| {
        texts.map(|text| width(text, SMALL_PIXELS, bold)).max().unwrap_or(0)
    };
    let ticks: Vec<String> = y.ticks().map(|(_, text)| text).collect();
    let left = area.left + MARGIN + widest(&mut ticks.iter(), false) + 8;
    let beside = widest(&mut labels.iter().flat_map(|(_, lines)| lines), true);
    let right = area.left + area.width - MARGIN - beside - if labelled { 8 } else { 0 };
    let x = Scale::new(&lines.x, points().map(|point| point.x), (left + 6, right - 4), 7);
    area.head(canvas, &lines.title, &lines.y.label)?;
    for (value, text) in y.ticks() {
        let at = y.pixel(value);
        canvas.line(&[(left, at), (right, at)], GRID_COLOUR, 1)?;
        canvas.text((left - 6, at), &text, AXIS_FONT, Anchor::Right)?;
    }
    let mut written = i32::MIN;
    for (value, text) in x.ticks() {
        let at = x.pixel(value);
        canvas.line(&[(at, bottom), (at, bottom + 4)], FAINT_INK, 1)?;
        let half = width(&text, SMALL_PIXELS, false) / 2;
        if at - half > written {
            canvas.text((at, bottom + 14), &text, AXIS_FONT, Anchor::Middle)?;
            written = at + half;
        }
    }
    canvas.line(&[(left, bottom), (right, bottom)], FAINT_INK, 1)?;
    // A long label is wider than the plot.
    let half = MARGIN + width(&lines.x.label, SMALL_PIXELS, false) / 2;
    let middle =
        i32::midpoint(left, right).min(area.left + area.width - half).max(area.left + half);
    canvas.text((middle, bottom + 32), &lines.x.label, AXIS_FONT, Anchor::Middle)?;
    let place = |point: &Point| (x.pixel(point.x), y.pixel(point.y));
    // The most important series is drawn last, on top of the others.
    for series in lines.series.iter().rev() {
        draw_series(canvas, series, &place, &y)?;
    }
    let labels = labels.iter().filter_map(|(series, lines)| {
        let (y, color) = (place(series.points.last()?).1, series.subject.color());
        Some(lines.iter().map(move |text| Label { y, text, color }))
    });
    draw_labels(canvas, labels.flatten().collect(), right + 8, (top, bottom))
}

/// Writes the labels of lines beside their ends.
fn draw_labels(
    canvas: &Canvas<'_>,
    mut labels: Vec<Label<'_>>,
    left: i32,
    (top, bottom): (i32, i32),
) -> Result<(), DrawError> {
    spread(&mut labels, top, bottom);
    for label in labels {
        let font = Font::small(label.color).bold();
        canvas.text((left, label.y), label.text, font, Anchor::Left)?;
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

/// A line of a label.
struct Label<'a> {
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
        lowest = label.y + LEADING_PIXELS;
    }
    let mut highest = bottom;
    for label in labels.iter_mut().rev() {
        label.y = label.y.min(highest);
        highest = label.y - LEADING_PIXELS;
    }
}

fn draw_bars(canvas: &Canvas<'_>, area: Area, bars: &Bars) -> Result<(), DrawError> {
    let labels =
        bars.bars.iter().map(|bar| width(&bar.label, SMALL_PIXELS, false)).max().unwrap_or(0);
    let written = |bar: &Bar| thousands(bar.value.y, bars.digits);
    let values =
        bars.bars.iter().map(|bar| width(&written(bar), SMALL_PIXELS, true)).max().unwrap_or(0);
    let left = area.left + MARGIN + labels.max(100) + 8;
    let right = area.left + area.width - MARGIN - values - 14;
    area.head(canvas, &bars.title, &bars.unit)?;
    let most = bars
        .bars
        .iter()
        .flat_map(|bar| [bar.value.high, bar.paper.unwrap_or(0.0)])
        .fold(0.0, f64::max);
    let pixel =
        |value: f64| left + (value / most.max(f64::MIN_POSITIVE) * f64::from(right - left)) as i32;
    for (row, bar) in bars.bars.iter().enumerate() {
        let y = area.top + TOP_MARGIN + row as i32 * ROW_PIXELS + 4;
        let color = bar.subject.color();
        canvas.text((left - 8, y), &bar.label, Font::small(INK_COLOUR), Anchor::Right)?;
        canvas.rectangle([(left, y - 8), (pixel(bar.value.y).max(left + 1), y + 8)], color)?;
        let paper = bar.paper.map(pixel);
        if let Some(at) = paper {
            canvas.diamond((at, y), 5, color, false)?;
        }
        let beside = pixel(bar.value.y).max(paper.map_or(0, |at| at + 6)) + 6;
        canvas.text((beside, y), &written(bar), Font::small(color).bold(), Anchor::Left)?;
    }
    Ok(())
}

/// White at 1, orange below, blue above.
fn heat(ratio: f64) -> RGBColor {
    let strength = (ratio.max(f64::MIN_POSITIVE).ln() / FULL_RATIO.ln()).clamp(-1.0, 1.0);
    let full = if strength < 0.0 { (0xe0, 0x70, 0x20) } else { (0x38, 0x8c, 0xc8) };
    let part = |full: i32| (255.0 - strength.abs() * f64::from(255 - full)) as u8;
    RGBColor(part(full.0), part(full.1), part(full.2))
}

fn draw_heat(canvas: &Canvas<'_>, area: Area, map: &HeatMap) -> Result<(), DrawError> {
    const LABEL_PIXELS: i32 = 130;
    let (left, top) = (area.left + LABEL_PIXELS, area.top + TOP_MARGIN);
    let width = (area.width - LABEL_PIXELS - 12) / (map.columns.len().max(1) as i32);
    area.head(canvas, &map.title, "")?;
    for (column, label) in (0..).zip(&map.columns) {
        let at = (left + column * width + width / 2, top - 12);
        canvas.text(at, label, AXIS_FONT, Anchor::Middle)?;
    }
    for (row, (label, values)) in (0..).zip(map.rows.iter().zip(&map.values)) {
        let y = top + row * CELL_PIXELS;
        canvas.text(
            (left - 8, y + CELL_PIXELS / 2),
            label,
            Font::small(INK_COLOUR),
            Anchor::Right,
        )?;
        for (column, value) in (0..).zip(values) {
            let Some(value) = value else { continue };
            let x = left + column * width;
            canvas.rectangle([(x, y), (x + width - 1, y + CELL_PIXELS - 1)], heat(*value))?;
            let digits = if *value < 10.0 { 2 } else { 0 };
            let at = (x + width / 2, y + CELL_PIXELS / 2);
            canvas.text(
                at,
                &format!("{value:.digits$}"),
                Font::small(INK_COLOUR),
                Anchor::Middle,
            )?;
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
            .map(|y| Label { y, text: "", color: INK_COLOUR })
            .into_iter()
            .collect();
        spread(&mut labels, 10, 200);
        assert!(labels.windows(2).all(|pair| pair[1].y - pair[0].y >= LEADING_PIXELS));
        assert!(labels.iter().all(|label| (10..=200).contains(&label.y)));
        assert_eq!(labels[0].y, 20);
    }
}
