//! Log lines: JSON objects with stable keys, limited per kind, written by the shell.
//!
//! Every line has `ts` (RFC 3339, UTC), `level` and `event`. Lines about a route have `gateway`, `namespace` and `route`; those about a
//! client's session `session` (a number that the process never uses again) and `client`; those about its assistance `assistance` (the
//! name of the session in the protocol); what has a cause has `reason`. `suppressed` counts the lines of this event that were
//! kept back since the last one. docs/METRICS.md lists events and keys.

mod client;
mod event;
mod recent;
mod standard_output;

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Instant, SystemTime};

use serde_json::{Map, Value};

use crate::metrics::process::LINES_SUPPRESSED;
use crate::route::Route;
use crate::session::Session;
use client::ClientNames;
use recent::Recent;

pub use client::Clients;
pub use event::Event;
pub use recent::Line;
pub use standard_output::StandardOutput;

/// Lines of one kind that are written per second; further ones are counted in `suppressed` of the next line.
const LINES_PER_SECOND: u32 = 50;

/// How much an operator should care.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Details.
    Debug = 0,
    /// Normal life of sessions and routes.
    Info = 1,
    /// Something is lost or refused, forwarding goes on.
    Warning = 2,
    /// Something is broken and needs an operator.
    Error = 3,
}

impl Level {
    const ALL: [Self; 4] = [Self::Debug, Self::Info, Self::Warning, Self::Error];

    /// The text in a log line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl std::str::FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|level| level.name() == text)
            .ok_or_else(|| format!("{text:?} is no log level; use debug, info, warning or error"))
    }
}

/// Where a shell writes log lines.
pub trait LogSink: Send + Sync {
    /// Writes one line: a JSON object without a line break.
    fn write(&self, level: Level, fields: Map<String, Value>);
}

/// Limits lines per [`Event`] and hands them to the shell's [`LogSink`].
pub struct Logger {
    sink: Box<dyn LogSink>,
    started: Instant,
    level: AtomicU8,
    clients: ClientNames,
    limits: [Mutex<Limit>; Event::COUNT],
    recent: Recent,
}

#[derive(Debug, Default, Clone, Copy)]
struct Limit {
    second: u64,
    written: u32,
    suppressed: u64,
}

impl Limit {
    /// The number of lines suppressed before this one when it may be written.
    fn admit(&mut self, second: u64) -> Option<u64> {
        if self.second != second {
            self.second = second;
            self.written = 0;
        }
        if self.written >= LINES_PER_SECOND {
            self.suppressed += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl std::fmt::Debug for Logger {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Logger").finish_non_exhaustive()
    }
}

impl Logger {
    /// A logger that writes lines of [`Level::Info`] and above to `sink`, with hashed client addresses.
    pub fn new(sink: Box<dyn LogSink>) -> Self {
        Self {
            sink,
            started: Instant::now(),
            level: AtomicU8::new(Level::Info as u8),
            clients: ClientNames::default(),
            limits: std::array::from_fn(|_| Mutex::default()),
            recent: Recent::default(),
        }
    }

    /// The lowest level that is written now.
    pub fn level(&self) -> Level {
        let level = self.level.load(Ordering::Relaxed);
        Level::ALL.into_iter().find(|known| *known as u8 == level).unwrap_or(Level::Info)
    }

    /// Changes the lowest level that is written, from the next line on.
    pub fn set_level(&self, level: Level) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// How client addresses are shown.
    pub fn clients(&self) -> Clients {
        self.clients.mode()
    }

    /// Changes how client addresses are shown, from the next line on.
    pub fn set_clients(&self, clients: Clients) {
        self.clients.set(clients);
    }

    /// A client as it is shown in log lines and lists: by default a hash of its IP address that is the same as long as this
    /// process lives.
    pub fn client(&self, client: std::net::SocketAddr) -> Value {
        self.clients.show(client)
    }

    /// The last lines that were written, oldest first, beginning after number `after`; at most `limit`.
    pub fn recent(&self, after: u64, limit: usize) -> Vec<Line> {
        self.recent.after(after, limit)
    }

    /// The number of the newest line; 0 before the first one.
    pub fn newest(&self) -> u64 {
        self.recent.newest()
    }

    /// Writes a line, or counts it when too many of its kind were written in this second. `fields` is called only when the
    /// line is written.
    pub fn log<const N: usize>(&self, event: Event, fields: impl FnOnce() -> [(&'static str, Value); N]) {
        self.write(event, |line| {
            line.extend(fields().into_iter().map(|(key, value)| (key.to_owned(), value)));
        });
    }

    /// Writes a line about a route.
    pub(crate) fn about<const N: usize>(
        &self,
        event: Event,
        route: &Route,
        fields: impl FnOnce() -> [(&'static str, Value); N],
    ) {
        self.write(event, |line| {
            name_route(line, route);
            line.extend(fields().into_iter().map(|(key, value)| (key.to_owned(), value)));
        });
    }

    /// Writes a line about a client's session.
    pub(crate) fn about_session<const N: usize>(
        &self,
        event: Event,
        session: &Session,
        fields: impl FnOnce() -> [(&'static str, Value); N],
    ) {
        self.write(event, |line| {
            name_route(line, &session.route);
            line.insert("session".to_owned(), session.number.into());
            line.insert("client".to_owned(), self.client(session.client()));
            line.extend(fields().into_iter().map(|(key, value)| (key.to_owned(), value)));
        });
    }

    fn write(&self, event: Event, fields: impl FnOnce(&mut Map<String, Value>)) {
        if (event.level() as u8) < self.level.load(Ordering::Relaxed) {
            return;
        }
        let second = self.started.elapsed().as_secs();
        let Some(limit) = self.limits.get(event as usize) else { return };
        let Some(suppressed) = limit.lock().unwrap_or_else(PoisonError::into_inner).admit(second) else {
            LINES_SUPPRESSED.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut line = Map::new();
        line.insert("ts".to_owned(), timestamp().into());
        line.insert("level".to_owned(), event.level().name().into());
        line.insert("event".to_owned(), event.name().into());
        fields(&mut line);
        if suppressed > 0 {
            line.insert("suppressed".to_owned(), suppressed.into());
        }
        self.recent.push(&line);
        self.sink.write(event.level(), line);
    }
}

fn name_route(line: &mut Map<String, Value>, route: &Route) {
    line.insert("route".to_owned(), route.name().into());
    line.insert("gateway".to_owned(), route.gateway_name().into());
    line.insert("namespace".to_owned(), route.namespace().into());
}

/// The time of a log line: RFC 3339, UTC, with milliseconds.
pub fn timestamp() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::Arc;

    /// Takes lines that nobody reads.
    pub(crate) fn silent_sink() -> Box<dyn LogSink> {
        Box::new(Lines(Arc::default()))
    }

    /// A logger whose lines nobody reads.
    pub(crate) fn silent_logger() -> Logger {
        Logger::new(silent_sink())
    }

    struct Lines(Arc<Mutex<Vec<Map<String, Value>>>>);

    impl LogSink for Lines {
        fn write(&self, _level: Level, fields: Map<String, Value>) {
            self.0.lock().unwrap().push(fields);
        }
    }

    #[test]
    fn suppressed_lines_are_counted_and_kinds_do_not_disturb_each_other() {
        let mut limit = Limit::default();
        let admitted = (0..LINES_PER_SECOND + 7).filter(|_| limit.admit(3).is_some()).count();
        assert_eq!(admitted, LINES_PER_SECOND as usize);
        assert_eq!(limit.admit(4), Some(7));
        assert_eq!(limit.admit(4), Some(0));

        let lines = Arc::new(Mutex::new(Vec::new()));
        let logger = Logger::new(Box::new(Lines(Arc::clone(&lines))));
        for number in 0..LINES_PER_SECOND * 20 {
            logger.log(Event::UpstreamError, || [("number", number.into())]);
        }
        logger.log(Event::SessionOpened, || [("endpoint", "192.0.2.1:5".into())]);
        let lines = lines.lock().unwrap();
        assert!(lines.len() < LINES_PER_SECOND as usize * 10);
        let last = lines.last().unwrap();
        assert_eq!(last["event"], "session_opened");
        assert_eq!(last["level"], "info");
        assert_eq!(last["endpoint"], "192.0.2.1:5");
        let ts = last["ts"].as_str().unwrap();
        assert!(ts.len() == "2026-01-01T00:00:00.000Z".len() && ts.ends_with('Z'), "{ts}");
    }

    #[test]
    fn the_level_can_be_changed_while_it_runs_and_recent_lines_can_be_read() {
        let logger = silent_logger();
        logger.log(Event::ClientWaiting, || []);
        assert_eq!(logger.newest(), 0);
        logger.set_level("debug".parse().unwrap());
        logger.log(Event::ClientWaiting, || []);
        logger.set_level(Level::Error);
        logger.log(Event::Reset, || []);
        logger.log(Event::WorkerError, || []);
        let lines = logger.recent(0, 10);
        let events: Vec<_> = lines.iter().map(|line| line.fields["event"].as_str().unwrap()).collect();
        assert_eq!(events, ["client_waiting", "worker_error"]);
        assert_eq!(logger.recent(lines[0].number, 10).len(), 1);
        assert!("loud".parse::<Level>().unwrap_err().contains("warning"));
    }
}
