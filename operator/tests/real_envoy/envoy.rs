//! A real Envoy, started as a gateway is, with the operator's own bootstrap configuration.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use packrat_operator::annotations::ObjectKey;
use packrat_operator::certificates::Issued;
use packrat_operator::workload::{self, BOOTSTRAP_DIRECTORY, Platform};
use serde_json::Value;
use tempfile::TempDir;

/// Longest time that a test waits for something that has to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The Envoy of `PACKRAT_ENVOY`, or the one that `make` has installed. `None`, with a line that says so, when there is none;
/// with `CI=true` that is a failure.
pub(crate) fn find_envoy() -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let installed = workspace.join(".packrat/venv/bin/envoy");
    let envoy = std::env::var_os("PACKRAT_ENVOY").map_or(installed, PathBuf::from);
    if envoy.exists() {
        return Some(envoy);
    }
    let hint = format!("no Envoy at {}: set PACKRAT_ENVOY or run `make demo-parts` once", envoy.display());
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{hint}");
    println!("SKIPPED: {hint}");
    None
}

/// A port that is free for UDP and TCP. Below those that the system chooses by itself, so that no socket of anybody gets it before the
/// one that it is meant for.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Each process begins somewhere else.
    let seed = u16::try_from(std::process::id().wrapping_mul(2_654_435_761) >> 18).unwrap();
    loop {
        let port = 10_000 + (seed + NEXT.fetch_add(1, Ordering::Relaxed) % 1000) % 20_000;
        if UdpSocket::bind(("0.0.0.0", port)).is_ok() && TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// A running Envoy; killed when it is dropped.
pub(crate) struct Envoy {
    process: Child,
    directory: TempDir,
    admin: SocketAddr,
}

impl Envoy {
    /// Starts a gateway of `key`, with this certificate and trust in these authorities, that asks the operator at `operator`, and waits
    /// until it lives.
    pub(crate) fn start(
        program: &Path,
        key: &ObjectKey,
        certificate: &Issued,
        authorities: &str,
        operator: SocketAddr,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let platform = Platform {
            image: String::new(),
            discovery_host: "localhost".to_owned(),
            discovery_port: operator.port(),
            listen_address: "127.0.0.1".to_owned(),
        };
        let client = path.join("client");
        fs::create_dir(&client).unwrap();
        write_certificates(&client, certificate, authorities);
        let here = path.to_str().unwrap();
        let mounted = client.to_str().unwrap();
        for (file, content) in [
            ("client.json", workload::certificate_file("client", mounted, false)),
            ("authority.json", workload::certificate_file("authority", mounted, true)),
        ] {
            fs::write(path.join(file), content.to_string()).unwrap();
        }
        // As on the host network: a second page, at the address of the Pod.
        let mut bootstrap = workload::bootstrap(key, &platform, true);
        let admin_port = free_port();
        bootstrap["admin"]["address"]["socket_address"]["port_value"] = admin_port.into();
        bootstrap["static_resources"]["clusters"][0]["load_assignment"] =
            workload::administration(admin_port)["load_assignment"].take();
        // Ports of this machine are not a Pod's.
        let mut page: Value = serde_json::from_str(&workload::node_page()).unwrap();
        for of in [&mut bootstrap, &mut page] {
            of["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"] = 0.into();
        }
        let page = page.to_string().replace("$(POD_IP)", &operator.ip().to_string());
        let family = if operator.is_ipv4() { "V4_ONLY" } else { "V6_ONLY" };
        bootstrap["static_resources"]["clusters"][1]["dns_lookup_family"] = family.into();
        let text = bootstrap.to_string().replace(BOOTSTRAP_DIRECTORY, here);
        fs::write(path.join("envoy.json"), text).unwrap();
        let modules = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        assert!(
            modules.join("libpackrat_envoy.so").exists(),
            "no libpackrat_envoy.so in {}: run `cargo build -p packrat-envoy`",
            modules.display()
        );
        let log = fs::File::create(path.join("log")).unwrap();
        let process = Command::new(program)
            .arg("--config-path")
            .arg(path.join("envoy.json"))
            .args(["--config-yaml", &page])
            .arg("--admin-address-path")
            .arg(path.join("admin"))
            .args(["--service-node", "edge-0", "--service-cluster", &key.to_string()])
            .args(["--log-level", "warning", "--component-log-level", "dynamic_modules:info"])
            .args(["--use-dynamic-base-id", "--concurrency", "2", "--drain-time-s", "20"])
            .env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", modules)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut envoy = Self { process, directory, admin: ([127, 0, 0, 1], 0).into() };
        let mut admin = None;
        envoy.wait_until("Envoy's administration address", |envoy| {
            let text = fs::read_to_string(envoy.directory.path().join("admin")).unwrap_or_default();
            admin = text.trim().parse().ok();
            admin.is_some()
        });
        envoy.admin = admin.unwrap();
        envoy
    }

    /// Puts another certificate into the place of its own, as the kubelet does when a Secret changes, and waits until Envoy has read it.
    pub(crate) fn replace_certificates(&self, certificate: &Issued, authorities: &str) {
        let updates = |envoy: &Self| {
            let stats = envoy.request("GET", "/stats?filter=ssl_context_update_by_sds$");
            stats.trim().rsplit(' ').next().and_then(|count| count.parse::<u64>().ok())
        };
        let mounted = self.directory.path().join("client");
        let former = fs::read_to_string(mounted.join("ca.crt")).unwrap();
        let before = updates(self).unwrap();
        write_certificates(&mounted, certificate, authorities);
        // What has not changed is not counted.
        let expected = before + 1 + u64::from(former != authorities);
        self.wait_until("Envoy to read the certificates", |envoy| updates(envoy) >= Some(expected));
    }

    /// Envoy's administration address.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The listeners that Envoy has from the operator: name, version, configuration.
    pub(crate) fn listeners(&self) -> Vec<(String, String, Value)> {
        let dump: Value =
            serde_json::from_str(&self.request("GET", "/config_dump?resource=dynamic_listeners"))
                .unwrap_or_default();
        let mut listeners: Vec<_> = dump["configs"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|listener| listener["active_state"].is_object())
            .map(|listener| {
                (
                    listener["name"].as_str().unwrap_or_default().to_owned(),
                    listener["active_state"]["version_info"].as_str().unwrap_or_default().to_owned(),
                    listener["active_state"]["listener"].clone(),
                )
            })
            .collect();
        listeners.sort_by(|a, b| a.0.cmp(&b.0));
        listeners
    }

    /// A request to the administration interface.
    pub(crate) fn request(&self, method: &str, path: &str) -> String {
        let Ok(mut stream) = TcpStream::connect(self.admin) else { return String::new() };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let mut answer = String::new();
        if stream.write_all(request.as_bytes()).is_err() || stream.read_to_string(&mut answer).is_err() {
            return String::new();
        }
        let Some((head, body)) = answer.split_once("\r\n\r\n") else { return String::new() };
        if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            without_chunks(body)
        } else {
            body.to_owned()
        }
    }

    /// What Envoy has written.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn wait_until(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            assert!(
                start.elapsed() < PATIENCE,
                "waited in vain for {what}; Envoy's log:\n{}\nits listeners:\n{}\nits connection:\n{}",
                self.log(),
                self.request("GET", "/config_dump?resource=dynamic_listeners&mask=name,active_state.version_info,warming_state.version_info,error_state"),
                self.request("GET", "/stats?usedonly&filter=packrat-operator|lds|sds"),
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Writes what is in a gateway's Secret into the folder where it is mounted: into a folder beside, to which a link is moved, so that
/// all of it changes at once.
fn write_certificates(mounted: &Path, certificate: &Issued, authorities: &str) {
    let number = fs::read_dir(mounted).unwrap().count();
    let version = mounted.join(format!("version-{number}"));
    fs::create_dir(&version).unwrap();
    for (file, content) in [
        ("tls.crt", certificate.certificate.as_str()),
        ("tls.key", certificate.key.as_str()),
        ("ca.crt", authorities),
    ] {
        fs::write(version.join(file), content).unwrap();
        let link = mounted.join(file);
        if !link.is_symlink() {
            symlink(Path::new("..data").join(file), link).unwrap();
        }
    }
    symlink(&version, mounted.join("..next")).unwrap();
    fs::rename(mounted.join("..next"), mounted.join("..data")).unwrap();
}

/// A body without the lengths of its chunks (RFC 9112, section 7.1).
fn without_chunks(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((length, after)) = rest.split_once("\r\n")
        && let Ok(length) = usize::from_str_radix(length, 16)
        && let Some(chunk) = after.get(..length)
        && length > 0
    {
        body.push_str(chunk);
        rest = after.get(length + 2..).unwrap_or_default();
    }
    body
}
