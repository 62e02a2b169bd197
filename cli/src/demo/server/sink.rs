//! The program behind Caddy that keeps uploads, as a web application would.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use super::super::error::DemoError;
use super::super::parts::python;
use super::super::process::Process;
use super::setup::ServerSetup;

/// Script of the server that takes uploads.
const SINK_SCRIPT: &str = include_str!("upload_sink.py");

/// Starts it; returns it with its address.
pub(super) async fn start(setup: ServerSetup<'_>) -> Result<(Process, SocketAddr), DemoError> {
    let program = python(setup.parts, "venv", "the Python environment")?;
    let script = setup.work.join("upload_sink.py");
    fs::write(&script, SINK_SCRIPT).map_err(|error| DemoError::write(&script, error))?;
    let ready = setup.work.join("upload_sink.port");
    let log = setup.work.join("upload_sink.log");
    let mut process =
        Process::start("the program that keeps uploads", &program, &log, |command| {
            command.arg(&script);
            command.arg("--files").arg(setup.uploads);
            command.arg("--ready").arg(&ready);
        })?;
    process.wait_until_ready(|| ready.exists()).await?;
    let port = fs::read_to_string(&ready).map_err(|error| DemoError::read(&ready, error))?;
    let port = port.trim().parse().map_err(|_| {
        DemoError::read(&ready, std::io::Error::other(format!("{port:?} is not a port")))
    })?;
    Ok((process, (Ipv4Addr::LOCALHOST, port).into()))
}
