//! IP multicast on both sides of a gateway, with the kernel's own IGMP and MLD and a switch that
//! snoops: in network namespaces of their own, which take root, iproute2 and nftables; skips with a
//! line otherwise.

use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use multicast_network::Network;
use stream_gateway::{PATIENCE, StreamGateway, program};

use crate::multicast_network;
use crate::stream_gateway;

/// Hosts on the switch.
const SENDER: usize = 1;
const GATEWAY: usize = 2;
const RECEIVERS: [usize; 3] = [3, 4, 5];
/// Packets of a stream.
const PACKETS: u16 = 300;
/// Packets after the stream, whose loss may go unnoticed.
const AFTER: u16 = 30;
const BYTES: usize = 60;
/// Milliseconds for which a packet waits for its repair: longer than a busy host lets a thread wait.
const LATENCY: &str = "3000";
/// The environment variable with the role of this test's program in a namespace.
const ROLE: &str = "PACKRAT_TEST_SENDER";

/// An RTP packet with this number, and text.
fn packet(number: u16, from: &str) -> Vec<u8> {
    let mut bytes = vec![0x80, 96];
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 9]);
    bytes.extend_from_slice(
        &format!("packet {number:05} {from} ").repeat(5).as_bytes()[..BYTES - 12],
    );
    bytes
}

/// The sender, which the tests run in its namespace; no test of its own.
#[test]
fn sends_in_its_namespace() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let [local, group] = [words[0], words[1]].map(|word| word.parse::<SocketAddr>().unwrap());
    let socket = UdpSocket::bind(local).unwrap();
    let packets = words.get(3).map_or(PACKETS + AFTER, |packets| packets.parse().unwrap());
    for number in 0..packets {
        socket.send_to(&packet(number, words[2]), group).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn sender(network: &Network, local: &str, group: &str, text: &str) -> Running {
    let child = network
        .command(SENDER, &std::env::current_exe().unwrap())
        .args(["--exact", "multicast::sends_in_its_namespace"])
        .env(ROLE, format!("{local} {group} {text}"))
        .stdout(Stdio::null())
        .spawn();
    Running(child.unwrap())
}

/// Ends with the test in any case.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `packrat recv` in a namespace, and its output.
struct Receiver {
    host: usize,
    output: Arc<Mutex<Vec<u8>>>,
    _process: Running,
}

impl Receiver {
    fn start(network: &Network, host: usize, gateway: SocketAddr, group: &str) -> Self {
        Self::with(network, host, gateway, &["--group", group])
    }

    fn with(network: &Network, host: usize, gateway: SocketAddr, options: &[&str]) -> Self {
        let mut child = network
            .command(host, std::path::Path::new(env!("CARGO_BIN_EXE_packrat")))
            .args(["recv", &format!("udp://{gateway}"), "--latency", LATENCY])
            .args(["--seconds", "180"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdout.take().unwrap();
        let output = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&output);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = pipe.read(&mut buffer) {
                written
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .extend_from_slice(&buffer[..length]);
            }
        });
        Self { host, output, _process: Running(child) }
    }

    /// The numbers when the last packet has come; few are missing.
    fn all_numbers(&self) -> Vec<u16> {
        wait("the last packet", || self.numbers().last().is_some_and(|last| *last >= PACKETS - 1));
        let numbers = self.numbers();
        let missing = (0..PACKETS).filter(|number| !numbers.contains(number)).count();
        assert!(missing <= 5, "host {}: {missing} missing", self.host);
        numbers
    }

    /// Numbers of the packets that arrived.
    fn numbers(&self) -> Vec<u16> {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = output.chunks_exact(BYTES);
        whole
            .map(|bytes| {
                let number = u16::from_be_bytes([bytes[2], bytes[3]]);
                assert_eq!(bytes, packet(number, "true"), "host {}: not as it was sent", self.host);
                number
            })
            .collect()
    }
}

fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A gateway whose metrics are read in its namespace.
struct InNamespace<'a> {
    network: &'a Network,
    gateway: StreamGateway,
}

impl InNamespace<'_> {
    fn metric(&self, name: &str) -> u64 {
        let port = self.gateway.metrics.port();
        let ask = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET /metrics HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
        );
        let text = self.network.says(GATEWAY, &ask);
        let line =
            text.lines().find(|line| line.starts_with(name) && line[name.len()..].starts_with('{'));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
    }
}

/// Addresses of one family.
struct Family {
    gateway: &'static str,
    sender: &'static str,
    /// Another address of the sender's host, which must not send.
    stranger: &'static str,
    upstream: &'static str,
    group: &'static str,
    /// The kernel's file with the groups that a host has joined, and the text form of the two.
    memberships: &'static str,
    listed: [&'static str; 2],
    /// The kernel's file with the sources, and the text form of the sender's.
    sources: &'static str,
    source: &'static str,
    /// The names of the two groups in the switch and its filter.
    switch: [&'static str; 2],
    protocol: &'static str,
}

const IPV4: Family = Family {
    gateway: "10.77.0.2:0",
    sender: "10.77.0.1",
    stranger: "10.77.0.101",
    upstream: "239.1.2.3:5004",
    group: "239.9.9.9:5006",
    memberships: "/proc/net/igmp",
    listed: ["030201EF", "090909EF"],
    sources: "/proc/net/mcfilter",
    source: "0x0a4d0001",
    switch: ["239.1.2.3", "239.9.9.9"],
    protocol: "ip",
};

const IPV6: Family = Family {
    gateway: "[fd77::2]:0",
    sender: "fd77::1",
    stranger: "fd77::101",
    upstream: "[ff15::123]:5004",
    group: "[ff15::999]:5006",
    memberships: "/proc/net/igmp6",
    listed: ["ff150000000000000000000000000123", "ff150000000000000000000000000999"],
    sources: "/proc/net/mcfilter6",
    source: "fd770000000000000000000000000001",
    switch: ["ff15::123", "ff15::999"],
    protocol: "ip6",
};

fn assert_repaired_for_one_and_for_all(gateway: &InNamespace<'_>) {
    // One copy for all, repairs for individuals and for all.
    let to_group = gateway.metric("packrat_to_client_datagrams_total");
    let repairs = gateway.metric("packrat_stream_repairs_total");
    let group_repairs = gateway.metric("packrat_stream_group_repairs_total");
    let packets = u64::from(PACKETS + AFTER);
    assert!(
        (packets..=packets + group_repairs).contains(&to_group),
        "{to_group} datagrams to the group"
    );
    assert!(
        group_repairs >= 5 && repairs >= group_repairs + 40,
        "{repairs}, {group_repairs} to the group"
    );
    assert!(gateway.metric("packrat_stream_repairs_arrived_total") >= 60);
}

/// Each receiver loses packets of the group: two receivers lose different packets than the
/// others, and all lose the packets that the switch drops.
fn lose_differently(network: &Network, family: &Family) {
    let group = family.switch[1];
    network.lose(3, &format!("{} daddr {group} numgen inc mod 7 3 drop", family.protocol));
    network.lose(4, &format!("{} daddr {group} numgen inc mod 9 5 drop", family.protocol));
    network.lose_at_the_switch(
        GATEWAY,
        &format!("{} daddr {group} numgen inc mod 11 6 drop", family.protocol),
    );
}

fn from_group_to_group(family: &Family) {
    let Some(network) = Network::new(5) else { return };
    let [upstream, group] = family.switch;
    lose_differently(&network, family);
    let local = |host: &str, port: u16| SocketAddr::new(host.parse().unwrap(), port).to_string();
    let mut command = network.command(GATEWAY, &program());
    let options = [
        "--stream",
        family.upstream,
        "--stream-source",
        family.sender,
        "--stream-group",
        family.group,
    ];
    let gateway = StreamGateway::start(&mut command, family.gateway, &options);
    let listen = gateway.listen;
    let gateway = InNamespace { network: &network, gateway };
    let has_joined = |host: usize, which: usize| {
        network.says(host, &format!("cat {}", family.memberships)).contains(family.listed[which])
    };
    let hears = |host: usize, group: &str| {
        let known = network.says(0, "bridge mdb show");
        known.lines().any(|line| line.contains(&format!("port{host} grp {group} ")))
    };
    // The gateway's own membership, for one source; and the switch has received it.
    let memberships = network.says(GATEWAY, &format!("cat {}", family.memberships));
    assert!(memberships.contains(family.listed[0]), "{memberships}");
    let filter = network.says(GATEWAY, &format!("cat {}", family.sources));
    assert!(filter.lines().any(|line| line.contains(family.source)), "{filter}");
    wait("the switch to know of the gateway", || hears(GATEWAY, upstream));
    let receivers = RECEIVERS.map(|host| Receiver::start(&network, host, listen, family.group));
    wait("the receivers to join", || RECEIVERS.iter().all(|host| has_joined(*host, 1)));
    wait("the switch to know of them", || RECEIVERS.iter().all(|host| hears(*host, group)));
    wait("the subscriptions", || gateway.metric("packrat_stream_subscribers") == 3);

    let stranger = sender(&network, &local(family.stranger, 0), family.upstream, "stranger");
    let mut sending = sender(&network, &local(family.sender, 0), family.upstream, "true");
    assert!(sending.0.wait().unwrap().success());
    for receiver in &receivers {
        let numbers = receiver.all_numbers();
        assert!(
            numbers.is_sorted_by(|one, next| one < next),
            "host {}: {numbers:?}",
            receiver.host
        );
    }
    drop(stranger);
    // The kernel drops the stranger's packets before they reach the gateway's socket.
    assert_eq!(gateway.metric("packrat_stream_foreign_total"), 0);
    assert_eq!(gateway.metric("packrat_stream_packets_total"), u64::from(PACKETS + AFTER));
    assert_repaired_for_one_and_for_all(&gateway);
    // A client that ends leaves the group.
    drop(receivers);
    drop(gateway);
    wait("the memberships to end", || {
        !has_joined(GATEWAY, 0) && RECEIVERS.iter().all(|host| !has_joined(*host, 1))
    });
}

/// Uses enough receivers for symbols to pay, each of which loses other packets of the group.
#[test]
fn symbols_to_the_group_repair_another_loss_at_each_receiver() {
    let Some(network) = Network::new(8) else { return };
    let receivers = 3..=8;
    let group = IPV4.switch[1];
    for host in receivers.clone() {
        network.lose(host, &format!("ip daddr {group} numgen inc mod 10 {host} drop"));
    }
    let mut command = network.command(GATEWAY, &program());
    let options = ["--stream", IPV4.upstream, "--stream-group", IPV4.group];
    let gateway = StreamGateway::start(&mut command, IPV4.gateway, &options);
    let listen = gateway.listen;
    let gateway = InNamespace { network: &network, gateway };
    let all: Vec<Receiver> =
        receivers.map(|host| Receiver::start(&network, host, listen, IPV4.group)).collect();
    let has_joined = |one: &Receiver| {
        network.says(one.host, &format!("cat {}", IPV4.memberships)).contains(IPV4.listed[1])
    };
    wait("the receivers to join", || all.iter().all(has_joined));
    wait("the subscriptions", || gateway.metric("packrat_stream_subscribers") == all.len() as u64);
    let local = SocketAddr::new(IPV4.sender.parse().unwrap(), 0).to_string();
    let mut sending = sender(&network, &local, IPV4.upstream, "true");
    assert!(sending.0.wait().unwrap().success());
    for receiver in &all {
        receiver.all_numbers();
    }
    let symbols = gateway.metric("packrat_stream_symbols_total");
    let repairs = gateway.metric("packrat_stream_repairs_total");
    println!("{symbols} symbols, {repairs} repairs");
    // A tenth is lost at each of six.
    let lost = u64::from(PACKETS) * 6 / 10;
    assert!(symbols >= 30, "{symbols} symbols");
    assert!(repairs < lost / 2, "{repairs} repairs of {lost} losses, {symbols} symbols");
}

#[test]
fn a_stream_between_groups_is_repaired_for_each_receiver() {
    from_group_to_group(&IPV4);
}

#[test]
fn the_same_with_ipv6() {
    from_group_to_group(&IPV6);
}

/// The host has no route for groups: they come where the gateway is.
#[test]
fn two_receivers_of_a_host_hear_one_group() {
    let Some(network) = Network::new(3) else { return };
    let [sending_host, host] = [SENDER, RECEIVERS[0]];
    network.says(host, "ip route del 224.0.0.0/4");
    let mut command = network.command(GATEWAY, &program());
    let options = ["--stream", "10.77.0.2:5004", "--stream-group", IPV4.group];
    let gateway = StreamGateway::start(&mut command, IPV4.gateway, &options);
    let listen = gateway.listen;
    let gateway = InNamespace { network: &network, gateway };
    let receivers = [(); 2].map(|()| Receiver::start(&network, host, listen, IPV4.group));
    wait("the subscriptions", || gateway.metric("packrat_stream_subscribers") == 2);
    wait("the switch to know of them", || {
        let known = network.says(0, "bridge mdb show");
        known.contains(&format!("port{host} grp {} ", IPV4.switch[1]))
    });
    let local = format!("10.77.0.{sending_host}:0");
    let mut sending = sender(&network, &local, "10.77.0.2:5004", "true");
    assert!(sending.0.wait().unwrap().success());
    receivers.iter().for_each(|receiver| drop(receiver.all_numbers()));
}

#[test]
fn a_receiver_outlives_its_network_and_address() {
    let Some(network) = Network::new(3) else { return };
    let host = RECEIVERS[0];
    let mut command = network.command(GATEWAY, &program());
    let gateway = StreamGateway::start(&mut command, IPV4.gateway, &["--stream", "10.77.0.2:5004"]);
    let listen = gateway.listen;
    let gateway = InNamespace { network: &network, gateway };
    let receiver = Receiver::with(&network, host, listen, &[]);
    wait("the subscription", || gateway.metric("packrat_stream_subscribers") == 1);
    let local = format!("10.77.0.{SENDER}:0");
    let _sending = sender(&network, &local, "10.77.0.2:5004", "true 60000");
    let newest = || receiver.numbers().last().copied().unwrap_or_default();
    wait("the stream", || newest() > 50);
    for change in [
        // Longer than a receiver is silent.
        "ip link set eth0 down; sleep 2.5; ip link set eth0 up",
        "ip address del 10.77.0.3/24 dev eth0; ip address add 10.77.0.33/24 dev eth0",
    ] {
        network.says(host, change);
        let before = newest();
        // What waited here for its time is older.
        let later = before + 3000 / 5 + 200;
        wait(&format!("the stream after: {change}"), || newest() > later);
    }
}
