//! The sender of a WebRTC video.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use super::super::both_ends::{Signalling, WEBRTC_SCRIPT};
use super::super::error::DemoError;
use super::super::parts::python;
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
    let port = fs::read_to_string(&ready).map_err(|error| DemoError::read(&ready, error))?;
    let port = port.trim().parse().map_err(|_| {
        DemoError::Transfer(format!("aiortc's port is no number: {:?}", port.trim()))
    })?;
    Ok((process, SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}
