//! The answers to requests.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use packrat_api::status::{Clients as ClientsOfServer, LogSettings};
use packrat_dataplane::log::{Clients, Level, Logger};
use packrat_dataplane::{Dataplane, ObservationError};
use packrat_pages::Answer;

use crate::history::History;
use crate::{page, status};

/// Most sessions in an answer.
const MOST_SESSIONS: usize = 10_000;
/// Sessions in an answer by default.
const DEFAULT_SESSIONS: usize = 100;
/// Events in an answer by default.
const DEFAULT_EVENTS: usize = 200;
/// Events of one session in an answer.
const MOST_SESSION_EVENTS: usize = 1000;
/// Seconds for which a request for a session's events has it observed by default.
const OBSERVED_SECONDS: usize = 30;
/// Most seconds for which a request for a session's events has it observed.
const MOST_OBSERVED_SECONDS: usize = 600;

/// Path with the clients of the server that asks.
pub(crate) const CLIENTS_PATH: &str = "/packrat/clients";
/// Most clients in an answer.
const MOST_CLIENTS: usize = 10_000;

/// Media type of the page.
const HTML_TYPE: &str = "text/html; charset=utf-8";

/// Every path, its content, and true if it changes something.
pub const ANSWERED_PATHS: [(&str, &str, bool); 6] = [
    ("/packrat", "Packrat: routes, their configuration and metrics, as JSON", false),
    (
        "/packrat/sessions",
        "Packrat: live sessions, busiest first, as JSON; with ?session= or ?client= those, in detail",
        false,
    ),
    (
        CLIENTS_PATH,
        "Packrat: addresses of the clients of the server with the address ?requester=, as JSON",
        false,
    ),
    (
        "/packrat/events",
        "Packrat: the last log lines, or with ?session= one session's, as JSON",
        false,
    ),
    (
        "/packrat/log",
        "Packrat: how the log is written; change it with POST ?level= and ?clients=",
        true,
    ),
    ("/packrat/overview", "Packrat: the overview page as HTML", false),
];

/// The answer to a request. `target`: path and query. `dataplane`: `None` before the first route is
/// configured.
pub fn answer(
    dataplane: Option<&Dataplane>,
    history: &History,
    method: &str,
    target: &str,
) -> Answer {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let changes = ANSWERED_PATHS.iter().any(|(known, _, changes)| *known == path && *changes);
    if method != "GET" && method != "HEAD" && !(method == "POST" && changes) {
        return Answer::problem(405, format!("{path} takes no {method}; use GET"));
    }
    match path {
        "/packrat" => Answer::json(&status::status(dataplane)),
        "/packrat/sessions" => sessions(dataplane, query),
        CLIENTS_PATH => clients_of_requester(dataplane, query),
        "/packrat/events" if parameter(query, "session").is_some() => {
            match (
                number(query, "session", 0),
                number(query, "seconds", OBSERVED_SECONDS),
                number(query, "after", 0),
            ) {
                (Ok(session), Ok(seconds), Ok(after)) => {
                    session_events(dataplane, session as u64, seconds, after as u64)
                }
                (Err(problem), ..) | (_, Err(problem), _) | (.., Err(problem)) => problem,
            }
        }
        "/packrat/events" => {
            match (number(query, "after", 0), number(query, "limit", DEFAULT_EVENTS)) {
                (Ok(after), Ok(limit)) => {
                    Answer::json(&status::events(dataplane, after as u64, limit))
                }
                (Err(problem), _) | (_, Err(problem)) => problem,
            }
        }
        "/packrat/log" => match dataplane {
            Some(dataplane) => log(dataplane.logger(), method, query),
            None => unconfigured(),
        },
        "/packrat/overview" => {
            Answer { status: 200, content_type: HTML_TYPE, body: page::page(dataplane, history) }
        }
        _ => {
            let known: Vec<&str> = ANSWERED_PATHS.iter().map(|(path, ..)| *path).collect();
            Answer::problem(404, format!("nothing is at {path}; try {}", known.join(", ")))
        }
    }
}

/// A whole number of the query.
fn number(query: &str, key: &str, default: usize) -> Result<usize, Answer> {
    match parameter(query, key) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| {
            Answer::problem(400, format!("{key}={text} is no number; give a whole one"))
        }),
    }
}

/// One session, the sessions of a client, or the first ones.
fn sessions(dataplane: Option<&Dataplane>, query: &str) -> Answer {
    if parameter(query, "session").is_some() {
        return match number(query, "session", 0) {
            Ok(session) => Answer::json(&status::session(dataplane, session as u64)),
            Err(problem) => problem,
        };
    }
    if let Some(client) = parameter(query, "client") {
        return match address(client) {
            Some((client, port)) => {
                Answer::json(&status::sessions_of_client(dataplane, client, port))
            }
            None => Answer::problem(
                400,
                "client is no address; give one, with or without a port".to_owned(),
            ),
        };
    }
    match number(query, "limit", DEFAULT_SESSIONS) {
        Ok(limit) => Answer::json(&status::sessions(dataplane, limit.min(MOST_SESSIONS))),
        Err(problem) => problem,
    }
}

/// An address with or without a port.
fn address(text: &str) -> Option<(IpAddr, Option<u16>)> {
    let with_port = || text.parse().ok().map(|all: SocketAddr| (all.ip(), Some(all.port())));
    text.parse().ok().map(|address| (address, None)).or_else(with_port)
}

/// Clients of the server at the address that the query names as the requester. The page puts the
/// requester's own address there, whatever the request contained: a server learns only of its own
/// clients.
fn clients_of_requester(dataplane: Option<&Dataplane>, query: &str) -> Answer {
    let mut named = query.split('&').filter_map(|pair| pair.strip_prefix("requester="));
    let requester = match (named.next(), named.next()) {
        // An address of IPv6 may have been encoded.
        (Some(text), None) => text.replace("%3A", ":").replace("%3a", ":").parse::<IpAddr>().ok(),
        _ => None,
    };
    match requester {
        Some(requester) => clients(dataplane, requester, query),
        None => Answer::problem(403, "it is not known who asks".to_owned()),
    }
}

/// The clients of the server at `requester`; with `upstream` in the query, the one that this server sees
/// at that address.
pub(crate) fn clients(dataplane: Option<&Dataplane>, requester: IpAddr, query: &str) -> Answer {
    let upstream = match parameter(query, "upstream").map(str::parse::<SocketAddr>) {
        None => None,
        Some(Ok(upstream)) => Some(upstream),
        Some(Err(_)) => {
            let problem = "upstream is no address with a port; write IP:PORT, IPv6 in brackets";
            return Answer::problem(400, problem.to_owned());
        }
    };
    let mut clients = dataplane.map(|found| found.clients_of_server(requester)).unwrap_or_default();
    clients.retain(|client| upstream.is_none_or(|upstream| client.upstream == upstream));
    let total = clients.len() as u64;
    clients.truncate(MOST_CLIENTS);
    Answer::json(&ClientsOfServer { total, clients })
}

/// Events of one session, observed for this number of seconds from now.
fn session_events(
    dataplane: Option<&Dataplane>,
    session: u64,
    seconds: usize,
    after: u64,
) -> Answer {
    let Some(dataplane) = dataplane else { return unconfigured() };
    let duration = Duration::from_secs(seconds.clamp(1, MOST_OBSERVED_SECONDS) as u64);
    match dataplane.observe(session, duration, after, MOST_SESSION_EVENTS) {
        Ok(events) => Answer::json(&events),
        Err(error @ ObservationError::TooMany) => Answer::problem(503, error.to_string()),
        Err(error) => Answer::problem(404, error.to_string()),
    }
}

fn unconfigured() -> Answer {
    Answer::problem(503, "no route is configured yet; try again later".to_owned())
}

fn log(logger: &Logger, method: &str, query: &str) -> Answer {
    if method == "POST" {
        let level = parameter(query, "level").map(str::parse::<Level>).transpose();
        let clients = parameter(query, "clients").map(str::parse::<Clients>).transpose();
        match (level, clients) {
            // Either both settings are valid and applied, or neither is.
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
    Answer::json(&LogSettings {
        level: logger.level().name().to_owned(),
        clients: logger.clients().name().to_owned(),
    })
}

/// Value of a query's parameter. None of the parameters needs percent-decoding.
fn parameter<'a>(query: &'a str, key: &str) -> Option<&'a str> {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(name, _)| *name == key)
        .map(|(_, value)| value)
}
