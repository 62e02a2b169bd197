//! ngtcp2's example server (Debian's package), with its BBRv2.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use super::super::error::DemoError;
use super::super::parts::alternative;
use super::super::process::Process;
use super::setup::ServerSetup;

pub(super) async fn start(
    setup: ServerSetup<'_>,
    address: SocketAddr,
    qlogs: &Path,
) -> Result<Process, DemoError> {
    let program = alternative(setup.parts, "ngtcp2/usr/sbin/gtlsserver", "ngtcp2's server")?;
    let mut process =
        Process::start("ngtcp2", &program, &setup.work.join("ngtcp2.log"), |command| {
            command.args(["--quiet", "--cc=bbr2", "--htdocs"]).arg(setup.files);
            command.arg("--qlog-dir").arg(qlogs);
            command.arg(address.ip().to_string()).arg(address.port().to_string());
            command.arg(&setup.certificate.key).arg(&setup.certificate.chain);
            command.env("LD_LIBRARY_PATH", setup.parts.join("alternatives/ngtcp2/usr/lib/packrat"));
        })?;
    // It opens UDP only.
    process.wait_until_ready(|| UdpSocket::bind(address).is_err()).await?;
    Ok(process)
}
