//! aioquic with its own Reno, served by a few lines of Python around its public interface.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use super::super::error::DemoError;
use super::super::parts::python;
use super::super::process::Process;
use super::setup::ServerSetup;

/// Script of the server.
const SERVER_SCRIPT: &str = include_str!("aioquic_server.py");

pub(super) async fn start(
    setup: ServerSetup<'_>,
    address: SocketAddr,
    qlogs: &Path,
) -> Result<Process, DemoError> {
    let program = python(setup.parts, "venv", "the Python environment with aioquic")?;
    let script = setup.work.join("aioquic_server.py");
    fs::write(&script, SERVER_SCRIPT).map_err(|error| DemoError::write(&script, error))?;
    let ready = setup.work.join("aioquic.ready");
    let mut process =
        Process::start("aioquic", &program, &setup.work.join("aioquic.log"), |command| {
            command.arg(&script);
            command.arg("--host").arg(address.ip().to_string());
            command.arg("--port").arg(address.port().to_string());
            command.arg("--certificate").arg(&setup.certificate.chain);
            command.arg("--key").arg(&setup.certificate.key);
            command.arg("--files").arg(setup.files);
            command.arg("--uploads").arg(setup.uploads);
            command.arg("--qlog").arg(qlogs.join("server.qlog"));
            command.arg("--ready").arg(&ready);
        })?;
    process.wait_until_ready(|| ready.exists()).await?;
    Ok(process)
}
