//! The screen.

use clap::ValueEnum;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table};

use super::list::{List, Order, Row};
use crate::operate::output::{age, bits, bytes, milliseconds, or_dash, percent};

/// Draws the list.
pub(super) fn draw(frame: &mut Frame<'_>, list: &List, gateway: &str) {
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(2), Constraint::Min(3), Constraint::Length(1)])
            .areas(frame.area());
    let rows = list.rows();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colour = |colour: Color| if plain { Style::new() } else { Style::new().fg(colour) };
    frame.render_widget(Paragraph::new(head(list, &rows, gateway, &colour)), top);
    frame.render_widget(table(list, &rows, &colour), middle);
    let help = Line::styled(help(list), colour(Color::DarkGray));
    frame.render_widget(Paragraph::new(help), bottom);
}

/// Style of names.
const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);

/// The sums of all sessions, and a problem.
fn head(
    list: &List,
    rows: &[&Row],
    gateway: &str,
    colour: &impl Fn(Color) -> Style,
) -> Line<'static> {
    let rate: f64 = rows.iter().map(|row| row.rate).sum();
    let assisted = rows.iter().filter(|row| row.session.assistance.is_some()).count();
    let mut head = vec![
        Span::styled("packrat top ", STRONG),
        Span::raw(format!(
            "{gateway}  {} sessions, {} shown, {assisted} of them assisted, {}",
            list.total,
            rows.len(),
            bits(rate)
        )),
    ];
    if let Some(problem) = &list.problem {
        head.push(Span::styled(format!("  {problem}"), colour(Color::Red)));
    }
    Line::from(head)
}

fn table(list: &List, rows: &[&Row], colour: &impl Fn(Color) -> Style) -> Table<'static> {
    let first = list.first.min(rows.len().saturating_sub(1));
    let marked = |name: &str, order: Option<Order>| {
        let is_order = order == Some(list.order);
        let style = if is_order { STRONG.add_modifier(Modifier::UNDERLINED) } else { STRONG };
        Cell::from(Line::styled(name.to_owned(), style))
    };
    let in_cluster = rows.iter().any(|row| row.pod.is_some());
    let mut header = vec![
        marked("SESSION", None),
        marked("ROUTE", None),
        marked("CLIENT", None),
        marked("AGE", Some(Order::Age)),
        marked("RATE", Some(Order::Rate)),
        marked("LOSS", Some(Order::Loss)),
        marked("REPAIRED", Some(Order::Repairs)),
        marked("ROUND TRIP", Some(Order::RoundTrip)),
        marked("CACHE", Some(Order::Cache)),
        marked("RESETS", None),
        marked("ASSISTED", None),
    ];
    let mut widths = [8, 22, 17, 8, 13, 7, 9, 11, 10, 7, 8].map(Constraint::Length).to_vec();
    if in_cluster {
        header.push(marked("POD", None));
        widths.push(Constraint::Min(20));
    }
    let body = rows.iter().skip(first).map(|row| line(row, colour));
    Table::new(body, widths).header(TableRow::new(header)).column_spacing(1)
}

/// The keys.
fn help(list: &List) -> String {
    if list.typing {
        return format!("/{}_   Enter keeps it, Esc clears it", list.filter);
    }
    let orders = Order::value_variants().iter().filter_map(|order| {
        Some(format!("{} {}", order.key(), order.to_possible_value()?.get_name()))
    });
    let orders = orders.collect::<Vec<_>>().join("  ");
    let filter = match list.filter.as_str() {
        "" => String::new(),
        filter => format!(" (filter: {filter})"),
    };
    format!("sort: {orders}   / filter{filter}   q quit")
}

fn line(row: &Row, colour: &impl Fn(Color) -> Style) -> TableRow<'static> {
    let session = &row.session;
    let repaired = match row.repaired {
        Some(share) if share >= 0.95 => colour(Color::Green),
        Some(share) if share >= 0.8 => colour(Color::Yellow),
        Some(_) => colour(Color::Red),
        None => Style::new(),
    };
    let round_trip = session.last_mile_round_trip_microseconds as f64 / 1e6;
    let mut cells = vec![
        Cell::from(session.session.to_string()),
        Cell::from(session.route.clone()),
        Cell::from(session.client.clone().unwrap_or_else(|| "-".to_owned())),
        Cell::from(age(session.seconds)),
        Cell::from(bits(row.rate)),
        Cell::from(or_dash(row.loss, percent)),
        Cell::from(Span::styled(or_dash(row.repaired, percent), repaired)),
        Cell::from(if round_trip > 0.0 { milliseconds(round_trip) } else { "-".to_owned() }),
        Cell::from(bytes(session.cache_bytes as f64)),
        Cell::from(session.resets.to_string()),
        Cell::from(if session.assistance.is_some() { "yes" } else { "no" }),
    ];
    cells.extend(row.pod.clone().map(Cell::from));
    TableRow::new(cells)
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::sessions;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::{Duration, Instant};

    #[test]
    fn sessions_are_drawn_with_their_figures() {
        let now = Instant::now();
        let mut list = List::new(Order::Rate, String::new());
        list.update(sessions([0, 0, 0]), now);
        list.update(sessions([5_000_000, 0, 0]), now + Duration::from_secs(2));
        let mut terminal = Terminal::new(TestBackend::new(132, 10)).unwrap();
        let drawn = terminal.draw(|frame| draw(frame, &list, "http://127.0.0.1:9901/")).unwrap();
        let text: Vec<String> = (0..10)
            .map(|y| (0..132).map(|x| drawn.buffer[(x, y)].symbol().to_owned()).collect::<String>())
            .collect();
        assert!(
            text[0].contains("3 sessions, 3 shown, 2 of them assisted, 20.0 Mbit/s"),
            "{text:#?}"
        );
        assert!(text[2].starts_with("SESSION") && text[2].contains("ROUND TRIP"), "{text:#?}");
        for part in ["1 ", "web", "client1", "10s", "20.0 Mbit/s", "4.0%", "100%", "4.0 ms", "yes"]
        {
            assert!(text[3].contains(part), "{part}: {text:#?}");
        }
        assert!(text[9].contains("/ filter"), "{text:#?}");
    }
}
