//! The packet filter's tables.

use std::path::Path;

use super::network::{Interface, Network};

/// Bits of packets' marks that are ours; all others stay as they are. Kubernetes has 0xc000,
/// Tailscale 0xff0000.
pub(super) const MARK_BITS: u32 = 0xff00_0000;
/// Seconds for which a socket of a host counts as used: longer than the agent keeps a socket whose
/// place it may need.
const USED_SECONDS: u32 = 30;

/// The agent's ports for datagrams sent to one port.
pub(crate) struct Rules {
    pub(super) port: u16,
    pub(super) v4: Option<u16>,
    pub(super) v6: Option<u16>,
}

/// The rule for answers of the agent's socket at port `own`: they do not come from this host, and
/// get the port that the programs send to before anything tracks them.
fn answer(own: &u16, port: u16) -> String {
    format!("udp sport {own} fib saddr type != local udp sport set {port}")
}

/// Sets our bits of a packet's mark.
fn set_mark(mark: u32) -> String {
    format!("meta mark set meta mark & {:#x} | {mark:#x}", !MARK_BITS)
}

/// Excludes addresses of one link: they mean nothing without its interface.
fn off_one_link(family: &str) -> &'static str {
    if family == "ip6" { " ip6 daddr != fe80::/10" } else { "" }
}

/// The packet filter's table for the members of a control group.
pub(super) fn of_program(
    name: &str,
    mark: u32,
    rules: &[Rules],
    level: usize,
    path: &Path,
) -> Result<String, String> {
    // nft cannot escape a quotation mark: the text behind one would be read as rules.
    let is_text =
        |text: &&str| !text.contains(|character: char| character == '"' || character.is_control());
    let path = path.to_str().filter(is_text).ok_or_else(|| {
        format!(
            "the name of the control group {path:?} has characters that nft does not take; start packrat run in another group, or use packrat agent"
        )
    })?;
    let (mut answers, mut output, mut prerouting) = (String::new(), String::new(), String::new());
    for Rules { port, v4, v6 } in rules {
        for (family, address, own) in [("ip", "127.0.0.1", v4), ("ip6", "[::1]", v6)] {
            let Some(own) = own else { continue };
            let protocol = if family == "ip" { "ipv4" } else { "ipv6" };
            let these = format!("meta nfproto {protocol} udp dport {port}{}", off_one_link(family));
            answers += &format!("    meta nfproto {protocol} {}\n", answer(own, *port));
            output += &format!(
                "    {these} fib daddr type unicast socket cgroupv2 level {level} \"{path}\" {}\n",
                set_mark(mark)
            );
            prerouting += &format!(
                "    meta mark & {MARK_BITS:#x} == {mark:#x} {these} tproxy {family} to {address}:{own} accept\n"
            );
        }
    }
    Ok(format!(
        "table inet {name} {{\n  chain answers {{\n    type filter hook output priority raw\n{answers}  }}\n  \
         chain output {{\n    type route hook output priority mangle\n{output}  }}\n  \
         chain prerouting {{\n    type filter hook prerouting priority mangle\n{prerouting}  }}\n}}\n"
    ))
}

/// The packet filter's table for hosts that this one forwards for. `ways`: interfaces that their
/// datagrams come in on, and that they leave by. `flows`: sockets of theirs that are served at the
/// same time; while there are as many, further sockets' datagrams are forwarded as they would be
/// without a redirection.
///
/// TPROXY comes before the mark: without a socket of the agent the rule ends there, and the datagram
/// is forwarded as it would be without a redirection. Neither it nor the answer is tracked, so that the
/// system gives the connection an address of its own when the agent has gone.
pub(super) fn of_hosts(
    name: &str,
    mark: u32,
    rules: &[Rules],
    ways: [&[Interface]; 2],
    to: &[Network],
    flows: usize,
) -> String {
    let [from, by] = ways.map(|interfaces| {
        let names = interfaces.iter().map(|interface| format!("\"{}\"", interface.name()));
        names.collect::<Vec<_>>().join(", ")
    });
    let of_family = |is_v4: bool, word: &str| {
        let networks = to.iter().filter(|Network(address, _)| address.is_ipv4() == is_v4);
        let networks: Vec<_> =
            networks.map(|Network(address, length)| format!("{address}/{length}")).collect();
        match (networks.is_empty(), to.is_empty()) {
            (true, true) => Some(String::new()),
            (true, false) => None,
            (false, _) => Some(format!("{word} daddr {{ {} }} ", networks.join(", "))),
        }
    };
    let (mut sets, mut prerouting, mut output) = (String::new(), String::new(), String::new());
    for (set, kind) in [("flows_ip", "ipv4_addr"), ("flows_ip6", "ipv6_addr")] {
        sets += &format!(
            "  set {set} {{\n    type {kind} . inet_service . {kind} . inet_service\n    \
             flags dynamic, timeout\n    size {}\n    timeout {USED_SECONDS}s\n  }}\n",
            (flows / 2).max(1)
        );
    }
    for Rules { port, v4, v6 } in rules {
        let families = [("ip", "ipv4", "127.0.0.1", v4), ("ip6", "ipv6", "[::1]", v6)];
        for (family, protocol, address, own) in families {
            let (Some(own), Some(to)) = (own, of_family(family == "ip", family)) else { continue };
            prerouting += &format!(
                "    iifname {{ {from} }} meta nfproto {protocol} udp dport {port}{} {to}fib daddr type unicast \
                 fib daddr oifname {{ {by} }} \
                 update @flows_{family} {{ {family} saddr . udp sport . {family} daddr . udp dport }} \
                 tproxy {family} to {address}:{own} {} notrack accept\n",
                off_one_link(family),
                set_mark(mark)
            );
            let answer = answer(own, *port);
            output +=
                &format!("    oifname {{ {from} }} meta nfproto {protocol} {answer} notrack\n");
        }
    }
    format!(
        "table inet {name} {{\n{sets}  chain prerouting {{\n    type filter hook prerouting priority raw\n{prerouting}  }}\n  \
         chain output {{\n    type filter hook output priority raw\n{output}  }}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn the_filter_takes_the_ports_of_the_group_and_nothing_else() {
        let rules = [
            Rules { port: 443, v4: Some(5000), v6: Some(5001) },
            Rules { port: 9, v4: Some(5002), v6: None },
        ];
        let of_group = |path: &str| of_program("packrat_run_7", 77, &rules, 2, Path::new(path));
        let text = of_group("unified/user/packrat-run-7").unwrap();
        assert_eq!(
            text.matches("socket cgroupv2 level 2 \"unified/user/packrat-run-7\" meta mark set meta mark & 0xffffff | 0x4d\n")
                .count(),
            3
        );
        assert!(text.contains(
            "meta mark & 0xff000000 == 0x4d meta nfproto ipv4 udp dport 443 tproxy ip to 127.0.0.1:5000 accept"
        ));
        assert!(text.contains("udp dport 443 ip6 daddr != fe80::/10 tproxy ip6 to [::1]:5001"));
        assert!(text.contains("ipv4 udp sport 5002 fib saddr type != local udp sport set 9\n"));
        assert!(!text.contains("nfproto ipv6 udp dport 9"));
        // Multicast and broadcast have no one answer, and the agent forwards none.
        assert_eq!(text.matches("fib daddr type unicast").count(), 3);
    }

    /// A user names groups below their own, and root starts a program there.
    #[test]
    fn the_name_of_a_control_group_adds_no_rules() {
        let rules = [Rules { port: 443, v4: Some(5000), v6: Some(5001) }];
        let of_group = |path: &OsStr| of_program("packrat_run_7", 77, &rules, 2, Path::new(path));
        for name in ["user/a\" accept; }", "user/a\n}", "user/\u{7f}"] {
            let error = of_group(OsStr::new(name)).unwrap_err();
            assert!(error.contains("packrat agent"), "{error}");
        }
        assert!(of_group(OsStr::from_bytes(b"user/\xff")).is_err());
        assert!(
            of_group(OsStr::new("user/a b{};#\\$x/ü")).unwrap().contains("\"user/a b{};#\\$x/ü\"")
        );
    }

    /// Traffic of other hosts is redirected only if it enters at their interface and leaves the
    /// site.
    #[test]
    fn other_hosts_datagrams_are_redirected_only_if_they_leave() {
        let rules = [Rules { port: 443, v4: Some(5000), v6: Some(5001) }];
        let from = ["br-lan".parse().unwrap(), "wlan0.7".parse().unwrap()];
        let by = ["wan".parse().unwrap()];
        let text = of_hosts("packrat_router", 77, &rules, [&from, &by], &[], 1000);
        assert_eq!(text.matches("iifname { \"br-lan\", \"wlan0.7\" } meta nfproto").count(), 2);
        assert_eq!(text.matches("fib daddr type unicast fib daddr oifname { \"wan\" }").count(), 2);
        // No socket, no mark: a datagram of a host must not be lost with the agent.
        let mark = "meta mark set meta mark & 0xffffff | 0x4d notrack accept";
        assert!(text.contains(&format!("tproxy ip to 127.0.0.1:5000 {mark}")));
        assert!(text.contains(&format!("tproxy ip6 to [::1]:5001 {mark}")));
        assert_eq!(text.matches("size 500\n").count(), 2);
        assert!(
            text.contains("ipv6 udp sport 5001 fib saddr type != local udp sport set 443 notrack")
        );
        let to = ["192.0.2.0/24".parse().unwrap(), "198.51.100.7".parse().unwrap()];
        let text = of_hosts("packrat_router", 77, &rules, [&from, &by], &to, 1000);
        assert!(text.contains("ip daddr { 192.0.2.0/24, 198.51.100.7/32 } fib"));
        assert!(!text.contains("tproxy ip6"));
    }
}
