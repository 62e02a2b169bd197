//! Caddy: quic-go, with its default congestion control (Reno).

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use super::super::error::DemoError;
use super::super::parts::part;
use super::super::process::Process;
use super::setup::ServerSetup;

pub(super) async fn start(
    setup: ServerSetup<'_>,
    address: SocketAddr,
    qlogs: &Path,
    behind: Option<SocketAddr>,
) -> Result<Process, DemoError> {
    let program = part(setup.parts, "bin/caddy", "Caddy")?;
    let configuration = setup.work.join("Caddyfile");
    fs::write(&configuration, caddyfile(setup, address, behind))
        .map_err(|error| DemoError::write(&configuration, error))?;
    let mut process =
        Process::start("Caddy", &program, &setup.work.join("caddy.log"), |command| {
            command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&configuration);
            command.env("QLOGDIR", qlogs);
            // Caddy keeps its state in the home directory, and must not leave it there.
            command.env("XDG_DATA_HOME", setup.work.join("caddy-data"));
            command.env("XDG_CONFIG_HOME", setup.work.join("caddy-config"));
        })?;
    // TCP and UDP are opened together.
    process
        .wait_until_ready(|| {
            TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
        })
        .await?;
    Ok(process)
}

/// `behind`: the program that gets the uploads.
fn caddyfile(setup: ServerSetup<'_>, address: SocketAddr, behind: Option<SocketAddr>) -> String {
    let (ip, port) = (address.ip(), address.port());
    let (chain, key) = (setup.certificate.chain.display(), setup.certificate.key.display());
    let files = setup.files.display();
    let uploads = behind.map_or(String::new(), |behind| {
        format!("\n    @uploads method PUT\n    reverse_proxy @uploads {behind}")
    });
    format!(
        r#"{{
    admin off
    auto_https off
    persist_config off
    default_sni localhost
    grace_period 1s
    log {{
        level WARN
    }}
}}
https://localhost:{port}, https://{ip}:{port} {{
    bind {ip}
    tls "{chain}" "{key}"
    root * "{files}"{uploads}
    file_server
}}
"#
    )
}
