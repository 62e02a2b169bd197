//! A redirection of datagrams to the agent's sockets: a packet filter's rules and a route, and a
//! control group for the datagrams of one program. All of them are taken away when it is dropped.
//!
//! ```text
//!   program in the control group --- UDP to port 443 --- output: mark --- route: lo
//!     --- prerouting: TPROXY ---> the agent's socket
//!
//!   host behind an interface --- UDP to port 443, by the uplink --- prerouting: TPROXY, mark
//!     --- route: lo ---> the agent's socket
//!
//!   the agent's socket --- answer --- output: the port that was sent to ---> program, or host
//! ```

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueHint};
use packrat_agent::{
    Access, ClientConfig, DontFragment, IdentifierScheme, Service, Target, transparent,
};
use packrat_token_client::gateway_key;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::geteuid;

use crate::agent::read_token;

/// Port whose datagrams are redirected if no port is named: HTTP/3.
const HTTP_PORT: u16 = 443;
/// Bits of packets' marks that are ours; all others stay as they are. Kubernetes has 0xc000,
/// Tailscale 0xff0000.
const MARK_BITS: u32 = 0xff00_0000;
/// The mark of the datagrams of other hosts, and the number of the routing table.
const OF_HOSTS: u32 = 0x6000_0000;
/// The mark of the first of the programs that run at the same time, and the next one's distance.
const OF_PROGRAMS: u32 = 0x5000_0000;
const NEXT_MARK: u32 = 0x0100_0000;
/// Seconds for which a socket of a host counts as used: longer than the agent keeps a socket whose
/// place it may need.
const USED_SECONDS: u32 = 30;
/// Programs that are run at the same time.
const MOST_PROGRAMS: u32 = 16;
/// The first part of the name of a program's control group; the identifier of its `packrat run` follows.
const GROUP_PREFIX: &str = "packrat-run-";
/// Control groups that have a process's number: left by others with that number.
const MOST_GROUPS: u32 = 64;

/// Origin of the redirected datagrams.
pub(crate) enum Whose<'a> {
    /// A program of this host, and its children.
    Program,
    /// Hosts that this one forwards for.
    Hosts {
        /// The interfaces that their datagrams come in on.
        interfaces: &'a [Interface],
        /// The interfaces that their datagrams have to leave by: other networks of the same site are the
        /// firewall's.
        uplinks: &'a [Interface],
        /// The networks that they have to go to; empty: all.
        destinations: &'a [Network],
        /// Sockets of theirs that the agent serves at the same time.
        flows: usize,
    },
}

/// The name of a network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface(String);

impl FromStr for Interface {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_right = |one: char| one.is_ascii_alphanumeric() || "-_.@".contains(one);
        match text.len() {
            1..=15 if text.chars().all(is_right) => Ok(Self(text.to_owned())),
            _ => Err("no interface has that name; `ip link` lists them".to_owned()),
        }
    }
}

impl Interface {
    /// True if there is such an interface now.
    pub(crate) fn exists(&self) -> bool {
        Path::new("/sys/class/net").join(&self.0).exists()
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

/// The interfaces of this host's default routes.
///
/// # Errors
/// A sentence about the tool that is missing.
pub(crate) fn default_uplinks() -> Result<Vec<Interface>, String> {
    let mut uplinks = Vec::new();
    for family in ["-4", "-6"] {
        let mut command = Command::new("ip");
        let routes = run(command.args([family, "route", "show", "default"]), None)?;
        for line in routes.lines() {
            let mut words = line.split(' ').skip_while(|word| *word != "dev");
            if let Some(Ok(name)) = words.nth(1).map(Interface::from_str)
                && !uplinks.contains(&name)
            {
                uplinks.push(name);
            }
        }
    }
    Ok(uplinks)
}

/// A network, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network(IpAddr, u8);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = || "write a network, such as 192.0.2.0/24 or 2001:db8::/32".to_owned();
        let (address, length) =
            text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| fault())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(longest), str::parse).map_err(|_| fault())?;
        if length <= longest { Ok(Self(address, length)) } else { Err(fault()) }
    }
}

/// The agent's ports for datagrams sent to one port.
pub(crate) struct Rules {
    port: u16,
    v4: Option<u16>,
    v6: Option<u16>,
}

/// Which datagrams a command redirects, and the settings of their assistance.
#[derive(Debug, Clone, Args)]
pub(crate) struct Assistance {
    /// Redirect datagrams to this port; repeat it for more [default: 443]
    #[arg(long = "port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    ports: Vec<u16>,
    /// Accept help only from the gateway with this public key (64 hexadecimal digits)
    #[arg(long, value_name = "HEX", value_parser = gateway_key)]
    gateway_key: Option<[u8; 32]>,
    /// Longest time a datagram waits for the repair of an earlier one, in milliseconds
    #[arg(long, value_name = "MS")]
    maximum_hold: Option<u64>,
    /// Read an assist token from this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    assist_token_file: Option<PathBuf>,
}

/// Opens the agent's sockets for datagrams to the ports (HTTP/3's if there are none).
///
/// # Errors
/// A sentence about the token, or the right that is missing.
pub(crate) fn listeners(options: &Assistance) -> Result<(Vec<Service>, Vec<Rules>), String> {
    let mut access = Access::default().with_gateway_key(options.gateway_key);
    if let Some(hold) = options.maximum_hold {
        access.maximum_hold = Duration::from_millis(hold);
    }
    if let Some(path) = &options.assist_token_file {
        access.token = read_token(path)?;
    }
    let config = ClientConfig::from(access).with_scheme(IdentifierScheme::Payload);
    let mut ports = if options.ports.is_empty() { vec![HTTP_PORT] } else { options.ports.clone() };
    ports.sort_unstable();
    ports.dedup();
    let (mut services, mut rules) = (Vec::new(), Vec::new());
    for port in ports {
        let any = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), (Ipv6Addr::LOCALHOST, 0).into()];
        let listen = any.map(|any| {
            // A host without IPv6 has no such datagrams, either.
            let socket = match transparent(any) {
                Err(_) if any.is_ipv6() => return Ok(None),
                socket => socket.map_err(|error| {
                    format!(
                        "cannot take over datagrams: {error}; run it as root, or use packrat agent"
                    )
                })?,
            };
            let listen = socket.local_addr().map_err(|error| error.to_string())?;
            services.push(Service {
                name: format!("port {port}"),
                socket,
                to: Target::Original { port },
                config: config.clone(),
                dont_fragment: DontFragment::default(),
            });
            Ok::<_, String>(Some(listen.port()))
        });
        let [v4, v6] = listen;
        rules.push(Rules { port, v4: v4?, v6: v6? });
    }
    Ok((services, rules))
}

/// A name that one process at a time has, in this network namespace, until it is dropped.
enum Name {
    /// The name is ours.
    Own(UnixListener),
    /// Another process of this user, or of root, has it.
    Taken,
    /// A process that could not redirect anything has it.
    Usurped,
}

impl Name {
    fn take(name: &str) -> std::io::Result<Self> {
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        match UnixListener::bind_addr(&address) {
            Ok(own) => Ok(Self::Own(own)),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                Ok(if is_of_a_stranger(name) { Self::Usurped } else { Self::Taken })
            }
            Err(error) => Err(error),
        }
    }
}

/// True if the process that has a name has fewer rights than this one.
fn is_of_a_stranger(name: &str) -> bool {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let owner = || {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        sockopt::socket_peercred(&socket)
    };
    owner().is_ok_and(|owner: rustix::net::UCred| !owner.uid.is_root() && owner.uid != geteuid())
}

/// A redirection that is in force.
pub(crate) struct Redirection {
    /// The name of the packet filter's table.
    table: String,
    /// The mark of datagrams, and the number of the routing table.
    mark: u32,
    /// The control group of the program, and the file that members are written to.
    group: Option<(PathBuf, PathBuf)>,
    is_over: bool,
    /// Keeps other processes from the same table and mark.
    _name: Option<UnixListener>,
}

impl Redirection {
    /// Sets the rules up, after taking away rules that earlier processes have left behind.
    ///
    /// # Errors
    /// A sentence about the right or the tool that is missing.
    pub(crate) fn set_up(whose: &Whose<'_>, rules: &[Rules]) -> Result<Self, String> {
        let (redirection, text) = match *whose {
            Whose::Program => {
                let mut redirection = Self::of_one_program()?;
                let (root, own) = own_group()?;
                let (path, group) = make_group(&root, &own)?;
                let members = group.join("cgroup.procs");
                // From here on it cleans up behind itself.
                redirection.group = Some((group, members));
                let text = redirection.of_program(rules, path.components().count())?;
                (redirection, text)
            }
            Whose::Hosts { interfaces, uplinks, destinations, flows } => {
                let failed = |error: std::io::Error| format!("cannot start: {error}");
                let name = match Name::take("packrat-router").map_err(failed)? {
                    Name::Own(name) => Some(name),
                    Name::Usurped => None,
                    Name::Taken => {
                        return Err("another packrat router runs here; name all interfaces and ports to one of \
                                    them"
                            .to_owned());
                    }
                };
                let table = "packrat_router".to_owned();
                let redirection =
                    Self { table, mark: OF_HOSTS, group: None, is_over: false, _name: name };
                let text = of_hosts(
                    &redirection.table,
                    redirection.mark,
                    rules,
                    [interfaces, uplinks],
                    destinations,
                    flows,
                );
                (redirection, text)
            }
        };
        redirection.take_away();
        // The routes first: a datagram with the mark and without a route is lost.
        redirection.route("-4")?;
        let text = match redirection.route("-6") {
            Ok(()) => text,
            // A host without IPv6 has no such datagrams, either.
            Err(_) => {
                text.lines().filter(|line| !line.contains("[::1]")).collect::<Vec<_>>().join("\n")
                    + "\n"
            }
        };
        nft(&text).map_err(|error| format!("cannot redirect: {error}"))?;
        Ok(redirection)
    }

    /// The first mark that no other program has. Rules of killed processes at other marks are taken
    /// away.
    fn of_one_program() -> Result<Self, String> {
        let mut first = None;
        // Without the right to look there is none to set up, either.
        let left = run(Command::new("ip").args(["rule", "list"]), None).unwrap_or_default();
        for number in 0..MOST_PROGRAMS {
            let taken = Name::take(&format!("packrat-run-{number}"));
            let Name::Own(name) = taken.map_err(|error| format!("cannot start: {error}"))? else {
                continue;
            };
            let (table, mark) = (format!("packrat_run_{number}"), OF_PROGRAMS + number * NEXT_MARK);
            let own = Self { table, mark, group: None, is_over: false, _name: Some(name) };
            match &first {
                None => first = Some(own),
                Some(_) if left.contains(&own.route_names().0) => drop(own),
                Some(_) => own.forget(),
            }
        }
        first.ok_or_else(|| {
            format!(
                "{MOST_PROGRAMS} programs are run already, or other users keep the names of those \
                 (ss -xl lists packrat-run-0 and so on); use packrat agent"
            )
        })
    }

    /// Drops the redirection without taking its rules away.
    fn forget(mut self) {
        self.is_over = true;
    }

    /// The file that a program's processes are written to.
    pub(crate) fn members(&self) -> Option<&Path> {
        self.group.as_ref().map(|(_, members)| members.as_path())
    }

    /// `level`: the depth of the control group below the root of all.
    fn of_program(&self, rules: &[Rules], level: usize) -> Result<String, String> {
        // nft looks there, wherever control groups version 2 are mounted.
        let group = self.group.as_ref().map(|(group, _)| group.as_path()).unwrap_or(Path::new(""));
        let path = group.strip_prefix("/sys/fs/cgroup").map_err(|_| {
            format!("{} is not below /sys/fs/cgroup; use packrat agent", group.display())
        })?;
        of_program(&self.table, self.mark, rules, level, path)
    }

    /// Ends it: datagrams go their own way again. A program's control group stays.
    pub(crate) fn end(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.take_away();
        }
    }

    /// Takes the rules away; missing rules are no error.
    fn take_away(&self) {
        let _ = nft(&format!("delete table inet {}\n", self.table));
        let (mark, table) = self.route_names();
        for family in ["-4", "-6"] {
            let _ = ip(&[family, "rule", "del", "fwmark", &mark, "lookup", &table]);
            let _ = ip(&[family, "route", "flush", "table", &table]);
        }
    }

    fn route(&self, family: &str) -> Result<(), String> {
        let (mark, table) = self.route_names();
        ip(&[family, "rule", "add", "fwmark", &mark, "lookup", &table])?;
        ip(&[family, "route", "add", "local", "default", "dev", "lo", "table", &table])
    }

    /// The mark of a routing rule, and its table.
    fn route_names(&self) -> (String, String) {
        (format!("{:#x}/{MARK_BITS:#x}", self.mark), self.mark.to_string())
    }
}

impl Drop for Redirection {
    fn drop(&mut self) {
        self.end();
        if let Some((group, _)) = &self.group {
            // A program that has left others behind keeps it.
            let _ = fs::remove_dir(group);
        }
    }
}

/// Removes the groups of processes that were killed. Groups that still have programs stay.
fn remove_left_groups(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(GROUP_PREFIX));
        let id = rest.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if id.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Makes a control group below the own one: its path below the root of all, and its folder.
fn make_group(root: &Path, own: &Path) -> Result<(PathBuf, PathBuf), String> {
    remove_left_groups(&root.join(own));
    let id = std::process::id();
    let mut last = None;
    for number in 0..MOST_GROUPS {
        let path = own.join(match number {
            0 => format!("{GROUP_PREFIX}{id}"),
            _ => format!("{GROUP_PREFIX}{id}-{number}"),
        });
        let group = root.join(&path);
        // One that is empty is left of a process that had this number.
        let _ = fs::remove_dir(&group);
        match fs::create_dir(&group) {
            Ok(()) => return Ok((path, group)),
            // One that is not empty has processes that a program has left behind.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                last = Some((group, error));
            }
            Err(error) => {
                last = Some((group, error));
                break;
            }
        }
    }
    let (group, error) =
        last.map_or_else(Default::default, |(group, error)| (group, error.to_string()));
    Err(format!("cannot make the control group {}: {error}; run it as root", group.display()))
}

/// The mount point of control groups version 2, and the group of this process.
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
fn of_program(
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
fn of_hosts(
    name: &str,
    mark: u32,
    rules: &[Rules],
    ways: [&[Interface]; 2],
    to: &[Network],
    flows: usize,
) -> String {
    let [from, by] = ways.map(|interfaces| {
        let names = interfaces.iter().map(|Interface(name)| format!("\"{name}\""));
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

fn nft(text: &str) -> Result<(), String> {
    run(Command::new("nft").args(["-f", "-"]), Some(text)).map(drop)
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    run(Command::new("ip").args(arguments), None).map(drop)
}

/// Runs a tool of the system, and returns its output, or its error message if it fails.
fn run(command: &mut Command, input: Option<&str>) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let input_kind = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let child = command.stdin(input_kind).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child
        .map_err(|error| format!("cannot run {name}: {error}; install it, or use packrat agent"))?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        // A tool that ends before it has read all prints the reason.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name} refuses: {}; run it as root, or use packrat agent", said.trim()))
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

    #[test]
    fn names_and_networks_from_the_command_line_are_checked() {
        for wrong in ["", "br lan", "\"", "a}", "sixteen-letters-"] {
            assert!(wrong.parse::<Interface>().is_err(), "{wrong}");
        }
        for wrong in ["", "x", "192.0.2.0/33", "192.0.2.0/", "2001:db8::/129", "192.0.2.0/24/1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_is_taken_once_until_it_is_given_back() {
        let name = format!("packrat-test-{}", std::process::id());
        let own = Name::take(&name).unwrap();
        assert!(matches!(own, Name::Own(_)));
        for _ in 0..300 {
            assert!(matches!(Name::take(&name).unwrap(), Name::Taken));
        }
        drop(own);
        // Other tests start programs at the same time: a child has a copy of the socket until it
        // runs its program.
        assert!((0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            matches!(Name::take(&name).unwrap(), Name::Own(_))
        }));
    }
}
