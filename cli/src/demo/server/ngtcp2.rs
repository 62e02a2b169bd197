//! ngtcp2's example server (Debian's package), with its BBRv2.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use super::super::error::DemoError;
use super::super::process::Process;
use super::ServerSetup;

pub(super) async fn start(
    setup: ServerSetup<'_>,
    address: SocketAddr,
    qlogs: &Path,
) -> Result<Process, DemoError> {
    let root = setup.parts.join("alternatives/ngtcp2/usr");
    let program = root.join("sbin/gtlsserver");
    if !program.is_file() {
        return Err(DemoError::AlternativeMissing { what: "ngtcp2's server", path: program });
    }
    let mut process =
        Process::start("ngtcp2", &program, &setup.work.join("ngtcp2.log"), |command| {
            command.args(["--quiet", "--cc=bbr2", "--htdocs"]).arg(setup.files);
            command.arg("--qlog-dir").arg(qlogs);
            command.arg(address.ip().to_string()).arg(address.port().to_string());
            command.arg(&setup.certificate.key).arg(&setup.certificate.chain);
            command.env("LD_LIBRARY_PATH", root.join("lib/packrat"));
        })?;
    // It opens UDP only.
    process.wait_until_ready(|| UdpSocket::bind(address).is_err()).await?;
    Ok(process)
}
