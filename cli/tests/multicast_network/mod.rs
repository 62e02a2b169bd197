//! Hosts on a switch, in network namespaces.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

static NETWORKS: AtomicU32 = AtomicU32::new(0);

fn run(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let command = Command::new(words.next().unwrap())
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    command.is_ok_and(|status| status.success())
}

/// Namespaces joined by a switch in the first of them; removed when it is dropped.
pub(crate) struct Network {
    names: Vec<String>,
}

impl Network {
    /// A switch that forwards multicast only to members, and this many hosts: host `n` is 10.77.0.n
    /// and fd77::n; host 1 has a second address, 10.77.0.101 and fd77::101. `None`: not possible
    /// here.
    pub(crate) fn new(hosts: usize) -> Option<Self> {
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("packrat-{}-{number}", std::process::id());
        let network =
            Self { names: (0..=hosts).map(|index| format!("{prefix}-{index}")).collect() };
        let switch = network.names[0].clone();
        let made = network.names.iter().all(|name| run(&format!("ip netns add {name}")))
            && run(&format!(
                "ip -n {switch} link add bridge type bridge mcast_snooping 1 mcast_querier 1 mcast_igmp_version 3 mcast_mld_version 2"
            ))
            && run(&format!("ip -n {switch} link set bridge up"))
            && (1..=hosts).all(|host| {
                let name = &network.names[host];
                run(&format!("ip -n {switch} link add port{host} type veth peer name eth0 netns {name}"))
                    && run(&format!("ip -n {switch} link set port{host} master bridge up"))
                    && run(&format!("ip -n {name} address add 10.77.0.{host}/24 dev eth0"))
                    && run(&format!("ip -n {name} address add fd77::{host}/64 dev eth0 nodad"))
                    && run(&format!("ip -n {name} link set eth0 up"))
                    && run(&format!("ip -n {name} link set lo up"))
                    // The interface of multicast groups.
                    && run(&format!("ip -n {name} route add 224.0.0.0/4 dev eth0"))
            })
            && run(&format!("ip -n {prefix}-1 address add 10.77.0.101/24 dev eth0"))
            && run(&format!("ip -n {prefix}-1 address add fd77::101/64 dev eth0 nodad"))
            && network.rules(1, "table inet packrat { }");
        if made {
            return Some(network);
        }
        let hint = "network namespaces with a switch and a packet filter cannot be made here: root, iproute2 and nftables are needed";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{hint}");
        println!("SKIPPED: {hint}");
        None
    }

    /// A program on a host; 0 is the switch.
    pub(crate) fn command(&self, host: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host]]).arg(program);
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

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            run(&format!("ip netns delete {name}"));
        }
    }
}
