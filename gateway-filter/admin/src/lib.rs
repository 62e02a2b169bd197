//! A gateway's status over HTTP, the same in Envoy and standalone.
//!
//! | path | what |
//! |---|---|
//! | `/packrat` | version, routes with their configuration, listeners and metrics, as JSON |
//! | `/packrat/sessions?limit=100` | live sessions of all routes, those first that have carried most, as JSON |
//! | `/packrat/clients` | the clients of the requesting server, with the addresses that it sees in their place, as JSON; `?upstream=IP:PORT`: that one |
//! | `/packrat/events?after=0&limit=200` | the last log lines, as JSON; `newest` is the value of `after` for the next request |
//! | `/packrat/events?session=7&seconds=30&after=0` | the events within one session, observed for this time from now, as JSON |
//! | `/packrat/log` | how the log is written; `POST /packrat/log?level=debug&clients=shown` changes it |
//! | `/packrat/overview` | the page for people: HTML and SVG, no other asset |
//!
//! [`answer()`] makes every answer, without a socket. [`Server`] serves them over plain HTTP, with
//! `/metrics`, and with `/` for the page; it takes a change only with a header that no page of
//! another site can send. Envoy's module also answers these paths on Envoy's
//! administration port, except for the page, which does not display there (Envoy declares all
//! answers of modules as plain text).
#![forbid(unsafe_code)]

mod answer;
#[cfg(any(test, fuzzing))]
mod fuzz_corpus;
mod history;
mod page;
mod server;
mod status;

pub use answer::{ANSWERED_PATHS, answer};
#[cfg(fuzzing)]
pub use fuzz_corpus::admin_requests;
pub use history::History;
pub use packrat_pages::Answer;
pub use server::Server;
