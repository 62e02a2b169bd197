//! The redirection of one program's datagrams: a control group, a packet filter's rules, and a
//! route; all of them are taken away when it is dropped.
//!
//! ```text
//!   program in the control group --- UDP to port 443 --- output: mark --- route: lo
//!     --- prerouting: TPROXY ---> the agent's socket
//! ```

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The ports of the agent's sockets for what a program sends to one port.
pub(super) struct Rules {
    pub(super) port: u16,
    pub(super) v4: Option<u16>,
    pub(super) v6: Option<u16>,
}

/// A redirection that is in force.
pub(super) struct Redirection {
    /// The name of the packet filter's table and of the control group.
    name: String,
    /// The mark of datagrams, and the number of the routing table.
    mark: u32,
    group: PathBuf,
    is_over: bool,
}

impl Redirection {
    pub(super) fn set_up(rules: &[Rules]) -> Result<Self, String> {
        let id = std::process::id();
        let name = format!("packrat-run-{id}");
        let (root, own) = own_group()?;
        let path = own.join(&name);
        let group = root.join(&path);
        // One that is empty is left of a process that had this number.
        let _ = fs::remove_dir(&group);
        fs::create_dir(&group).map_err(|error| {
            format!("cannot make the control group {}: {error}; run it as root", group.display())
        })?;
        // From here on it cleans up behind itself.
        let redirection = Self { name, mark: mark(id), group, is_over: false };
        redirection.take_away();
        redirection.rules(rules, path.components().count())?;
        for family in ["-4", "-6"] {
            let result = redirection.route(family);
            if family == "-4" {
                result?;
            }
        }
        Ok(redirection)
    }

    /// The file that members are written to.
    pub(super) fn members(&self) -> PathBuf {
        self.group.join("cgroup.procs")
    }

    /// `level`: the depth of the control group below the root of all.
    fn rules(&self, rules: &[Rules], level: usize) -> Result<(), String> {
        // nft looks there, wherever control groups version 2 are mounted.
        let path = self.group.strip_prefix("/sys/fs/cgroup").map_err(|_| {
            format!("{} is not below /sys/fs/cgroup; use packrat agent", self.group.display())
        })?;
        let text = filter(&self.table(), self.mark, rules, level, path);
        nft(&text).map_err(|error| format!("cannot redirect: {error}"))
    }

    fn table(&self) -> String {
        self.name.replace('-', "_")
    }

    /// Ends it: the program's datagrams go their own way again. Its control group stays.
    pub(super) fn end(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.take_away();
        }
    }

    /// Takes the rules away; those that are not there need not be.
    fn take_away(&self) {
        let _ = nft(&format!("delete table inet {}\n", self.table()));
        let mark = self.mark.to_string();
        for family in ["-4", "-6"] {
            let _ = ip(&[family, "rule", "del", "fwmark", &mark, "lookup", &mark]);
            let _ = ip(&[family, "route", "flush", "table", &mark]);
        }
    }

    fn route(&self, family: &str) -> Result<(), String> {
        let (mark, table) = (self.mark.to_string(), self.mark.to_string());
        ip(&[family, "rule", "add", "fwmark", &mark, "lookup", &table])?;
        ip(&[family, "route", "add", "local", "default", "dev", "lo", "table", &table])
    }
}

impl Drop for Redirection {
    fn drop(&mut self) {
        self.end();
        // A program that has left others behind keeps it.
        let _ = fs::remove_dir(&self.group);
    }
}

/// The mark of a process's redirection: Linux has no more processes than these bits have numbers.
fn mark(id: u32) -> u32 {
    0x5000_0000 | (id & 0x003f_ffff)
}

/// Where control groups version 2 are mounted, and the one that this process is in.
fn own_group() -> Result<(PathBuf, PathBuf), String> {
    let hint = "control groups version 2 are not mounted; use packrat agent";
    let read = |file: &str| fs::read_to_string(file).map_err(|error| format!("{hint} ({error})"));
    let mounts = read("/proc/self/mounts")?;
    let root = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (_, place, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(place))
    });
    let groups = read("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).map(PathBuf::from);
    root.zip(own).ok_or_else(|| hint.to_owned())
}

/// The packet filter's table, for nft.
fn filter(name: &str, mark: u32, rules: &[Rules], level: usize, path: &Path) -> String {
    let path = path.display();
    let (mut output, mut prerouting) = (String::new(), String::new());
    for Rules { port, v4, v6 } in rules {
        for (family, address, own) in [("ip", "127.0.0.1", v4), ("ip6", "[::1]", v6)] {
            let Some(own) = own else { continue };
            let protocol = if family == "ip" { "ipv4" } else { "ipv6" };
            let these = format!("meta nfproto {protocol} udp dport {port}");
            output += &format!(
                "    {these} fib daddr type unicast socket cgroupv2 level {level} \"{path}\" meta mark set {mark}\n"
            );
            prerouting += &format!(
                "    meta mark {mark} {these} tproxy {family} to {address}:{own} accept\n"
            );
        }
    }
    format!(
        "table inet {name} {{\n  chain output {{\n    type route hook output priority mangle\n{output}  }}\n  \
         chain prerouting {{\n    type filter hook prerouting priority mangle\n{prerouting}  }}\n}}\n"
    )
}

fn nft(text: &str) -> Result<(), String> {
    run(Command::new("nft").args(["-f", "-"]), Some(text))
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    run(Command::new("ip").args(arguments), None)
}

/// Runs a tool of the system; its own words if it fails.
fn run(command: &mut Command, input: Option<&str>) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let input_kind = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let child = command.stdin(input_kind).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = child
        .map_err(|error| format!("cannot run {name}: {error}; install it, or use packrat agent"))?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        // A tool that ends before it has read all says why.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name} refuses: {}; run it as root, or use packrat agent", said.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_takes_the_ports_of_the_group_and_nothing_else() {
        let rules = [
            Rules { port: 443, v4: Some(5000), v6: Some(5001) },
            Rules { port: 9, v4: Some(5002), v6: None },
        ];
        let text = filter("packrat_run_7", 77, &rules, 2, Path::new("unified/user/packrat-run-7"));
        assert_eq!(
            text.matches("socket cgroupv2 level 2 \"unified/user/packrat-run-7\" meta mark set 77")
                .count(),
            3
        );
        assert!(text.contains(
            "meta mark 77 meta nfproto ipv4 udp dport 443 tproxy ip to 127.0.0.1:5000 accept"
        ));
        assert!(text.contains("udp dport 443 tproxy ip6 to [::1]:5001"));
        assert!(!text.contains("nfproto ipv6 udp dport 9"));
        // Multicast and broadcast have no one answer, and the agent forwards none.
        assert_eq!(text.matches("fib daddr type unicast").count(), 3);
    }

    #[test]
    fn processes_have_marks_of_their_own() {
        let most = 1 << 22;
        assert_ne!(mark(7), mark(7 + 65_536));
        assert_ne!(mark(1), mark(most - 1));
    }
}
