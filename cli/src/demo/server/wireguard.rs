//! The sender's end of a WireGuard tunnel, with a web server inside.

use std::net::SocketAddr;

use super::super::both_ends::{WIREGUARD_SCRIPT, wireguard_keys};
use super::super::error::DemoError;
use super::super::parts::{python, wireguard_go};
use super::super::process::Process;
use super::setup::ServerSetup;

pub(super) async fn start(
    setup: ServerSetup<'_>,
    address: SocketAddr,
) -> Result<Process, DemoError> {
    let python = python(setup.parts, "venv", "the Python environment of the demo")?;
    let tunnel = wireguard_go(setup.parts)?;
    let ready = setup.work.join("wireguard.ready");
    let mut process =
        Process::start("WireGuard", &python, &setup.work.join("wireguard.log"), |command| {
            command
                .args(["-c", WIREGUARD_SCRIPT, "serve"])
                .arg(tunnel)
                .arg(wireguard_keys(setup.work));
            command.arg(address.port().to_string()).arg(setup.files).arg(&ready);
        })?;
    process.wait_until_ready(|| ready.exists()).await?;
    Ok(process)
}
