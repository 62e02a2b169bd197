//! Log lines: JSON objects with stable keys, limited per kind, written by the shell.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Instant;

use serde_json::{Map, Value};

/// Lines of one kind that are written per second; further ones are counted in `suppressed` of the next line.
const LINES_PER_SECOND: u32 = 50;

/// How much an operator should care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Details.
    Debug,
    /// Normal life of sessions and routes.
    Info,
    /// Something is lost or refused, forwarding goes on.
    Warning,
    /// Something is broken and needs an operator.
    Error,
}

/// Where a shell writes log lines.
pub trait LogSink: Send + Sync {
    /// Writes one line: a JSON object without a line break.
    fn write(&self, level: Level, fields: Map<String, Value>);
}

macro_rules! events {
    ($($variant:ident $level:ident $name:literal;)*) => {
        /// What happened; the value of the key `event`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Event {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Event {
            const COUNT: usize = [$(Self::$variant,)*].len();

            /// The text in the log line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The level of its lines.
            pub const fn level(self) -> Level {
                match self { $(Self::$variant => Level::$level,)* }
            }
        }
    };
}

events! {
    RouteConfigured Info "route_configured";
    ConfigurationRefused Error "configuration_refused";
    ListenerAttached Info "listener_attached";
    ListenerReleased Info "listener_released";
    ListenerUnavailable Error "listener_unavailable";
    SessionOpened Info "session_opened";
    SessionClosed Info "session_closed";
    SessionMoved Info "session_moved";
    ClientMoved Info "client_moved";
    ClientWaiting Debug "client_waiting";
    ClientWaitedInVain Debug "client_waited_in_vain";
    SessionRefused Warning "session_refused";
    SessionsLimited Warning "sessions_limited";
    UpstreamError Warning "upstream_error";
    DownstreamError Warning "downstream_error";
    SegmentationUnavailable Warning "segmentation_offload_unavailable";
    ReceiveBufferSmall Warning "receive_buffer_small";
    ControlDropped Info "control_dropped";
    AssistanceBegun Info "assistance_begun";
    AssistanceEnded Info "assistance_ended";
    Reset Warning "reset";
    Assistance Info "assistance";
    AssistancePanic Error "assistance_panic";
    WorkerError Error "worker_error";
    Draining Info "draining";
    Shutdown Info "shutdown";
}

/// Limits lines per [`Event`] and hands them to the shell's [`LogSink`].
pub struct Logger {
    sink: Box<dyn LogSink>,
    started: Instant,
    limits: [Mutex<Limit>; Event::COUNT],
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
    /// A logger that writes to `sink`.
    pub fn new(sink: Box<dyn LogSink>) -> Self {
        Self { sink, started: Instant::now(), limits: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Writes a line, or counts it when too many of its kind were written in this second. `fields` is called only when the
    /// line is written.
    pub fn log<const N: usize>(&self, event: Event, fields: impl FnOnce() -> [(&'static str, Value); N]) {
        let second = self.started.elapsed().as_secs();
        let Some(limit) = self.limits.get(event as usize) else { return };
        let Some(suppressed) = limit.lock().unwrap_or_else(PoisonError::into_inner).admit(second) else {
            return;
        };
        let mut line = Map::new();
        line.insert("event".to_owned(), event.name().into());
        line.extend(fields().into_iter().map(|(key, value)| (key.to_owned(), value)));
        if suppressed > 0 {
            line.insert("suppressed".to_owned(), suppressed.into());
        }
        self.sink.write(event.level(), line);
    }
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
        logger.log(Event::SessionOpened, || [("client", "192.0.2.1:5".into())]);
        let lines = lines.lock().unwrap();
        assert!(lines.len() < LINES_PER_SECOND as usize * 10);
        let last = lines.last().unwrap();
        assert_eq!(last["event"], "session_opened");
        assert_eq!(last["client"], "192.0.2.1:5");
    }
}
