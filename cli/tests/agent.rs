//! `packrat agent` as a process: its output, service and refusals, and its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use packrat_real_envoy::free_address;
use server::Server;

use crate::server;

const PATIENCE: Duration = Duration::from_secs(60);

/// A running agent; killed when it is dropped.
struct Agent {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Agent {
    fn start(arguments: &[&str]) -> Self {
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_packrat")).arg("agent").args(arguments))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// The word after `before` in the next line.
    fn word_after(&mut self, before: &str) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let mut words = line.split_whitespace().skip_while(|word| *word != before);
        words.nth(1).unwrap_or_else(|| panic!("{line:?} has no {before:?}")).to_owned()
    }

    fn listen(&mut self) -> SocketAddr {
        self.word_after("on").parse().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn page(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The words on standard error of one that fails.
fn failure(arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_packrat")).arg("agent").args(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_download_passes_and_the_pages_count_it() {
    let server = Server::start(&["localhost"], false);
    let to = format!("localhost:{}", server.address.port());
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("agent.toml");
    let text = format!(
        "metrics = \"127.0.0.1:0\"\nflows = 7\n[[service]]\nname = \"web\"\nto = \"{to}\"\nlisten = \"127.0.0.1:0\"\n\
         [[service]]\nname = \"other\"\nto = \"127.0.0.1:9\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut agent = Agent::start(&["--config", config.to_str().unwrap()]);
    let listen = agent.listen();
    agent.listen();
    let metrics = agent.word_after("on");
    let metrics = metrics.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();

    let file = folder.path().join("file");
    let status = Command::new(env!("CARGO_BIN_EXE_packrat"))
        .args(["get", "--no-assist", "--silent", "--connect-to", &listen.to_string(), "--cacert"])
        .arg(&server.authority)
        .arg("-o")
        .arg(&file)
        .arg(server.url("/file"))
        .status()
        .unwrap();
    assert!(status.success());
    assert!(std::fs::read(&file).unwrap() == server::file());

    let text = page(&metrics, "/metrics");
    let value = |series: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(series)).expect(series);
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(
        value("packrat_agent_delivered_bytes_total{service=\"web\"}") as usize
            > server::file().len()
    );
    assert_eq!(value("packrat_agent_delivered_bytes_total{service=\"other\"}"), 0);
    assert_eq!(value("packrat_agent_flow_limit"), 7);
    let status = page(&metrics, "/packrat");
    let body: serde_json::Value =
        serde_json::from_str(status.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(body["services"][0]["name"], "web");
    // There is no gateway: the agent is still asking for one, or has found that out.
    let condition = body["flows"][0]["condition"].as_str().unwrap();
    assert!(["asking", "no_gateway"].contains(&condition), "{condition}");
    assert!(page(&metrics, "/elsewhere").starts_with("HTTP/1.1 404"));

    let sent = Command::new("kill").arg(agent.process.id().to_string()).status().unwrap();
    assert!(sent.success());
    assert_eq!(agent.process.wait().unwrap().code(), Some(0));
}

#[test]
fn a_socket_that_systemd_has_opened_is_used() {
    let service = UdpSocket::bind("127.0.0.1:0").unwrap();
    service.set_read_timeout(Some(PATIENCE)).unwrap();
    let passed = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listen = passed.local_addr().unwrap();
    // As systemd does it: descriptor 3, and the process that it is for.
    let script = "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" agent --to \"$1\"";
    let mut agent = Agent::spawn(
        Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_packrat")])
            .arg(service.local_addr().unwrap().to_string())
            .stdin(Stdio::from(OwnedFd::from(passed))),
    );
    assert_eq!(agent.listen(), listen);
    let program = UdpSocket::bind("127.0.0.1:0").unwrap();
    program.send_to(b"hello", listen).unwrap();
    let mut buffer = [0; 2048];
    let length = service.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"hello");
}

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let nothing = folder.path().join("nothing").to_str().unwrap().to_owned();
    let (bad, none) =
        (write("bad", "[[service]]\nto = \"a:1\"\nspeed = 9\n"), write("none", "service = []\n"));
    let no_flows = write("flows", "flows = 0\n[[service]]\nto = \"127.0.0.1:9\"\n");
    let no_time = write("time", "idle_seconds = 0\n[[service]]\nto = \"127.0.0.1:9\"\n");
    let token = write("token", "no token!\n");
    for (arguments, expected) in [
        (&[][..], "--to"),
        (&["--to", "localhost"], "HOST:PORT"),
        (&["--to", "no-such-host.invalid:443"], "cannot resolve"),
        (&["--to", "127.0.0.1:9", "--listen", "0.0.0.0:0"], "--allow-remote"),
        (&["--to", "127.0.0.1:9", "--listen", "127.0.0.1"], "--listen"),
        (&["--to", "127.0.0.1:9", "--gateway-key", "12"], "64 hexadecimal digits"),
        (&["--to", "127.0.0.1:9", "--assist-token-file", &nothing], "assist token of"),
        (&["--to", "127.0.0.1:9", "--assist-token-file", &token], "assist token of"),
        (&["--to", "127.0.0.1:9", "--assist-token-from", "http://x/"], "https"),
        (&["--to", "127.0.0.1:9", "--flows", "0"], "--flows"),
        (&["--to", "127.0.0.1:9", "--metrics", "0.0.0.0:0"], "--allow-remote-metrics"),
        (&["--to", "127.0.0.1:9", "--dont-fragment", "perhaps"], "nor never"),
        (&["--socks", "0.0.0.0:0"], "--allow-remote"),
        (&["--socks", "0.0.0.0:0", "--allow-remote"], "--socks-allow"),
        (&["--socks", "127.0.0.1:0", "--socks-allow", "edge.example"], "no port"),
        (&["--to", "127.0.0.1:9", "--socks-allow", "edge.example:1"], "--socks"),
        (&["--config", &nothing], "cannot read the configuration"),
        (&["--config", &bad], "speed"),
        (&["--config", &none], "no service"),
        (&["--config", &no_flows], "expected a nonzero u32"),
        (&["--config", &no_time], "expected a nonzero u32"),
        (&["--config", &none, "--to", "127.0.0.1:9"], "cannot be used with"),
    ] {
        let said = failure(arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    // Every listener counts: the first service leads to the second one's address.
    let free = free_address("127.0.0.1");
    let circle = write(
        "circle",
        &format!(
            "[[service]]\nname = \"a\"\nto = \"{free}\"\n[[service]]\nto = \"127.0.0.1:9\"\nlisten = \"{free}\"\n"
        ),
    );
    let said = failure(&["--config", &circle]);
    assert!(said.contains("service a") && said.contains("own address"), "{said}");
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = failure(&["--to", "127.0.0.1:9", "--listen", &address]);
    assert!(said.contains("cannot listen on") && said.contains("choose another"), "{said}");
}
