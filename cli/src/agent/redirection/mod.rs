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

mod control_group;
mod filter;
mod name;
mod network;
mod options;
mod tools;

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use control_group::{make_group, own_group};
use filter::{MARK_BITS, Rules, of_hosts, of_program};
use name::Name;
use tools::{ip, nft, run};

pub(super) use network::{Interface, Network, default_uplinks};
pub(super) use options::{RedirectionOptions, listeners};

/// The mark of the datagrams of other hosts, and the number of the routing table.
const OF_HOSTS: u32 = 0x6000_0000;
/// The mark of the first of the programs that run at the same time, and the next one's distance.
const OF_PROGRAMS: u32 = 0x5000_0000;
const NEXT_MARK: u32 = 0x0100_0000;
/// Programs that are run at the same time.
const MOST_PROGRAMS: u32 = 16;
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
