//! `packrat run` and `packrat router` on a host of its own: programs without support for Packrat
//! are assisted, and no trace is left behind.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, PipeWriter, Read, Seek, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use packrat_dataplane::log::Silent;
use packrat_dataplane::socket::{bind_reuse_port, local_address};
use packrat_dataplane::{Dataplane, Options, RouteConfig};

/// Exchanges datagrams for two seconds, from a connected socket, which takes answers from the
/// address that it sends to only. A datagram may come twice, as on every network: if the host is
/// busy, it was repaired and not lost.
const PROGRAM: &str = "
import socket, sys, time
host, port = sys.argv[1], int(sys.argv[2])
one = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_DGRAM)
one.connect((host, port))
one.settimeout(20)
for number in range(20):
    one.send(b'%d' % number)
    answer = one.recv(2000)
    while number and answer == b'%d' % (number - 1):
        answer = one.recv(2000)
    assert answer == b'%d' % number, (number, answer)
    time.sleep(0.1)
sys.exit(42)
";

/// Runs a program to its end: its identifier, and its output.
fn packrat(arguments: &[&str]) -> (u32, Output) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packrat"));
    command.arg("run").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    (child.id(), child.wait_with_output().unwrap())
}

fn words(command: &str) -> String {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// A pipe whose reader has gone away.
fn closed_pipe() -> PipeWriter {
    std::io::pipe().unwrap().1
}

/// The control group of this `packrat run`, if there is one. Others may run at the same time.
fn group(id: u32) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).unwrap();
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap().to_owned();
    let folder = format!("{}{own}", mount.split(' ').nth(1).unwrap());
    let mut groups = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = format!("packrat-run-{id}");
    groups.find(|group| {
        let rest = group.file_name().unwrap().to_str().unwrap().strip_prefix(&name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

/// Does once everything that a redirection needs: a control group, rules that name it, and a route.
const PROBE: &str = r#"
python3 -c ''
ip link set lo up
ip link add v0 type veth peer name v1
mount=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/self/mounts)
own=$(sed -n 's/^0:://p' /proc/self/cgroup)
group="${own%/}/packrat-probe-$$"
level=$(printf %s "$group" | tr -cd / | wc -c)
mkdir "$mount$group"
trap 'rmdir "$mount$group"' EXIT
path="$mount$group"
nft -f - <<END
table inet probe {
  chain output {
    type route hook output priority mangle
    fib daddr type unicast socket cgroupv2 level $level "${path#/sys/fs/cgroup/}" meta mark set 1
  }
  chain prerouting {
    type filter hook prerouting priority mangle
    meta mark 1 meta nfproto ipv4 udp dport 9 tproxy ip to 127.0.0.1:9 accept
  }
}
END
nft -f - <<END
table inet nat {
  chain postrouting {
    type nat hook postrouting priority srcnat
    oifname "v0" masquerade
  }
}
END
test -w /proc/sys/net/ipv4/ip_forward
nsenter --version >/dev/null
ip rule add fwmark 1 lookup 77
ip route add local default dev lo table 77
"#;

/// True if a host of its own can be made here, with everything that a redirection needs.
fn is_possible() -> bool {
    let possible = Command::new("unshare").args(["--net", "sh", "-ec", PROBE]).output();
    let possible = possible.is_ok_and(|output| output.status.success());
    let hint = "a redirection needs root, nftables, iproute2, python3 and control groups version 2";
    assert!(possible || std::env::var("CI").as_deref() != Ok("true"), "{hint}");
    if !possible {
        println!("SKIPPED: {hint}");
    }
    possible
}

#[test]
fn an_unaware_program_is_assisted_and_no_rules_are_left_behind() {
    if !is_possible() {
        return;
    }
    on_a_host_of_its_own("inside");
}

/// Hosts behind a router are assisted without their knowledge, and lose nothing when assistance
/// ends.
#[test]
fn unaware_hosts_behind_a_router_are_assisted_without_losses() {
    if !is_possible() {
        return;
    }
    on_a_host_of_its_own("inside_a_router");
}

/// Runs another test there.
fn on_a_host_of_its_own(test: &str) {
    let own = std::env::current_exe().unwrap();
    // Not a pipe, which would end only with the last process of a test that fails.
    let mut output = tempfile::tempfile().unwrap();
    let mut inside = Command::new("unshare");
    inside.arg("--net").arg(own);
    inside.args(["--exact", &format!("run::{test}"), "--ignored", "--nocapture"]);
    inside.stdout(output.try_clone().unwrap()).stderr(output.try_clone().unwrap());
    let status = inside.status().unwrap();
    output.rewind().unwrap();
    let said = std::io::read_to_string(output).unwrap();
    assert!(status.success() && said.contains("1 passed"), "{said}");
}

/// Executes a line, with its words as arguments.
fn done(line: &str) {
    let mut words = line.split(' ');
    let status = Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(status.success(), "{line}");
}

/// A process; killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "the far host, which another test makes: a gateway, and a server that sends back"]
fn far() {
    let begun = Instant::now();
    while !words("ip link").contains("v1") {
        assert!(begun.elapsed() < Duration::from_secs(60), "there is no link");
        std::thread::sleep(Duration::from_millis(20));
    }
    done("ip link set lo up");
    done("ip address add 10.77.0.2/24 dev v1");
    done("ip address add fd77::2/64 dev v1 nodad");
    done("ip link set v1 up");
    let dataplane = Dataplane::start(Options { workers: 1 }, Box::new(Silent)).unwrap();
    let attachments = ["10.77.0.2", "fd77::2"].map(|address| {
        let server = UdpSocket::bind((address, 0)).unwrap();
        let echo = server.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = server.recv_from(&mut buffer) {
                let _ = server.send_to(&buffer[..length], from);
            }
        });
        let route = RouteConfig::new(address, [echo]).unwrap();
        let route = dataplane.configure(route).unwrap();
        let socket = bind_reuse_port(SocketAddr::new(address.parse().unwrap(), 4433)).unwrap();
        let gateway = local_address(socket.as_fd()).unwrap();
        dataplane.listen(&route, gateway, 0, socket).unwrap()
    });
    println!("far is there");
    // It ends with the test that has made it, however that ends.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(attachments);
}

/// Waits until a process has left this host for one of its own.
fn has_left(process: &Child) {
    let begun = Instant::now();
    let namespace = |id: &str| std::fs::read_link(format!("/proc/{id}/ns/net")).ok();
    while namespace(&process.id().to_string()) == namespace("self") {
        assert!(begun.elapsed() < Duration::from_secs(60), "there is no other host");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Addresses of the far host's gateway.
const FAR_ADDRESSES: [&str; 2] = ["10.77.0.2", "fd77::2"];

/// Links this host to a far one, which has the gateway and the server.
fn far_host() -> Running {
    done("ip link set lo up");
    done("ip link add v0 type veth peer name v1");
    let own = std::env::current_exe().unwrap();
    let mut far = Command::new("unshare");
    far.arg("--net").arg(own).args(["--exact", "run::far", "--ignored", "--nocapture"]);
    let mut far = Running(far.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    has_left(&far.0);
    done(&format!("ip link set v1 netns {}", far.0.id()));
    done("ip address add 10.77.0.1/24 dev v0");
    done("ip address add fd77::1/64 dev v0 nodad");
    done("ip link set v0 up");
    let output = BufReader::new(far.0.stdout.take().unwrap());
    let is_there = |line: Result<String, _>| line.is_ok_and(|line| line.contains("far is there"));
    assert!(output.lines().any(is_there), "the far host has ended");
    far
}

/// Exchanges datagrams from one socket until its input ends, and prints each number; lost datagrams
/// are sent again.
const PERSISTENT: &str = "
import os, select, socket, sys, time
host, port = sys.argv[1], int(sys.argv[2])
one = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_DGRAM)
one.connect((host, port))
one.settimeout(0.5)
number, begun = 0, time.monotonic()
while not select.select([sys.stdin], [], [], 0.05)[0]:
    one.send(b'%d' % number)
    try:
        while one.recv(2000) != b'%d' % number:
            pass
    except TimeoutError:
        assert time.monotonic() - begun < 60, number
        continue
    print(number, flush=True)
    number, begun = number + 1, time.monotonic()
";

/// An operator's firewall, besides the rules of the router: masquerading, and for hosts no way to the router itself
/// but for what it has taken over.
const FIREWALL: &str = r#"
table inet firewall {
  chain postrouting {
    type nat hook postrouting priority srcnat
    oifname "v0" masquerade
  }
  chain input {
    type filter hook input priority filter
    iifname "l0" meta mark & 0xff000000 == 0x60000000 accept
    iifname "l0" meta l4proto udp drop
  }
}
"#;

/// Starts `packrat router` for the host behind `l0`, and waits until it serves.
fn router(uplink: &str) -> (Running, impl Iterator<Item = String> + use<>) {
    router_with(uplink, &[])
}

fn router_with(uplink: &str, options: &[&str]) -> (Running, impl Iterator<Item = String> + use<>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packrat"));
    command.args(["router", "--interface", "l0", "--uplink", uplink, "--port", "4433"]);
    command.args(options);
    let mut router = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut output = BufReader::new(router.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let first = output.next();
    assert_eq!(first.as_deref(), Some("hosts behind l0 are served"));
    (router, output)
}

/// A host behind the router: another network namespace.
struct HostBehind(Running);

impl HostBehind {
    /// Links it to this host's `l0`, behind a firewall.
    fn start() -> Self {
        done("ip link add l0 type veth peer name l1");
        let mut host = Command::new("unshare");
        let host = Running(host.args(["--net", "cat"]).stdin(Stdio::piped()).spawn().unwrap());
        has_left(&host.0);
        let id = host.0.id();
        let there = |line: &str| done(&format!("nsenter --net --target {id} {line}"));
        done(&format!("ip link set l1 netns {id}"));
        for line in ["address add 10.78.0.1/24 dev l0", "address add fd78::1/64 dev l0 nodad"] {
            done(&format!("ip {line}"));
        }
        done("ip link set l0 up");
        there("ip address add 10.78.0.2/24 dev l1");
        there("ip address add fd78::2/64 dev l1 nodad");
        there("ip link set l1 up");
        there("ip route add default via 10.78.0.1");
        there("ip route add default via fd78::1");
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        nft.stdin.take().unwrap().write_all(FIREWALL.as_bytes()).unwrap();
        assert!(nft.wait().unwrap().success());
        Self(host)
    }

    fn python(&self, script: &str, address: &str) -> Command {
        let mut program = Command::new("nsenter");
        let id = self.0.0.id().to_string();
        program.args(["--net", "--target", &id, "python3", "-c", script, address, "4433"]);
        program
    }

    fn exchange(&self, address: &str) -> Option<i32> {
        self.python(PROGRAM, address).status().unwrap().code()
    }

    /// Exchanges datagrams until it is ended.
    fn exchange_on(&self, address: &str) -> Lasting {
        let mut program = self.python(PERSISTENT, address);
        let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let numbers = BufReader::new(program.stdout.take().unwrap()).lines();
        Lasting { program, numbers: Box::new(numbers.map_while(Result::ok)) }
    }
}

/// A program that exchanges datagrams from one socket.
struct Lasting {
    program: Child,
    numbers: Box<dyn Iterator<Item = String>>,
}

impl Lasting {
    fn reaches(&mut self, number: &str) -> bool {
        self.numbers.any(|reached| reached == number)
    }

    fn end(mut self) {
        drop(self.program.stdin.take());
        assert!(self.program.wait().unwrap().success());
    }
}

/// Ends a router: its last line.
fn ended(router: &mut Running, mut said: impl Iterator<Item = String>) -> String {
    done(&format!("kill -TERM {}", router.0.id()));
    assert_eq!(router.0.wait().unwrap().code(), Some(0));
    said.next().unwrap_or_default()
}

fn router_tables() -> String {
    words("nft list tables").replace("table inet firewall\n", "")
}

#[test]
#[ignore = "runs on a host of its own, which another test makes"]
fn inside_a_router() {
    let _far = far_host();
    let host = HostBehind::start();
    let (mut first, said) = router("v0");
    // A server of the router's own at the port that is taken over, such as WireGuard's.
    let server = UdpSocket::bind("[::]:4433").unwrap();
    for address in FAR_ADDRESSES {
        assert_eq!(host.exchange(address), Some(42), "{address}");
    }
    let mut another = Command::new(env!("CARGO_BIN_EXE_packrat"));
    another.args(["router", "--interface", "l0", "--uplink", "v0"]);
    let another = another.output().unwrap();
    let refusal = String::from_utf8_lossy(&another.stderr);
    assert!(refusal.contains("another packrat router runs here"), "{refusal}");
    // It may start while hosts' flows last.
    drop(server);
    UdpSocket::bind("[::]:4433").unwrap();
    let last = ended(&mut first, said);
    assert!(last.starts_with("2 sessions with gateways"), "{last}");
    assert_eq!(router_tables(), "");

    // Datagrams that do not leave by the uplink are none of its business.
    let (mut second, said) = router("l0");
    assert_eq!(host.exchange("10.77.0.2"), Some(42));
    let last = ended(&mut second, said);
    assert!(last.starts_with("0 sessions with gateways"), "{last}");

    // One that has as many flows of a family as it may have lets further ones go their own way.
    let (mut full, said) = router_with("v0", &["--flows", "2"]);
    let mut lasting = host.exchange_on("10.77.0.2");
    assert!(lasting.reaches("5"));
    assert_eq!(host.exchange("10.77.0.2"), Some(42));
    assert!(lasting.reaches("50"), "the first one has gone on");
    lasting.end();
    let last = ended(&mut full, said);
    assert!(last.starts_with("1 sessions with gateways"), "{last}");

    a_killed_router_costs_no_connection(&host);
}

/// A killed router leaves its rules. Connections continue, from an address that the system gives
/// them, and others begin; the next router takes the rules away with its own.
fn a_killed_router_costs_no_connection(host: &HostBehind) {
    let (mut killed, _said) = router("v0");
    let mut lasting = FAR_ADDRESSES.map(|address| host.exchange_on(address));
    for program in &mut lasting {
        assert!(program.reaches("5"));
    }
    done(&format!("kill -KILL {}", killed.0.id()));
    assert_eq!(killed.0.wait().unwrap().code(), None);
    assert!(router_tables().contains("packrat_router"));
    for mut program in lasting {
        assert!(program.reaches("25"), "the connection is lost");
        program.end();
    }
    for address in FAR_ADDRESSES {
        assert_eq!(host.exchange(address), Some(42), "{address}");
    }
    let (mut next, said) = router("v0");
    // No one reads what it has repaired.
    drop(said);
    done(&format!("kill -INT {}", next.0.id()));
    assert_eq!(next.0.wait().unwrap().code(), Some(0));
    assert_eq!(router_tables(), "");
    assert!(!words("ip rule").contains("fwmark") && !words("ip -6 rule").contains("fwmark"));
}

#[test]
#[ignore = "runs on a host of its own, which another test makes"]
fn inside() {
    let _far = far_host();
    // A server of this host at the port that is taken over.
    let server = UdpSocket::bind("[::]:4433").unwrap();
    for address in FAR_ADDRESSES {
        let (id, output) =
            packrat(&["--port", "4433", "--", "python3", "-c", PROGRAM, address, "4433"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(42), "{said}");
        assert!(said.contains("1 sessions with gateways"), "{said}");
        assert_eq!(group(id), None);
    }
    drop(server);
    assert_eq!(words("nft list tables"), "");
    assert!(!words("ip rule").contains("fwmark") && !words("ip -6 rule").contains("fwmark"));
    a_request_to_end_reaches_the_program();
    // No one reads the last line: the exit code is the program's all the same.
    let mut unread = Command::new(env!("CARGO_BIN_EXE_packrat"));
    unread.args(["run", "--", "sh", "-c", "exit 42"]).stderr(closed_pipe());
    assert_eq!(unread.status().unwrap().code(), Some(42));
    // A program that is not there: the shell's word for it, and everything is taken away as well.
    let (id, output) = packrat(&["--silent", "--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(127));
    assert_eq!((words("nft list tables"), group(id)), (String::new(), None));
    the_next_command_tidies_up_after_a_killed_one();
}

/// A request to end reaches the program, and everything is taken away as well.
fn a_request_to_end_reaches_the_program() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    for (signal, number) in [("TERM", 15), ("HUP", 1), ("QUIT", 3), ("INT", 2)] {
        // With nohup, or behind a shell's &, programs ignore it.
        if (ignored >> (number - 1)) & 1 == 1 {
            continue;
        }
        let mut running = Command::new(env!("CARGO_BIN_EXE_packrat"))
            .args(["run", "--silent", "--", "sleep", "1000"])
            // No terminal sends an interrupt to it, nor to the program.
            .process_group(0)
            .spawn()
            .unwrap();
        let begun = Instant::now();
        // The group is there after the signals' handlers, whatever else is.
        while group(running.id()).is_none() {
            assert!(begun.elapsed() < Duration::from_secs(60), "there is no control group");
            std::thread::sleep(Duration::from_millis(20));
        }
        done(&format!("kill -{signal} {}", running.id()));
        assert_eq!(running.wait().unwrap().code(), Some(128 + number), "{signal}");
        let left = (words("nft list tables"), group(running.id()));
        assert_eq!(left, (String::new(), None), "{signal}");
    }
}

/// A killed command leaves rules and control group, which the next one takes away once the program
/// has ended.
fn the_next_command_tidies_up_after_a_killed_one() {
    let mut killed = Command::new(env!("CARGO_BIN_EXE_packrat"))
        .args(["run", "--silent", "--", "sh", "-c", "echo $$; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(killed.stdout.take().unwrap());
    let program = output.lines().next().unwrap().unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let left = group(killed.id()).unwrap();
    assert_eq!(packrat(&["--silent", "--", "true"]).1.status.code(), Some(0));
    assert_eq!(group(killed.id()).as_ref(), Some(&left), "it has a program");
    done(&format!("kill -KILL {program}"));
    let begun = Instant::now();
    while std::fs::read_to_string(left.join("cgroup.procs")).unwrap() != "" {
        assert!(begun.elapsed() < Duration::from_secs(60), "the program does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(packrat(&["--silent", "--", "true"]).1.status.code(), Some(0));
    assert_eq!((words("nft list tables"), group(killed.id())), (String::new(), None));
}

#[test]
fn without_the_right_to_redirect_it_says_what_to_do() {
    let mut command = match words("id -u").trim() {
        "0" => {
            let mut command = Command::new("setpriv");
            command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"]);
            command.arg(env!("CARGO_BIN_EXE_packrat"));
            command
        }
        // Others have no right to begin with, nor to give one away.
        _ => Command::new(env!("CARGO_BIN_EXE_packrat")),
    };
    let output = command.args(["run", "--", "true"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("run it as root, or use packrat agent"), "{said}");
}
