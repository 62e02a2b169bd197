//! From a request to its answer.

use packrat_dataplane::Dataplane;
use packrat_dataplane::log::{Clients, Level, Logger};
use serde_json::json;

use crate::history::History;
use crate::{page, status};

/// Most sessions of an answer.
const MOST_SESSIONS: usize = 10_000;
/// Sessions of an answer when the request does not say.
const SESSIONS: usize = 100;
/// Events of an answer when the request does not say.
const EVENTS: usize = 200;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// Every path, what it answers, and whether it changes something.
pub const PATHS: [(&str, &str, bool); 5] = [
    ("/packrat", "Packrat: routes, their configuration and metrics, as JSON", false),
    ("/packrat/sessions", "Packrat: live sessions, busiest first, as JSON", false),
    ("/packrat/events", "Packrat: the last log lines, as JSON", false),
    ("/packrat/log", "Packrat: how the log is written; change it with POST ?level= and ?clients=", true),
    ("/packrat/overview", "Packrat: the overview page as HTML", false),
];

/// An answer over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The media type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

impl Answer {
    fn json(value: &serde_json::Value) -> Self {
        Self { status: 200, content_type: JSON, body: format!("{value:#}\n") }
    }

    fn problem(status: u16, text: String) -> Self {
        Self { status, content_type: TEXT, body: text + "\n" }
    }
}

/// The answer to a request. `target`: path and query. `dataplane`: `None` while no route was configured.
pub fn answer(dataplane: Option<&Dataplane>, history: &History, method: &str, target: &str) -> Answer {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let changes = PATHS.iter().any(|(known, _, changes)| *known == path && *changes);
    if method != "GET" && method != "HEAD" && !(method == "POST" && changes) {
        return Answer::problem(405, format!("{path} takes no {method}; use GET"));
    }
    let number = |key: &str, default: usize| match parameter(query, key) {
        None => Ok(default),
        Some(text) => text
            .parse()
            .map_err(|_| Answer::problem(400, format!("{key}={text} is no number; give a whole one"))),
    };
    match path {
        "/packrat" => Answer::json(&status::status(dataplane)),
        "/packrat/sessions" => match number("limit", SESSIONS) {
            Ok(limit) => Answer::json(&status::sessions(dataplane, limit.min(MOST_SESSIONS))),
            Err(problem) => problem,
        },
        "/packrat/events" => match (number("after", 0), number("limit", EVENTS)) {
            (Ok(after), Ok(limit)) => Answer::json(&status::events(dataplane, after as u64, limit)),
            (Err(problem), _) | (_, Err(problem)) => problem,
        },
        "/packrat/log" => match dataplane {
            Some(dataplane) => log(dataplane.logger(), method, query),
            None => Answer::problem(503, "no route is configured yet; try again later".to_owned()),
        },
        "/packrat/overview" => {
            Answer { status: 200, content_type: HTML, body: page::page(dataplane, history) }
        }
        _ => {
            let known: Vec<&str> = PATHS.iter().map(|(path, ..)| *path).collect();
            Answer::problem(404, format!("nothing is at {path}; try {}", known.join(", ")))
        }
    }
}

fn log(logger: &Logger, method: &str, query: &str) -> Answer {
    if method == "POST" {
        let level = parameter(query, "level").map(str::parse::<Level>).transpose();
        let clients = parameter(query, "clients").map(str::parse::<Clients>).transpose();
        match (level, clients) {
            // All of it or nothing.
            (Ok(level), Ok(clients)) => {
                if let Some(level) = level {
                    logger.set_level(level);
                }
                if let Some(clients) = clients {
                    logger.set_clients(clients);
                }
            }
            (Err(problem), _) | (_, Err(problem)) => return Answer::problem(400, problem),
        }
    }
    Answer::json(&json!({ "level": logger.level().name(), "clients": logger.clients().name() }))
}

/// The value of a query's parameter; none of ours needs an escape.
fn parameter<'a>(query: &'a str, key: &str) -> Option<&'a str> {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(name, _)| *name == key)
        .map(|(_, value)| value)
}
