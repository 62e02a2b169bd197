//! The two segments between servers and clients, made of `packrat-e2e path` in the network
//! namespaces of a router and of nodes.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::process::{ChildStdin, ChildStdout, Stdio};

use serde_json::Value;

use crate::command::{Background, Failure, Outcome, Prefix};

/// Table of the routes into a TUN device.
const ROUTE_TABLE: &str = "100";

/// The properties of a segment, the same in both directions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    /// Delay one way, in milliseconds.
    pub(crate) delay: u32,
    /// Transmission rate in Mbit/s.
    pub(crate) rate: u32,
    /// Mean loss, 0 to 1.
    pub(crate) loss: f64,
}

/// The position of a segment in the network.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Runs commands in the network namespace.
    pub(crate) inside: Prefix,
    /// Name of the TUN device there.
    pub(crate) device: &'static str,
    /// `ip rule` selectors of the packets that travel it.
    pub(crate) selectors: Vec<String>,
    /// The network on the clients' side. Its packets travel upward.
    pub(crate) clients: String,
}

/// An inserted segment; removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Impairment {
    place: Place,
    program: Background,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Impairment {
    /// Inserts a segment.
    ///
    /// # Errors
    /// The program cannot open its device, or the rules cannot be set. This needs root.
    pub(crate) fn start(place: Place, segment: Segment, seed: u64) -> Outcome<Self> {
        let own = std::env::current_exe()?;
        let mut child = place
            .inside
            .then([own.to_string_lossy().into_owned()])
            .command([
                "path",
                "--device",
                place.device,
                "--clients",
                &place.clients,
                "--delay",
                &segment.delay.to_string(),
                "--rate",
                &segment.rate.to_string(),
                "--loss",
                &segment.loss.to_string(),
                "--seed",
                &seed.to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(commands), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new("the path program has no pipes"));
        };
        let mut impairment =
            Self { place, program: Background(child), commands, answers: BufReader::new(answers) };
        impairment.answer()?;
        impairment.lead_in()?;
        Ok(impairment)
    }

    /// Changes the loss: mean rate and mean burst length.
    pub(crate) fn set_loss(&mut self, rate: f64, burst: f64) -> Outcome {
        self.tell(&format!("loss {rate} {burst}")).map(drop)
    }

    /// The NAT before the clients forgets its mappings and, with an address, maps the clients to
    /// it.
    pub(crate) fn rebind(&mut self, address: Option<Ipv4Addr>) -> Outcome {
        let address = address.map(|address| address.to_string()).unwrap_or_default();
        self.tell(&format!("rebind {address}")).map(drop)
    }

    /// The NAT before the clients forgets its mappings; each client has an address of its own, which
    /// it keeps, from this one on.
    pub(crate) fn rebind_each(&mut self, first: Ipv4Addr) -> Outcome {
        self.tell(&format!("rebind each {first}")).map(drop)
    }

    /// Packrat's control datagrams that have passed, in both directions.
    pub(crate) fn control_datagrams(&mut self) -> Outcome<u64> {
        let report = self.tell("report")?;
        report["control_datagrams"]
            .as_u64()
            .ok_or_else(|| Failure(format!("an unexpected report: {report}")))
    }

    /// Datagrams that have left later than they were to, and all that have left.
    pub(crate) fn lateness(&mut self) -> Outcome<[u64; 2]> {
        let report = self.tell("report")?;
        let sum = |field: &str| {
            let values = report["lateness"].as_array().into_iter().flatten();
            values.map(|direction| direction[field].as_u64()).sum::<Option<u64>>()
        };
        match (sum("late"), sum("total")) {
            (Some(late), Some(total)) => Ok([late, total]),
            _ => Err(Failure(format!("an unexpected report: {report}"))),
        }
    }

    fn tell(&mut self, command: &str) -> Outcome<Value> {
        writeln!(self.commands, "{command}")?;
        self.answer()
    }

    fn answer(&mut self) -> Outcome<Value> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(Failure(format!("the path program {} has ended", self.place.device)));
        }
        let answer: Value = serde_json::from_str(&line)?;
        match answer["error"].as_str() {
            Some(error) => Err(Failure::new(error)),
            None => Ok(answer),
        }
    }

    /// Routes the selected packets into the device. Packets from the device have passed connection
    /// tracking and address translation before, and a second pass would make another flow of them.
    fn lead_in(&self) -> Outcome {
        let device = self.place.device;
        let mut script = format!(
            "set -e; ip link set {device} up; echo 0 >/proc/sys/net/ipv4/conf/{device}/rp_filter; \
             ip route replace default dev {device} table {ROUTE_TABLE}; \
             nft add table ip {device}; nft 'add chain ip {device} raw {{ type filter hook prerouting priority raw; }}'; \
             nft add rule ip {device} raw iifname {device} notrack; "
        );
        script += &format!("ip rule add iif {device} lookup main priority 90; ");
        for selector in &self.place.selectors {
            script += &format!("ip rule add {selector} lookup {ROUTE_TABLE} priority 100; ");
        }
        self.place.inside.output(["sh", "-c", &script]).map(drop)
    }
}

impl Drop for Impairment {
    fn drop(&mut self) {
        let device = self.place.device;
        let mut script =
            format!("nft delete table ip {device}; ip rule del iif {device} priority 90; ");
        for selector in &self.place.selectors {
            script += &format!("ip rule del {selector} lookup {ROUTE_TABLE} priority 100; ");
        }
        // The namespace may be gone already, with everything in it.
        let _ = self.place.inside.output(["sh", "-c", &script]);
        let _ = self.program.0.kill();
    }
}
