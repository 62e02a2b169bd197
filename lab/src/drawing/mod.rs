//! Figures as data, and their pictures as SVG.

pub(crate) mod canvas;
mod figure;
mod plot;
pub(crate) mod scale;

pub use canvas::DrawError;
pub use figure::{Axis, Bar, Bars, Figure, Form, HeatMap, Lines, Panel, Point, Series, Subject};
pub use plot::svg;
