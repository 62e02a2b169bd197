//! Hosts on a switch, in network namespaces without names: they end with this process, however it ends.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A host: a process that ends when its input does, in a network namespace of its own.
struct Host(Child);

impl Host {
    fn new() -> Option<Self> {
        let mut command = Command::new("unshare");
        command.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut host = Self(command.stderr(Stdio::null()).spawn().ok()?);
        // The program sends a byte back once it is in the namespace.
        host.0.stdin.as_mut()?.write_all(b"!").ok()?;
        host.0.stdout.as_mut()?.read_exact(&mut [0]).ok()?;
        Some(host)
    }

    /// A command for it, up to the program.
    fn enter(&self) -> String {
        format!("nsenter --net=/proc/{}/ns/net", self.0.id())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let command = Command::new(words.next().unwrap())
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    command.is_ok_and(|status| status.success())
}

/// Hosts joined by a switch, which is the first of them; removed when it is dropped.
pub(crate) struct Network(Vec<Host>);

impl Network {
    /// A switch that forwards multicast only to members, and this many hosts: host `n` is 10.77.0.n
    /// and fd77::n; host 1 has a second address, 10.77.0.101 and fd77::101. `None`: not possible
    /// here.
    pub(crate) fn new(hosts: usize) -> Option<Self> {
        let network = (0..=hosts).map(|_| Host::new()).collect::<Option<_>>().map(Self);
        if let Some(network) = network.filter(|network| network.set_up().is_some()) {
            return Some(network);
        }
        let hint = "network namespaces with a switch and a packet filter cannot be made here: root, iproute2 and nftables are needed";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{hint}");
        println!("SKIPPED: {hint}");
        None
    }

    fn set_up(&self) -> Option<()> {
        let ip = |host: usize, arguments: &str| {
            run(&format!("{} ip {arguments}", self.0[host].enter())).then_some(())
        };
        ip(
            0,
            "link add bridge type bridge mcast_snooping 1 mcast_querier 1 mcast_igmp_version 3 mcast_mld_version 2",
        )?;
        ip(0, "link set bridge up")?;
        for host in 1..self.0.len() {
            let place = self.0[host].0.id();
            ip(0, &format!("link add port{host} type veth peer name eth0 netns {place}"))?;
            ip(0, &format!("link set port{host} master bridge up"))?;
            ip(host, &format!("address add 10.77.0.{host}/24 dev eth0"))?;
            ip(host, &format!("address add fd77::{host}/64 dev eth0 nodad"))?;
            ip(host, "link set eth0 up")?;
            ip(host, "link set lo up")?;
            // The interface of multicast groups.
            ip(host, "route add 224.0.0.0/4 dev eth0")?;
        }
        ip(1, "address add 10.77.0.101/24 dev eth0")?;
        ip(1, "address add fd77::101/64 dev eth0 nodad")?;
        self.rules(1, "table inet packrat { }").then_some(())
    }

    /// A program on a host; 0 is the switch.
    pub(crate) fn command(&self, host: usize, program: &Path) -> Command {
        let enter = self.0[host].enter();
        let mut words = enter.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).arg(program);
        command
    }

    /// The output of a script that runs on a host.
    pub(crate) fn says(&self, host: usize, script: &str) -> String {
        let output = self.command(host, Path::new("bash")).args(["-c", script]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn rules(&self, host: usize, rules: &str) -> bool {
        let status = self.command(host, Path::new("nft")).arg(rules).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    /// Drops packets that arrive at a host.
    pub(crate) fn lose(&self, host: usize, rule: &str) {
        let rules = format!(
            "table inet loss {{ chain arriving {{ type filter hook input priority 0; {rule}; }}; }}"
        );
        assert!(self.rules(host, &rules), "nftables refuses: {rules}");
    }

    /// Drops packets that the switch gets from a host.
    pub(crate) fn lose_at_the_switch(&self, host: usize, rule: &str) {
        let rules = format!(
            "table netdev loss {{ chain arriving {{ type filter hook ingress device port{host} priority 0; {rule}; }}; }}"
        );
        assert!(self.rules(0, &rules), "nftables refuses: {rules}");
    }
}
