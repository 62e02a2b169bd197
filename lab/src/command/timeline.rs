//! A picture of one trial: the packets sent, lost, repaired, waited for and acknowledged, and the
//! course of the window and of the cache.

use crate::drawing::canvas::{
    AXIS_FONT, Anchor, Canvas, FAINT_INK, Font, GRID_COLOUR, INK_COLOUR, SMALL_PIXELS, width,
};
use crate::drawing::scale::{Scale, round_values};
use crate::drawing::{Axis, DrawError, Subject};
use crate::observer::{DatagramKind, TraceEvent};
use crate::trial::TrialResult;
use packrat_client::ClientEvent;
use plotters::style::{Color, RGBColor};
use std::collections::BTreeMap;
use std::ops::Range;

/// Width of the picture, pixels.
const PICTURE_WIDTH: i32 = 800;
/// Pixels to the left of the strips.
const LEFT_MARGIN: i32 = 70;
/// Pixels to the right of the strips.
const RIGHT_MARGIN: i32 = 110;
/// Pixels above all strips.
const HEAD_PIXELS: i32 = 62;
/// Height of the strip with sequence numbers, pixels.
const SEQUENCE_HEIGHT: i32 = 420;
/// Height of another strip, pixels.
const STRIP_HEIGHT: i32 = 110;
/// Pixels between two strips.
const STRIP_GAP: i32 = 40;
/// Pixels below all strips.
const FOOT_PIXELS: i32 = 48;

/// Colour of lost datagrams.
const LOST_COLOUR: RGBColor = RGBColor(0xd0, 0x1c, 0x3f);
/// Colour of sent datagrams.
const SENT_COLOUR: RGBColor = RGBColor(0x4a, 0x4f, 0x55);
/// Colour of acknowledged datagrams.
const ACKNOWLEDGED_COLOUR: RGBColor = RGBColor(0x00, 0x72, 0xb2);
/// Colour of repairs.
const REPAIR_COLOUR: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
/// Colour of datagrams that wait at the client.
const HOLD_COLOUR: RGBColor = RGBColor(0xe6, 0x9f, 0x00);
/// Colour of eACKs.
const EACK_COLOUR: RGBColor = RGBColor(0x00, 0x9e, 0x73);

/// Marks of one kind: times and packet numbers.
type Marks = Vec<(f64, f64)>;

#[derive(Default)]
struct Drawing {
    sent: Marks,
    acknowledged: Marks,
    lost: Marks,
    repairs: Marks,
    declared_lost: Marks,
    /// Begin, end and number of each hole.
    holes: Vec<(f64, f64, f64)>,
    eacks: Vec<f64>,
    reductions: Vec<f64>,
    window: Marks,
    in_flight: Marks,
    cache: Marks,
}

impl Drawing {
    fn new(events: &[TraceEvent], span: &Range<f64>) -> Self {
        let numbers = numbers(events);
        let numbered = |(from, until, place): (f64, f64, u64)| {
            let number = *numbers.get(usize::try_from(place).ok()?)?;
            Some((from, until, number? as f64))
        };
        let holes = holes(events, span).into_iter().filter_map(numbered).collect();
        let mut drawing = Self { holes, ..Self::default() };
        for event in events.iter().filter(|event| (span.start..=span.end).contains(&event.at())) {
            let at = event.at();
            match *event {
                TraceEvent::Sent { number, .. } => drawing.sent.push((at, number as f64)),
                TraceEvent::Acknowledged { largest, .. } => {
                    drawing.acknowledged.push((at, largest as f64))
                }
                TraceEvent::DeclaredLost { number, .. } => {
                    drawing.declared_lost.push((at, number as f64))
                }
                TraceEvent::Congestion { .. } => drawing.reductions.push(at),
                TraceEvent::Window { window, in_flight, .. } => {
                    drawing.window.push((at, f64::from(window) * 1e-3));
                    drawing.in_flight.push((at, f64::from(in_flight) * 1e-3));
                }
                TraceEvent::LastMile { down, kind, lost, number, cache_bytes, .. } => {
                    if let Some(bytes) = cache_bytes.filter(|_| down) {
                        drawing.cache.push((at, bytes as f64 * 1e-3));
                    }
                    match (kind, number) {
                        (DatagramKind::Control, _) if !down => drawing.eacks.push(at),
                        (DatagramKind::Base, Some(number)) if down && lost => {
                            drawing.lost.push((at, number as f64))
                        }
                        (DatagramKind::Repair, Some(number)) => {
                            drawing.repairs.push((at, number as f64))
                        }
                        _ => {}
                    }
                }
                TraceEvent::SlowStartEnded { .. }
                | TraceEvent::TooOld { .. }
                | TraceEvent::Client { .. }
                | TraceEvent::Gateway { .. } => {}
            }
        }
        drawing
    }
}

/// The packet number at each place in forwarding order, which the client counts in.
fn numbers(events: &[TraceEvent]) -> Vec<Option<u64>> {
    let number = |event: &TraceEvent| match *event {
        TraceEvent::LastMile { down: true, kind: DatagramKind::Base, number, .. } => Some(number),
        _ => None,
    };
    events.iter().filter_map(number).collect()
}

/// Begin, end and place of each datagram that the client missed: until it arrived, or was not held
/// any more.
fn holes(events: &[TraceEvent], span: &Range<f64>) -> Vec<(f64, f64, u64)> {
    let (mut open, mut holes) = (BTreeMap::new(), Vec::new());
    for event in events {
        let TraceEvent::Client { at, client } = *event else { continue };
        let ended = match client {
            ClientEvent::HoleOpened { first, last, .. } => {
                open.extend((first.get()..=last.get()).map(|number| (number, at)));
                continue;
            }
            ClientEvent::MissingArrived { packet_number: number, .. } => {
                number.get()..=number.get()
            }
            ClientEvent::HoldEnded { first, last, .. } => first.get()..=last.get(),
            _ => continue,
        };
        for number in ended {
            holes.extend(open.remove(&number).map(|from| (from, at, number)));
        }
    }
    holes.extend(open.into_iter().map(|(number, from)| (from, span.end, number)));
    holes.retain(|(from, until, _)| *from <= span.end && *until >= span.start);
    for (from, until, _) in &mut holes {
        (*from, *until) = (from.max(span.start), until.min(span.end));
    }
    holes
}

/// The picture of the events in `span` (virtual seconds).
pub(crate) fn svg(
    result: &TrialResult,
    events: &[TraceEvent],
    span: Range<f64>,
) -> Result<String, DrawError> {
    let drawing = Drawing::new(events, &span);
    let strips = if drawing.cache.is_empty() { 1 } else { 2 };
    let height = HEAD_PIXELS + SEQUENCE_HEIGHT + strips * (STRIP_GAP + STRIP_HEIGHT) + FOOT_PIXELS;
    let (left, right) = (LEFT_MARGIN, PICTURE_WIDTH - RIGHT_MARGIN);
    let mut svg = String::new();
    let canvas = Canvas::new(&mut svg, PICTURE_WIDTH, height)?;
    let title = format!(
        "{}, {} % loss, {}, {}, seed {}: {:.2} Mbit/s",
        result.setting.scenario,
        (result.setting.loss * 1000.0).round() / 10.0,
        result.setting.sender.name(),
        result.setting.arm.name(),
        result.setting.seed,
        result.download.goodput_mbps
    );
    canvas.text((12, 20), &title, Font::heading(INK_COLOUR), Anchor::Left)?;
    let time = Time { from: span.start, to: span.end.max(span.start + 1e-3), left, right };
    let mut top = HEAD_PIXELS;
    sequence(&canvas, &drawing, &time, (top, top + SEQUENCE_HEIGHT))?;
    top += SEQUENCE_HEIGHT + STRIP_GAP;
    let lines = [
        ("window", &drawing.window, ACKNOWLEDGED_COLOUR),
        ("in flight", &drawing.in_flight, Subject::Bound.color()),
    ];
    strip(&canvas, "kB at the sender", &lines, &time, (top, top + STRIP_HEIGHT))?;
    for &at in &drawing.reductions {
        let x = time.pixel(at);
        canvas.line(&[(x, top), (x, top + STRIP_HEIGHT)], LOST_COLOUR.mix(0.6), 1)?;
    }
    if !drawing.reductions.is_empty() {
        canvas.text((right + 8, top + 8), "reductions", Font::small(LOST_COLOUR), Anchor::Left)?;
    }
    if strips == 2 {
        top += STRIP_HEIGHT + STRIP_GAP;
        strip(
            &canvas,
            "kB in the gateway's cache",
            &[("cache", &drawing.cache, REPAIR_COLOUR)],
            &time,
            (top, top + STRIP_HEIGHT),
        )?;
    }
    let bottom = top + STRIP_HEIGHT;
    seconds_axis(&canvas, &time, bottom)?;
    canvas.finish()?;
    Ok(svg)
}

struct Time {
    from: f64,
    to: f64,
    left: i32,
    right: i32,
}

impl Time {
    fn pixel(&self, at: f64) -> i32 {
        let position = ((at - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        self.left + (position * f64::from(self.right - self.left)).round() as i32
    }
}

/// The seconds below all strips.
fn seconds_axis(canvas: &Canvas<'_>, time: &Time, bottom: i32) -> Result<(), DrawError> {
    let digits = if time.to - time.from < 1.0 { 3 } else { 1 };
    for at in round_values(time.from, time.to, 9) {
        let x = time.pixel(at);
        canvas.line(&[(x, bottom), (x, bottom + 4)], FAINT_INK, 1)?;
        canvas.text((x, bottom + 15), &format!("{at:.digits$}"), AXIS_FONT, Anchor::Middle)?;
    }
    canvas.text(
        ((time.left + time.right) / 2, bottom + 34),
        "seconds",
        AXIS_FONT,
        Anchor::Middle,
    )?;
    Ok(())
}

/// The colours of packets, beside each other.
fn legend(canvas: &Canvas<'_>, (mut x, y): (i32, i32)) -> Result<(), DrawError> {
    let legend = [
        ("sent", SENT_COLOUR),
        ("acknowledged", ACKNOWLEDGED_COLOUR),
        ("lost", LOST_COLOUR),
        ("repair", REPAIR_COLOUR),
        ("hole at the client", HOLD_COLOUR),
        ("declared lost", Subject::Variant.color()),
        ("eACK", EACK_COLOUR),
    ];
    for (text, color) in legend {
        canvas.disc((x, y), 4, color)?;
        canvas.text((x + 9, y), text, Font::small(color).bold(), Anchor::Left)?;
        x += 22 + width(text, SMALL_PIXELS, true);
    }
    Ok(())
}

fn sequence(
    canvas: &Canvas<'_>,
    drawing: &Drawing,
    time: &Time,
    (top, bottom): (i32, i32),
) -> Result<(), DrawError> {
    let numbers = || drawing.sent.iter().chain(&drawing.acknowledged).map(|mark| mark.1);
    let (least, most) = numbers()
        .fold((f64::INFINITY, 1.0), |(least, most): (f64, f64), n| (least.min(n), most.max(n)));
    let least = if least.is_finite() { least } else { 0.0 };
    let span = (most - least).max(1.0);
    let pixel =
        |number: f64| bottom - ((number - least) / span * f64::from(bottom - top)).round() as i32;
    canvas.text((12, top - 14), "packet number", AXIS_FONT, Anchor::Left)?;
    legend(canvas, (time.left + 50, top - 14))?;
    for number in round_values(least, most, 6) {
        let y = pixel(number);
        canvas.line(&[(time.left, y), (time.right, y)], GRID_COLOUR, 1)?;
        canvas.text((time.left - 6, y), &format!("{number:.0}"), AXIS_FONT, Anchor::Right)?;
    }
    for &(from, until, number) in &drawing.holes {
        let (x1, x2, y) = (time.pixel(from), time.pixel(until), pixel(number));
        canvas.line(&[(x1, y), (x2.max(x1 + 1), y)], HOLD_COLOUR.mix(0.8), 2)?;
    }
    let place = |&(at, number): &(f64, f64)| (time.pixel(at), pixel(number));
    canvas.line(&thinned(drawing.sent.iter().map(place)), SENT_COLOUR, 1)?;
    canvas.line(
        &stairs(&thinned(drawing.acknowledged.iter().map(place))),
        ACKNOWLEDGED_COLOUR,
        1,
    )?;
    for mark in &drawing.repairs {
        canvas.disc(place(mark), 2, REPAIR_COLOUR)?;
    }
    for mark in &drawing.lost {
        canvas.disc(place(mark), 2, LOST_COLOUR)?;
    }
    for mark in &drawing.declared_lost {
        canvas.diamond(place(mark), 3, Subject::Variant.color(), true)?;
    }
    let mut last = i32::MIN;
    for x in drawing.eacks.iter().map(|&at| time.pixel(at)).filter(|x| {
        let new = *x != last;
        last = *x;
        new
    }) {
        canvas.line(&[(x, bottom + 2), (x, bottom + 10)], EACK_COLOUR.mix(0.6), 1)?;
    }
    Ok(())
}

/// Quantities over time.
fn strip(
    canvas: &Canvas<'_>,
    label: &str,
    lines: &[(&str, &Marks, RGBColor)],
    time: &Time,
    (top, bottom): (i32, i32),
) -> Result<(), DrawError> {
    let values = lines.iter().flat_map(|(_, marks, _)| marks.iter().map(|mark| mark.1));
    let y = Scale::new(&Axis::linear(label), values, (bottom, top), 3);
    canvas.text((12, top - 14), label, AXIS_FONT, Anchor::Left)?;
    for (value, text) in y.ticks() {
        let at = y.pixel(value);
        canvas.line(&[(time.left, at), (time.right, at)], GRID_COLOUR, 1)?;
        canvas.text((time.left - 6, at), &text, AXIS_FONT, Anchor::Right)?;
    }
    for (index, (text, marks, color)) in lines.iter().enumerate().rev() {
        canvas.line(
            &thinned(marks.iter().map(|mark| (time.pixel(mark.0), y.pixel(mark.1)))),
            *color,
            1,
        )?;
        let row = bottom - 8 - 16 * (lines.len() - 1 - index) as i32;
        canvas.text((time.right + 8, row), text, Font::small(*color).bold(), Anchor::Left)?;
    }
    Ok(())
}

/// The first, the highest, the lowest and the last of the points in each column of pixels: more
/// cannot be seen.
fn thinned(points: impl Iterator<Item = (i32, i32)>) -> Vec<(i32, i32)> {
    let points: Vec<_> = points.collect();
    let mut thinned = Vec::new();
    for column in points.chunk_by(|one, other| one.0 == other.0) {
        let y = |point: &(i32, i32)| point.1;
        let (Some(first), Some(last)) = (column.first(), column.last()) else { continue };
        let (lowest, highest) = (column.iter().map(y).min(), column.iter().map(y).max());
        let mut kept = [Some(first.1), lowest, highest, Some(last.1)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>();
        kept.dedup();
        thinned.extend(kept.into_iter().map(|y| (first.0, y)));
    }
    thinned
}

/// A value holds until the next one.
fn stairs(points: &[(i32, i32)]) -> Vec<(i32, i32)> {
    let mut stairs = Vec::with_capacity(points.len() * 2);
    for point in points {
        if let Some(&(_, y)) = stairs.last() {
            stairs.push((point.0, y));
        }
        stairs.push(*point);
    }
    stairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_client::{HoldEndedReason, PacketNumber};
    use std::time::Duration;

    #[test]
    fn a_hole_lasts_until_its_packet_arrives_or_its_hold_ends() {
        let event = |at, client| TraceEvent::Client { at, client };
        let (after, number) = (Duration::ZERO, PacketNumber::new);
        let arrived =
            |packet_number| ClientEvent::MissingArrived { packet_number, held: true, after };
        let settled = HoldEndedReason::Settled;
        let events = [
            event(
                0.1,
                ClientEvent::HoleOpened { first: number(3), last: number(5), not_held: None },
            ),
            event(0.2, arrived(number(4))),
            event(
                0.3,
                ClientEvent::HoldEnded {
                    first: number(5),
                    last: number(5),
                    reason: settled,
                    after,
                },
            ),
            event(0.9, arrived(number(5))),
        ];
        assert_eq!(holes(&events, &(0.15..0.5)), [(0.15, 0.2, 4), (0.15, 0.3, 5), (0.15, 0.5, 3)]);
    }

    #[test]
    fn thinning_keeps_the_extremes_of_each_column() {
        let points = [(0, 5), (0, 9), (0, 1), (0, 4), (2, 3)];
        assert_eq!(thinned(points.into_iter()), [(0, 5), (0, 1), (0, 9), (0, 4), (2, 3)]);
    }

    #[test]
    fn stairs_go_on_before_they_go_up() {
        assert_eq!(stairs(&[(0, 5), (3, 2)]), [(0, 5), (3, 5), (3, 2)]);
    }
}
