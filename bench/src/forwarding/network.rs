//! Three network namespaces in a row, made for one run: client, gateway, server. The gateway's
//! namespace also forwards packets, so that the path without a gateway's process can be measured.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use crate::Fallible;

/// Addresses of further clients: a gateway does not give all of its room to one.
const MORE_CLIENTS: [&str; 7] =
    ["10.77.1.3", "10.77.1.4", "10.77.1.5", "10.77.1.6", "10.77.1.7", "10.77.1.8", "10.77.1.9"];
/// Address of the client on its link.
const CLIENT_ADDRESS: &str = "10.77.1.2";
/// Address of the gateway on the client's link.
pub(crate) const GATEWAY_ADDRESS: &str = "10.77.1.1";
const GATEWAY_INSIDE: &str = "10.77.2.1";
/// Address of the server on its link.
pub(crate) const SERVER_ADDRESS: &str = "10.77.2.2";

/// Commands that set the group's niceness: if the kernel groups processes by session to share the
/// processors fairly, a process's own niceness counts only within its group. They raise the limit
/// of descriptors: each client has one at both ends.
const PRECEDENCE_COMMANDS: &str =
    "echo -15 2>/dev/null >/proc/self/autogroup; ulimit -n $(ulimit -Hn); exec \"$@\"";

/// Settings of the gateway's namespace, which forwards packets, and has a port for each session.
const NAMESPACE_SETTINGS: &str =
    "cd /proc/sys/net/ipv4 && echo 1 >ip_forward && echo 2048 65535 >ip_local_port_range";

/// A namespace of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Client,
    Gateway,
    Server,
}

/// The namespaces; removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Network {
    prefix: String,
    pinned: bool,
}

impl Network {
    /// Makes the namespaces and links.
    ///
    /// # Errors
    /// Without root, or without `ip` (Debian: iproute2) and `setpriv` (util-linux).
    pub(crate) fn create() -> Fallible<Self> {
        let network = Self {
            prefix: format!("packrat-bench-{}", std::process::id()),
            pinned: crate::machine::processors() > 1 && runs("taskset"),
        };
        if !runs("setpriv") {
            return Err("setpriv is missing (Debian: util-linux)".into());
        }
        network.build()?;
        Ok(network)
    }

    fn build(&self) -> Fallible {
        let [client, gateway, server] =
            [Place::Client, Place::Gateway, Place::Server].map(|at| self.name(at));
        for name in [&client, &gateway, &server] {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        let links = [
            ("client", &client, CLIENT_ADDRESS, GATEWAY_ADDRESS),
            ("server", &server, SERVER_ADDRESS, GATEWAY_INSIDE),
        ];
        for (link, place, address, gateway_address) in links {
            let peer = ["peer", "name", "gateway", "netns", place];
            ip(&[&["-n", &gateway, "link", "add", link, "type", "veth"][..], &peer].concat())?;
            ip(&["-n", &gateway, "address", "add", &format!("{gateway_address}/24"), "dev", link])?;
            ip(&["-n", place, "address", "add", &format!("{address}/24"), "dev", "gateway"])?;
            // A long queue, so that a scheduler's pause of the reader is not a loss.
            ip(&["-n", &gateway, "link", "set", link, "up", "txqueuelen", "10000"])?;
            ip(&["-n", place, "link", "set", "gateway", "up"])?;
            ip(&["-n", place, "route", "add", "default", "via", gateway_address])?;
        }
        for address in MORE_CLIENTS {
            let address = format!("{address}/24");
            ip(&["-n", &client, "address", "add", &address, "dev", "gateway"])?;
        }
        ip(&["netns", "exec", &gateway, "sh", "-c", NAMESPACE_SETTINGS])
    }

    /// The addresses from which clients send.
    pub(crate) fn clients() -> impl Iterator<Item = &'static str> {
        std::iter::once(CLIENT_ADDRESS).chain(MORE_CLIENTS)
    }

    fn name(&self, place: Place) -> String {
        let end = match place {
            Place::Client => "client",
            Place::Gateway => "gateway",
            Place::Server => "server",
        };
        format!("{}-{end}", self.prefix)
    }

    /// A command in this namespace, which ends when this process does. Gateways have the first
    /// processor to themselves, and the peers the others. Both take precedence over the machine's
    /// other load, because a process that waits for a processor works in larger batches.
    pub(crate) fn command(&self, place: Place, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(place), "setpriv", "--pdeathsig", "KILL"]);
        if self.pinned {
            let others = format!("1-{}", crate::machine::processors() - 1);
            command.args(["taskset", "-c", if place == Place::Gateway { "0" } else { &others }]);
        }
        command
            .args(["setsid", "nice", "-n", "-15", "sh", "-c", PRECEDENCE_COMMANDS, "sh"])
            .arg(program);
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for place in [Place::Client, Place::Gateway, Place::Server] {
            // A namespace that was never made cannot be removed, and its error is of no interest.
            let _ = Command::new("ip")
                .args(["netns", "delete", &self.name(place)])
                .stderr(Stdio::null())
                .status();
        }
    }
}

fn runs(program: &str) -> bool {
    let status =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn ip(arguments: &[&str]) -> Fallible {
    let output =
        Command::new("ip").args(arguments).stdin(Stdio::null()).output().map_err(|error| {
            format!("ip does not run ({error}); Debian: apt-get install iproute2")
        })?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {}: {}", arguments.join(" "), reason.trim()).into())
}
