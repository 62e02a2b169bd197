//! Pages over plain HTTP/1 for operators, of a gateway and of an agent: bounded in connections, time
//! and bytes, and safe from pages of other sites in an operator's browser.
//!
//! [`Pages`] serves the answers of a function. [`Request`] is the function's argument;
//! [`Request::objection`] refuses requests that must not change anything.
#![forbid(unsafe_code)]

mod answer;
mod connection;
mod request;
mod server;

pub use answer::Answer;
pub use request::{LONGEST_HEAD, Request};
pub use server::Pages;
