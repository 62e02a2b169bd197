//! The senders of a WebRTC video.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use super::super::both_ends::{Signalling, WEBRTC_SCRIPT, media_server_ports};
use super::super::error::DemoError;
use super::super::parts::{part, python};
use super::super::process::Process;
use super::setup::ServerSetup;

/// Starts it. It chooses its port itself.
pub(super) async fn start(setup: ServerSetup<'_>) -> Result<(Process, SocketAddr), DemoError> {
    let python = python(setup.parts, "webrtc", "the Python environment with aiortc")?;
    let ready = setup.work.join("webrtc.port");
    let signalling = Signalling::new(setup.work);
    let mut process =
        Process::start("aiortc", &python, &setup.work.join("webrtc.log"), |command| {
            command
                .args(["-c", WEBRTC_SCRIPT, "send"])
                .arg(&signalling.offer)
                .arg(&signalling.answer);
            command.arg(&ready);
        })?;
    process.wait_until_ready(|| ready.exists()).await?;
    Ok((process, address("aiortc", &ready)?))
}

/// Starts a server that forwards one page's video to another page. It chooses its ports itself.
pub(super) async fn forward(setup: ServerSetup<'_>) -> Result<(Process, SocketAddr), DemoError> {
    let program = part(setup.parts, "go-clients/sfu", "the media server")?;
    let ready = media_server_ports(setup.work);
    let log = setup.work.join("media-server.log");
    let mut process = Process::start("pion", &program, &log, |command| {
        command.arg(&ready);
    })?;
    process.wait_until_ready(|| ready.exists()).await?;
    Ok((process, address("pion", &ready)?))
}

/// The address of a server whose port stands first in a file.
fn address(name: &str, ready: &Path) -> Result<SocketAddr, DemoError> {
    let ports = fs::read_to_string(ready).map_err(|error| DemoError::read(ready, error))?;
    let port = ports.split_whitespace().next().and_then(|port| port.parse::<u16>().ok());
    let port =
        port.ok_or_else(|| DemoError::Transfer(format!("{name}'s port is no number: {ports:?}")))?;
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}
