//! What a gateway tells about itself over HTTP, the same in Envoy and standalone.
//!
//! | path | what |
//! |---|---|
//! | `/packrat` | version, routes with their configuration, listeners and metrics, as JSON |
//! | `/packrat/sessions?limit=100` | live sessions of all routes, those first that have carried most, as JSON |
//! | `/packrat/events?after=0&limit=200` | the last log lines, as JSON; `newest` is what to pass as `after` the next time |
//! | `/packrat/log` | how the log is written; `POST /packrat/log?level=debug&clients=shown` changes it |
//! | `/packrat/overview` | the page for people: HTML and SVG, no other asset |
//!
//! [`answer()`] is the whole of it, without a socket. [`Server`] serves it over plain HTTP, with `/metrics` and with `/` for the page;
//! Envoy's module also answers these paths on Envoy's administration port, where everything but the page is of use (Envoy
//! declares all answers of modules as plain text).
#![forbid(unsafe_code)]

mod answer;
mod history;
mod page;
mod server;
mod status;

pub use answer::{Answer, PATHS, answer};
pub use history::History;
pub use server::Server;
