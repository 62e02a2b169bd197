//! `packrat tap`: events on gateways, or within one session, as they happen.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value};

use super::error::OperateError;
use super::gateway::{AskedGateway, Events};
use super::output::{Format, Paint, painted};
use super::target::{Gateways, Target};
use super::warn;

/// Time between two questions.
const QUESTION_INTERVAL: Duration = Duration::from_millis(400);

/// Events of a session in one answer from which the next ones are asked for without a pause.
const MANY_EVENTS: usize = 500;

/// Position in a gateway that does not have the session, or not any more.
const GONE_POSITION: u64 = u64::MAX;

/// Position of the events after the newest.
const NEXT_POSITION: u64 = u64::MAX >> 1;

/// Questions without an answer before the command gives up.
const UNANSWERED_QUESTIONS: u32 = 25;

/// Options of the command.
#[derive(Debug, Args)]
pub(crate) struct TapOptions {
    #[command(flatten)]
    target: Target,

    /// Only events of this route
    #[arg(long, value_name = "NAME")]
    route: Option<String>,

    /// Only events of this kind, for example reset; may be given several times
    #[arg(long = "event", value_name = "EVENT")]
    events: Vec<String>,

    /// Events within this session instead (the number `session` of log lines): eACKs, missing
    /// datagrams, repairs, and why one was not repaired. Ends with the session
    #[arg(long, value_name = "ID")]
    session: Option<u64>,

    /// Begin with remembered events, not with the next ones
    #[arg(long)]
    past: bool,

    /// End after this many events
    #[arg(long, value_name = "N")]
    lines: Option<u64>,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// Runs `packrat tap`.
pub(crate) fn tap(options: &TapOptions) -> Result<ExitCode, OperateError> {
    let gateways = options.target.gateways()?;
    let mut left = options.lines.unwrap_or(u64::MAX);
    let positions = begin(options, &gateways)?;
    let mut failures = 0;
    while left > 0 {
        let answers =
            gateways.each_numbered(|number, gateway| news(options, gateway, positions.get(number)));
        let mut events = Vec::new();
        let mut problem = None;
        for answer in answers {
            match answer {
                Ok(some) => events.extend(some),
                Err(error) => problem = Some(error),
            }
        }
        // A gateway may be gone for a while; all of them for longer is the end.
        failures = if problem.is_none() || !events.is_empty() { 0 } else { failures + 1 };
        if let Some(problem) = problem.filter(|_| failures >= UNANSWERED_QUESTIONS) {
            return Err(problem);
        }
        events.sort_by(|one: &Map<String, Value>, other| {
            text_of(one, "ts").cmp(text_of(other, "ts"))
        });
        left = match print(&events, options, left) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            left => left.map_err(OperateError::Output)?,
        };
        if left == 0 || positions.iter().all(is_gone) {
            break;
        }
        if events.is_empty() || (options.session.is_some() && events.len() < MANY_EVENTS) {
            std::thread::sleep(QUESTION_INTERVAL);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The positions at which each gateway's news begin.
fn begin(options: &TapOptions, gateways: &Gateways) -> Result<Vec<AtomicU64>, OperateError> {
    let begun = gateways.each(|gateway| {
        // Asking for a session's events begins to observe it.
        let newest = match options.ask(gateway, if options.past { 0 } else { NEXT_POSITION })? {
            Some(events) => events.newest,
            None => return Ok(GONE_POSITION),
        };
        Ok(if options.past { 0 } else { newest })
    });
    let mut problems = Vec::new();
    let positions = begun.into_iter().map(|position| {
        AtomicU64::new(position.unwrap_or_else(|problem| {
            problems.push(problem);
            NEXT_POSITION
        }))
    });
    let positions: Vec<AtomicU64> = positions.collect();
    if problems.len() == positions.len()
        && let Some(problem) = problems.pop()
    {
        return Err(problem);
    }
    warn("tap", &problems);
    if let Some(session) = options.session.filter(|_| positions.iter().all(is_gone)) {
        return Err(OperateError::NoGateway(format!(
            "no session {session}; `packrat tap --event session_opened --past` shows the numbers of sessions"
        )));
    }
    Ok(positions)
}

fn is_gone(position: &AtomicU64) -> bool {
    position.load(Ordering::Relaxed) == GONE_POSITION
}

/// Prints the wanted events, at most `left`; the number of events that may follow.
fn print(events: &[Map<String, Value>], options: &TapOptions, left: u64) -> io::Result<u64> {
    let mut output = io::stdout().lock();
    let mut left = left;
    for event in events.iter().filter(|event| options.wants(event)) {
        let line = if options.output == Format::Json {
            Value::Object(event.clone()).to_string()
        } else {
            line(event, options.output == Format::Wide)
        };
        writeln!(output, "{line}")?;
        left -= 1;
        if left == 0 {
            break;
        }
    }
    Ok(left)
}

/// Events that a gateway has logged, or a session has recorded, since the last look.
fn news(
    options: &TapOptions,
    gateway: &AskedGateway,
    position: Option<&AtomicU64>,
) -> Result<Vec<Map<String, Value>>, OperateError> {
    let Some(position) = position else { return Ok(Vec::new()) };
    let after = position.load(Ordering::Relaxed);
    if after == GONE_POSITION {
        return Ok(Vec::new());
    }
    let Some(news) = options.ask(gateway, after)? else {
        position.store(GONE_POSITION, Ordering::Relaxed);
        return Ok(Vec::new());
    };
    // A gateway that was restarted counts from the beginning.
    position.store(
        if news.newest < after && after != NEXT_POSITION { 0 } else { news.newest },
        Ordering::Relaxed,
    );
    let mut events = news.events;
    if let Some(place) = gateway.place() {
        for event in &mut events {
            event.insert("pod".to_owned(), place.pod.clone().into());
        }
    }
    Ok(events)
}

fn text_of<'a>(event: &'a Map<String, Value>, key: &str) -> &'a str {
    event.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl TapOptions {
    /// Events after this number; `None` if the gateway does not have the session.
    fn ask(&self, gateway: &AskedGateway, after: u64) -> Result<Option<Events>, OperateError> {
        match self.session {
            Some(session) => gateway.session_events(session, after),
            None => gateway.events(after).map(Some),
        }
    }

    fn wants(&self, event: &Map<String, Value>) -> bool {
        let is = |key: &str, wanted: &str| event.get(key).and_then(Value::as_str) == Some(wanted);
        self.route.as_deref().is_none_or(|route| is("route", route))
            && (self.events.is_empty() || self.events.iter().any(|wanted| is("event", wanted)))
    }
}

fn line(event: &Map<String, Value>, wide: bool) -> String {
    let text = |key: &str| text_of(event, key);
    let time = text("ts").get(11..23).unwrap_or_default();
    let paint = match text("level") {
        "error" => Paint::Bad,
        "warning" => Paint::Warning,
        _ if ["given_up", "repair_refused", "eack_failed"].contains(&text("event")) => {
            Paint::Warning
        }
        _ => Paint::Good,
    };
    let mut line = format!(
        "{} {}",
        painted(time, Paint::Soft),
        painted(&format!("{:<22}", text("event")), paint)
    );
    let known =
        ["ts", "level", "event", "number", "gateway", "namespace", "public_key", "microseconds"];
    for (key, value) in event.iter().filter(|(key, _)| wide || !known.contains(&key.as_str())) {
        if known[..3].contains(&key.as_str()) {
            continue;
        }
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        line.push_str(&format!(" {}{value}", painted(&format!("{key}="), Paint::Soft)));
    }
    line
}
