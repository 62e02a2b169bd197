//! Writes lines, and keeps back lines of a kind that comes too often.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::client::{ClientNames, Clients};
use super::event::Event;
use super::level::Level;
use super::recent::{Line, Recent};
use super::sink::LogSink;
use super::timestamp::timestamp;
use crate::metrics::process::LINES_SUPPRESSED;

/// Lines of one kind that are written per second; further ones are counted in `suppressed` of the
/// next line.
const LINES_PER_SECOND: u32 = 50;

/// Something that lines are about.
pub(crate) trait LogSubject {
    /// Adds the keys that name it.
    fn describe(&self, line: &mut Map<String, Value>, logger: &Logger);
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
    /// A logger that writes lines of [`Level::Info`] and above to `sink`, with hashed client
    /// addresses.
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

    /// The form of client addresses.
    pub fn clients(&self) -> Clients {
        self.clients.mode()
    }

    /// Changes how client addresses are shown, from the next line on.
    pub fn set_clients(&self, clients: Clients) {
        self.clients.set(clients);
    }

    /// A client as it is shown in log lines and lists: by default a hash of its IP address that is
    /// the same as long as this process lives.
    pub fn client(&self, client: SocketAddr) -> Value {
        self.clients.show(client)
    }

    /// The last lines that were written, oldest first, beginning after number `after`; at most
    /// `limit`.
    pub fn recent(&self, after: u64, limit: usize) -> Vec<Line> {
        self.recent.after(after, limit)
    }

    /// The number of the newest line; 0 before the first one.
    pub fn newest(&self) -> u64 {
        self.recent.newest()
    }

    /// Writes a line, or counts it when too many of its kind were written in this second. `fields`
    /// is called only when the line is written.
    pub fn log<const N: usize>(
        &self,
        event: Event,
        fields: impl FnOnce() -> [(&'static str, Value); N],
    ) {
        self.write(event, |line| {
            line.extend(fields().into_iter().map(|(key, value)| (key.to_owned(), value)));
        });
    }

    /// Writes a line about a route or a session.
    pub(crate) fn about<const N: usize>(
        &self,
        event: Event,
        subject: &impl LogSubject,
        fields: impl FnOnce() -> [(&'static str, Value); N],
    ) {
        self.write(event, |line| {
            subject.describe(line, self);
            line.extend(fields().into_iter().map(|(key, value)| (key.to_owned(), value)));
        });
    }

    fn write(&self, event: Event, fields: impl FnOnce(&mut Map<String, Value>)) {
        if (event.level() as u8) < self.level.load(Ordering::Relaxed) {
            return;
        }
        let second = self.started.elapsed().as_secs();
        let Some(limit) = self.limits.get(event as usize) else { return };
        let Some(suppressed) = limit.lock().admit(second) else {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Silent;
    use std::sync::Arc;

    struct Lines(Arc<Mutex<Vec<Map<String, Value>>>>);

    impl LogSink for Lines {
        fn write(&self, _level: Level, fields: Map<String, Value>) {
            self.0.lock().push(fields);
        }
    }

    #[test]
    fn suppressed_lines_are_counted_separately_for_each_kind() {
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
        let lines = lines.lock();
        assert!(lines.len() < LINES_PER_SECOND as usize * 10);
        let last = lines.last().unwrap();
        assert_eq!(last["event"], "session_opened");
        assert_eq!(last["level"], "info");
        assert_eq!(last["endpoint"], "192.0.2.1:5");
        let ts = last["ts"].as_str().unwrap();
        assert!(ts.len() == "2026-01-01T00:00:00.000Z".len() && ts.ends_with('Z'), "{ts}");
    }

    #[test]
    fn the_level_can_change_while_running_and_lines_can_be_read() {
        let logger = Logger::new(Box::new(Silent));
        logger.log(Event::ClientWaiting, || []);
        assert_eq!(logger.newest(), 0);
        logger.set_level("debug".parse().unwrap());
        logger.log(Event::ClientWaiting, || []);
        logger.set_level(Level::Error);
        logger.log(Event::Reset, || []);
        logger.log(Event::WorkerError, || []);
        let lines = logger.recent(0, 10);
        let events: Vec<_> =
            lines.iter().map(|line| line.fields["event"].as_str().unwrap()).collect();
        assert_eq!(events, ["client_waiting", "worker_error"]);
        assert_eq!(logger.recent(lines[0].number, 10).len(), 1);
        assert!("loud".parse::<Level>().unwrap_err().contains("warning"));
    }
}
