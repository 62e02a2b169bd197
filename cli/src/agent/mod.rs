//! `packrat agent`, and agents that take datagrams over without their senders' knowledge:
//! `packrat run` and `packrat router`.

mod command;
mod limits;
mod options;
mod pages;
mod plan;
#[cfg(target_os = "linux")]
mod redirection;
#[cfg(target_os = "linux")]
pub(crate) mod router;
#[cfg(target_os = "linux")]
pub(crate) mod run;
#[cfg(target_os = "linux")]
mod summary;

pub(crate) use command::run;
pub(crate) use options::AgentOptions;
