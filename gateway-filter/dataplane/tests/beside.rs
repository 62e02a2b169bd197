//! Reading beside a shell that reads the listener's sockets itself, as Envoy does.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packrat_dataplane::log::{Level, LogSink};
use packrat_dataplane::socket::{Ecn, bind_reuse_port, local_address};
use packrat_dataplane::{Attachment, ClientDatagrams, Dataplane, Options, Route};

use crate::gateway::{config, has, place, receive, socket};

const PATIENCE: Duration = Duration::from_secs(60);

/// The gateway's log lines about its reading. Its threads are late after each session that they
/// open.
#[derive(Clone, Default)]
struct Steered {
    lines: Arc<Mutex<Vec<String>>>,
    lateness: Duration,
}

impl LogSink for Steered {
    fn write(&self, _level: Level, fields: serde_json::Map<String, serde_json::Value>) {
        let event = fields["event"].as_str().unwrap();
        if event.contains("steered") {
            self.lines.lock().unwrap().push(fields["detail"].as_str().unwrap().to_owned());
        } else if event == "session_opened" {
            std::thread::sleep(self.lateness);
        }
    }
}

impl Steered {
    fn have_said(&self, detail: &str) -> bool {
        self.lines.lock().unwrap().iter().any(|line| line.contains(detail))
    }

    fn wait_for(&self, detail: &str) {
        wait_for(detail, || self.have_said(detail));
    }
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// One worker of a shell: it reads a socket of its own, one datagram at a time.
struct Worker {
    stop: Arc<AtomicBool>,
    read: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    socket: UdpSocket,
}

impl Worker {
    fn start(
        dataplane: &Arc<Dataplane>,
        route: &Arc<Route>,
        listener: SocketAddr,
        number: usize,
        socket: &OwnedFd,
    ) -> Self {
        let theirs = UdpSocket::from(socket.try_clone().unwrap());
        let (stop, read) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&read));
        let (dataplane, route) = (Arc::clone(dataplane), Arc::clone(route));
        let reader = theirs.try_clone().unwrap();
        let thread = std::thread::spawn(move || {
            let attach = || attach(&dataplane, &route, listener, number, &reader);
            let attachment = attach();
            let mut ingress = dataplane.ingress(&route, &attachment, number);
            let mut buffer = vec![0; 70_000];
            while !stopped.load(Ordering::SeqCst) {
                let Ok((length, client)) = reader.recv_from(&mut buffer) else {
                    std::thread::sleep(Duration::from_micros(200));
                    continue;
                };
                if length > 1 {
                    counted.fetch_add(1, Ordering::SeqCst);
                    attachment.note_read_elsewhere();
                }
                let data = &buffer[..length];
                let ecn = Ecn::NOT_CAPABLE;
                ingress.receive(&ClientDatagrams {
                    client,
                    local: None,
                    ecn,
                    data,
                    segment_size: length,
                });
            }
        });
        Self { stop, read, thread: Some(thread), socket: theirs }
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

fn attach(
    dataplane: &Dataplane,
    route: &Arc<Route>,
    listener: SocketAddr,
    worker: usize,
    socket: &UdpSocket,
) -> Attachment {
    let lend = |_: &_| socket.as_fd().try_clone_to_owned();
    dataplane.attach_and_read(route, listener, worker, lend).unwrap()
}

struct Scene {
    dataplane: Arc<Dataplane>,
    route: Arc<Route>,
    listener: SocketAddr,
    server: UdpSocket,
    workers: Vec<Worker>,
    steered: Steered,
}

impl Scene {
    fn new(at: &str) -> Self {
        Self::with(at, 2, Duration::ZERO)
    }

    fn with(at: &str, workers: usize, lateness: Duration) -> Self {
        let server = socket("127.0.0.1:0");
        let steered = Steered { lateness, ..Steered::default() };
        let dataplane = Dataplane::start(Options { workers }, Box::new(steered.clone())).unwrap();
        let route = dataplane.configure(config(&[&server])).unwrap();
        let first = bind_reuse_port(place(at)).unwrap();
        let listener = local_address(first.as_fd()).unwrap();
        let others = (1..workers).map(|_| bind_reuse_port(listener).unwrap());
        let sockets: Vec<_> = std::iter::once(first).chain(others).collect();
        let dataplane = Arc::new(dataplane);
        let start = |(number, socket)| Worker::start(&dataplane, &route, listener, number, socket);
        let workers = sockets.iter().enumerate().map(start).collect();
        Self { dataplane, route, listener, server, workers, steered }
    }

    fn read_by_the_shell(&self) -> u64 {
        self.workers.iter().map(|worker| worker.read.load(Ordering::SeqCst)).sum()
    }

    /// Everything that clients send comes to the server, each client's in order.
    fn exchange(&self, clients: &[UdpSocket], rounds: u32) {
        for round in 0..rounds {
            for (number, client) in clients.iter().enumerate() {
                client.send(format!("{number} {round}").as_bytes()).unwrap();
                if number % 32 == 31 {
                    self.take(32, clients, round);
                }
            }
            self.take(clients.len() % 32, clients, round);
        }
    }

    fn take(&self, count: usize, clients: &[UdpSocket], round: u32) {
        for _ in 0..count {
            let (datagram, from) = receive(&self.server);
            let text = String::from_utf8(datagram).unwrap();
            let (number, of) = text.split_once(' ').unwrap();
            assert_eq!(of, round.to_string());
            self.server.send_to(text.as_bytes(), from).unwrap();
            assert_eq!(receive(&clients[number.parse::<usize>().unwrap()]).0, text.as_bytes());
        }
    }

    /// From now on the shell reads no datagrams of these clients.
    fn leaves_nothing_to_the_shell(&self, clients: &[UdpSocket]) {
        let before = self.read_by_the_shell();
        self.exchange(clients, 10);
        assert_eq!(self.read_by_the_shell(), before, "{:?}", self.steered.lines);
    }

    fn clients(&self, count: usize) -> Vec<UdpSocket> {
        let from = if self.listener.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
        let connect = |_| {
            let client = socket(from);
            client.connect(self.listener).unwrap();
            client
        };
        (0..count).map(connect).collect()
    }
}

#[test]
fn the_gateway_reads_all_datagrams_and_flows_keep_their_order() {
    for at in ["127.0.0.1:0", "[::1]:0"] {
        if !has(at) {
            continue;
        }
        let scene = Scene::new(at);
        let clients = scene.clients(64);
        scene.exchange(&clients, 3);
        scene.steered.wait_for("2 of 2 readers");
        scene.leaves_nothing_to_the_shell(&clients);
    }
}

/// There are more of them than bytes of probes.
#[test]
fn each_of_many_readers_is_found() {
    let scene = Scene::with("127.0.0.1:0", 16, Duration::ZERO);
    let clients = scene.clients(64);
    scene.steered.wait_for("16 of 16 readers");
    scene.leaves_nothing_to_the_shell(&clients);
}

#[test]
fn readers_that_are_late_are_found_in_their_places() {
    for _ in 0..3 {
        let scene = Scene::with("127.0.0.1:0", 2, Duration::from_millis(20));
        let begun = Instant::now();
        while !scene.steered.have_said("2 of 2 readers") {
            assert!(begun.elapsed() < PATIENCE, "{:?}", scene.steered.lines);
            scene.exchange(&scene.clients(8), 1);
        }
        scene.leaves_nothing_to_the_shell(&scene.clients(64));
    }
}

#[test]
fn changed_places_are_found_again_and_all_datagrams_arrive() {
    let mut scene = Scene::new("127.0.0.1:0");
    let clients = scene.clients(64);
    scene.steered.wait_for("2 of 2 readers");
    // The first socket of the address goes: the kernel puts the last one in its place.
    let mut gone = scene.workers.remove(0);
    gone.stop();
    let attachment = attach(&scene.dataplane, &scene.route, scene.listener, 0, &gone.socket);
    drop(gone);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = scene.read_by_the_shell();
        scene.exchange(&clients, 1);
        if scene.read_by_the_shell() == before {
            break;
        }
        assert!(Instant::now() < deadline, "the shell still reads");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(attachment);
    // No thread reads beside the shell any more.
    scene.exchange(&clients, 3);
}

#[test]
fn a_listeners_update_loses_no_datagram_and_its_end_no_socket() {
    let mut scene = Scene::new("127.0.0.1:0");
    let clients = scene.clients(8);
    scene.steered.wait_for("2 of 2 readers");
    for round in 0..20 {
        // The new owner comes before the old one goes, with datagrams in flight.
        for (number, client) in clients.iter().enumerate() {
            client.send(format!("{number} {round}").as_bytes()).unwrap();
        }
        let listener = scene.listener;
        let updated: Vec<_> = (0..2)
            .map(|worker| {
                attach(
                    &scene.dataplane,
                    &scene.route,
                    listener,
                    worker,
                    &scene.workers[worker].socket,
                )
            })
            .collect();
        scene.take(8, &clients, round);
        drop(updated);
        let again: Vec<_> = (0..2)
            .map(|worker| {
                attach(
                    &scene.dataplane,
                    &scene.route,
                    listener,
                    worker,
                    &scene.workers[worker].socket,
                )
            })
            .collect();
        scene.exchange(&clients, 1);
        drop(again);
    }
    scene.workers.clear();
    let alone = UdpSocket::bind(scene.listener);
    assert!(alone.is_ok(), "{alone:?}");
}
