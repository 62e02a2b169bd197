//! Text, lines and marks on an SVG, in pixels.

use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::SVGBackend;
use plotters::prelude::{
    Circle, DrawingArea, FontStyle, IntoDrawingArea, IntoFont, PathElement, Polygon, RGBAColor,
    Rectangle, Text, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, RGBColor, ShapeStyle, TextStyle};

/// Failure to draw a picture.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the picture: {0}; this is a fault of the laboratory, please report it")]
pub struct DrawError(String);

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for DrawError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self(error.to_string())
    }
}

/// Colour of text and axes.
pub(crate) const INK_COLOUR: RGBColor = RGBColor(0x22, 0x26, 0x2a);
pub(crate) const FAINT_INK: RGBColor = RGBColor(0x6b, 0x72, 0x78);
/// Colour of the grid.
pub(crate) const GRID_COLOUR: RGBColor = RGBColor(0xe4, 0xe7, 0xea);

/// Size of headings, pixels.
pub(crate) const HEADING_PIXELS: i32 = 16;
/// Size of text, pixels.
pub(crate) const TEXT_PIXELS: i32 = 13;
/// Size of small text, pixels.
pub(crate) const SMALL_PIXELS: i32 = 12;

/// The look of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Font {
    pixels: i32,
    bold: bool,
    color: RGBColor,
}

/// The font of axes.
pub(crate) const AXIS_FONT: Font = Font::small(FAINT_INK);

impl Font {
    /// The font of a heading.
    pub(crate) const fn heading(color: RGBColor) -> Self {
        Self { pixels: HEADING_PIXELS, bold: true, color }
    }

    /// The usual font.
    pub(crate) const fn text(color: RGBColor) -> Self {
        Self { pixels: TEXT_PIXELS, bold: false, color }
    }

    /// A smaller font.
    pub(crate) const fn small(color: RGBColor) -> Self {
        Self { pixels: SMALL_PIXELS, bold: false, color }
    }

    /// The bold variant.
    pub(crate) const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }
}

/// The part of a text that lies at the given point.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Anchor {
    Left,
    Middle,
    Right,
}

/// Width of a text in pixels, at most, in a usual sans-serif font: as in `DejaVu` Sans.
pub(crate) fn width(text: &str, size: i32, bold: bool) -> i32 {
    let each = f64::from(size) * if bold { 0.69 } else { 0.61 };
    (text.chars().count() as f64 * each).ceil() as i32
}

/// Breaks a text into lines of at most `most` pixels; a longer word has a line of its own.
pub(crate) fn wrap(text: &str, size: i32, bold: bool, most: i32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size, bold) <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A white picture.
pub(crate) struct Canvas<'a>(DrawingArea<SVGBackend<'a>, Shift>);

impl<'a> Canvas<'a> {
    /// A picture of this size that is written into `svg`.
    pub(crate) fn new(svg: &'a mut String, width: i32, height: i32) -> Result<Self, DrawError> {
        let size = (width.unsigned_abs(), height.unsigned_abs());
        let area = SVGBackend::with_string(svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        Ok(Self(area))
    }

    /// Ends the picture.
    pub(crate) fn finish(self) -> Result<(), DrawError> {
        Ok(self.0.present()?)
    }

    /// Draws text whose vertical middle is at `y`. Its width depends on the
    /// reader's fonts; [`width`] assumes a wide font.
    pub(crate) fn text(
        &self,
        at: (i32, i32),
        text: &str,
        font: Font,
        anchor: Anchor,
    ) -> Result<(), DrawError> {
        let horizontal = match anchor {
            Anchor::Left => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::Right => HPos::Right,
        };
        let style = if font.bold { FontStyle::Bold } else { FontStyle::Normal };
        // Plotters writes a size divided by this.
        let family = ("sans-serif", f64::from(font.pixels) * 1.24).into_font().style(style);
        let style =
            TextStyle::from(family).color(&font.color).pos(Pos::new(horizontal, VPos::Center));
        Ok(self.0.draw(&Text::new(text, at, style))?)
    }

    pub(crate) fn line(
        &self,
        points: &[(i32, i32)],
        color: impl Into<RGBAColor>,
        width: u32,
    ) -> Result<(), DrawError> {
        let style = ShapeStyle { color: color.into(), filled: false, stroke_width: width };
        Ok(self.0.draw(&PathElement::new(points.to_vec(), style))?)
    }

    pub(crate) fn disc(
        &self,
        at: (i32, i32),
        radius: i32,
        color: impl Into<RGBAColor>,
    ) -> Result<(), DrawError> {
        let style = ShapeStyle { color: color.into(), filled: true, stroke_width: 0 };
        Ok(self.0.draw(&Circle::new(at, radius, style))?)
    }

    /// A diamond: white, or filled with its color.
    pub(crate) fn diamond(
        &self,
        at: (i32, i32),
        radius: i32,
        color: RGBColor,
        filled: bool,
    ) -> Result<(), DrawError> {
        let (x, y) = at;
        let corners = vec![
            (x - radius, y),
            (x, y - radius),
            (x + radius, y),
            (x, y + radius),
            (x - radius, y),
        ];
        let fill = if filled { color } else { WHITE };
        self.0.draw(&Polygon::new(corners.clone(), fill.filled()))?;
        self.line(&corners, color, 2)
    }

    pub(crate) fn rectangle(
        &self,
        corners: [(i32, i32); 2],
        color: impl Into<RGBAColor>,
    ) -> Result<(), DrawError> {
        let style = ShapeStyle { color: color.into(), filled: true, stroke_width: 0 };
        Ok(self.0.draw(&Rectangle::new(corners, style))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_no_wider_than_asked_for_and_keep_all_words() {
        let text = "The server sends datagrams, and the gateway caches them";
        let lines = wrap(text, 12, false, 160);
        assert!(lines.iter().all(|line| width(line, 12, false) <= 160), "{lines:?}");
        assert_eq!(lines.join(" "), text);
        assert_eq!(wrap("unbreakable", 12, true, 10), ["unbreakable"]);
    }
}
