//! The list of sessions and its order; keys change both. No terminal in here.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Instant;

use clap::ValueEnum;
use packrat_api::status::SessionSnapshot;
use ratatui::crossterm::event::KeyCode;

/// Order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// Bits per second to the client
    Rate,
    /// Last-mile loss
    Loss,
    /// Last-mile round trip
    RoundTrip,
    /// Repairs that arrived
    Repairs,
    /// Oldest
    Age,
    /// Bytes kept for repair
    Cache,
}

impl Order {
    /// The key that chooses it.
    pub(crate) const fn key(self) -> char {
        match self {
            Self::Rate => 'r',
            Self::Loss => 'l',
            Self::RoundTrip => 't',
            Self::Repairs => 'p',
            Self::Age => 'a',
            Self::Cache => 'c',
        }
    }
}

/// Sessions of one gateway or several.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Number of sessions; fewer may be listed.
    pub(crate) total: u64,
    /// Sessions, each with the Pod of its gateway in a cluster.
    pub(crate) sessions: Vec<(Option<String>, SessionSnapshot)>,
}

/// A session with its activity since the last look.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// The gateway's Pod, in a cluster.
    pub(crate) pod: Option<String>,
    pub(crate) session: SessionSnapshot,
    /// Bits per second to the client since the last look.
    pub(crate) rate: f64,
    /// Share of its datagrams that the last mile has lost.
    pub(crate) loss: Option<f64>,
    /// Share of these that repairs have filled.
    pub(crate) repaired: Option<f64>,
}

/// The list.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) order: Order,
    pub(crate) filter: String,
    /// True if keys go to the filter.
    pub(crate) typing: bool,
    /// Why there is nothing new.
    pub(crate) problem: Option<String>,
    /// First row on the screen.
    pub(crate) first: usize,
    pub(crate) total: u64,
    rows: Vec<Row>,
    looked: Option<Instant>,
}

impl List {
    pub(crate) const fn new(order: Order, filter: String) -> Self {
        Self {
            order,
            filter,
            typing: false,
            problem: None,
            first: 0,
            total: 0,
            rows: Vec::new(),
            looked: None,
        }
    }

    /// Takes in the gateway's current answer.
    pub(crate) fn update(&mut self, seen: Seen, now: Instant) {
        let seconds = self.looked.map(|looked| now.saturating_duration_since(looked).as_secs_f64());
        // Each gateway has numbers of its own.
        let before: HashMap<(Option<String>, u64), u64> = std::mem::take(&mut self.rows)
            .into_iter()
            .map(|row| ((row.pod, row.session.session), row.session.to_client_bytes))
            .collect();
        let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        self.total = seen.total;
        self.rows = seen
            .sessions
            .into_iter()
            .map(|(pod, session)| {
                let bytes = before
                    .get(&(pod.clone(), session.session))
                    .map(|before| session.to_client_bytes.saturating_sub(*before));
                let rate = match (bytes, seconds) {
                    (Some(bytes), Some(seconds)) if seconds > 0.0 => bytes as f64 * 8.0 / seconds,
                    _ if session.seconds > 0.0 => {
                        session.to_client_bytes as f64 * 8.0 / session.seconds
                    }
                    _ => 0.0,
                };
                Row {
                    pod,
                    rate,
                    loss: share(session.missing, session.recorded),
                    repaired: share(session.repairs_arrived, session.missing),
                    session,
                }
            })
            .collect();
        self.looked = Some(now);
        self.problem = None;
    }

    /// The rows that pass the filter, in order.
    pub(crate) fn rows(&self) -> Vec<&Row> {
        let filter = self.filter.to_lowercase();
        let passes = |row: &&Row| {
            let session = &row.session;
            let optional =
                |text: &'_ Option<String>| text.as_deref().unwrap_or_default().to_lowercase();
            [session.route.to_lowercase(), session.endpoint.to_string()]
                .into_iter()
                .chain([optional(&session.client), optional(&row.pod)])
                .any(|text| text.contains(&filter))
        };
        let mut rows: Vec<&Row> = self.rows.iter().filter(passes).collect();
        let value = |row: &Row| match self.order {
            Order::Rate => row.rate,
            Order::Loss => row.loss.unwrap_or(-1.0),
            Order::RoundTrip => row.session.last_mile_round_trip_microseconds as f64,
            Order::Repairs => row.session.repairs_arrived as f64,
            Order::Age => row.session.seconds,
            Order::Cache => row.session.cache_bytes as f64,
        };
        rows.sort_by(|one, other| {
            let order = value(other).partial_cmp(&value(one)).unwrap_or(Ordering::Equal);
            let (first, second) = (&one.session, &other.session);
            order.then_with(|| (&one.pod, first.session).cmp(&(&other.pod, second.session)))
        });
        rows
    }

    /// A key was pressed; false when it ends the command.
    pub(crate) fn key(&mut self, key: KeyCode) -> bool {
        if self.typing {
            match key {
                KeyCode::Enter => self.typing = false,
                KeyCode::Esc => {
                    self.typing = false;
                    self.filter.clear();
                }
                KeyCode::Backspace => {
                    self.filter.pop();
                }
                KeyCode::Char(letter) => self.filter.push(letter),
                _ => {}
            }
            self.first = 0;
            return true;
        }
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Down | KeyCode::Char('j') => {
                self.first = (self.first + 1).min(self.rows.len())
            }
            KeyCode::Up | KeyCode::Char('k') => self.first = self.first.saturating_sub(1),
            KeyCode::PageDown => self.first = (self.first + 20).min(self.rows.len()),
            KeyCode::PageUp => self.first = self.first.saturating_sub(20),
            KeyCode::Home => self.first = 0,
            KeyCode::Char(letter) => {
                if let Some(order) =
                    Order::value_variants().iter().find(|order| order.key() == letter)
                {
                    self.order = *order;
                    self.first = 0;
                }
            }
            _ => {}
        }
        true
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::time::Duration;

    pub(crate) fn sessions(bytes: [u64; 3]) -> Seen {
        let session = |number: u64, route: &str, missing: u64| SessionSnapshot {
            session: number,
            route: route.to_owned(),
            client: Some(format!("client{number}")),
            endpoint: "192.0.2.1:443".parse().unwrap(),
            assistance: (number != 2).then_some(7),
            seconds: 10.0 * number as f64,
            to_client_bytes: bytes[number as usize - 1],
            recorded: 1000,
            missing,
            repairs_arrived: missing,
            last_mile_round_trip_microseconds: 4000,
            to_client_datagrams: 0,
            to_server_datagrams: 0,
            to_server_bytes: 0,
            repairs: missing,
            resets: 0,
            cache_bytes: 0,
            last_mile_loss_ppm: 0,
            far_round_trip_microseconds: 0,
            refusal: None,
            relayed: false,
            counters: Default::default(),
        };
        let all = [session(1, "web", 40), session(2, "web", 0), session(3, "media", 100)];
        Seen { total: 3, sessions: all.map(|session| (None, session)).into() }
    }

    fn shown(list: &List) -> Vec<u64> {
        list.rows().iter().map(|row| row.session.session).collect()
    }

    #[test]
    fn rates_are_those_since_the_last_look() {
        let now = Instant::now();
        let mut list = List::new(Order::Rate, String::new());
        list.update(sessions([1000, 500, 0]), now);
        list.update(sessions([1000, 1500, 3000]), now + Duration::from_secs(2));
        assert_eq!(shown(&list), [3, 2, 1]);
        assert_eq!(list.rows()[0].rate, 12_000.0);
        assert_eq!(list.rows()[2].rate, 0.0);
    }

    #[test]
    fn equally_numbered_sessions_of_two_gateways_are_distinguished() {
        let of = |pod: &str, bytes| {
            let mut all = sessions([bytes, 0, 0]);
            all.sessions.truncate(1);
            all.sessions[0].0 = Some(pod.to_owned());
            all.sessions
        };
        let both =
            |one, other| Seen { total: 2, sessions: [of("a", one), of("b", other)].concat() };
        let now = Instant::now();
        let mut list = List::new(Order::Rate, String::new());
        list.update(both(1000, 5000), now);
        list.update(both(2000, 5500), now + Duration::from_secs(1));
        let rates: Vec<f64> = list.rows().iter().map(|row| row.rate).collect();
        assert_eq!(rates, [8000.0, 4000.0]);
        list.filter = "b".to_owned();
        assert_eq!(list.rows().iter().filter(|row| row.pod.as_deref() == Some("b")).count(), 1);
    }

    #[test]
    fn keys_sort_filter_and_end() {
        let mut list = List::new(Order::Age, String::new());
        list.update(sessions([1, 2, 3]), Instant::now());
        assert_eq!(shown(&list), [3, 2, 1]);
        assert!(list.key(KeyCode::Char('l')));
        assert_eq!(list.order, Order::Loss);
        assert_eq!(shown(&list), [3, 1, 2]);
        list.key(KeyCode::Char('/'));
        for letter in "WEB".chars() {
            // While typing, letters are no commands.
            assert!(list.key(KeyCode::Char(letter)));
        }
        assert_eq!(shown(&list), [1, 2]);
        list.key(KeyCode::Backspace);
        list.key(KeyCode::Enter);
        assert_eq!(list.filter, "WE");
        list.key(KeyCode::Char('/'));
        list.key(KeyCode::Esc);
        assert_eq!(shown(&list).len(), 3);
        assert!(!list.key(KeyCode::Char('q')));
    }
}
