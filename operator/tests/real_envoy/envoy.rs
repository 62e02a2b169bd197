//! A real Envoy, started as a gateway is, with the operator's own bootstrap configuration.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use packrat_operator::certificates::Issued;
use packrat_operator::envoy::RUN_DIRECTORY;
use packrat_operator::object_key::ObjectKey;
use packrat_operator::workload::{self, BOOTSTRAP_DIRECTORY, Platform};
use packrat_real_envoy::{Envoy, module_directory};
use serde_json::Value;

/// A start by `packrat-start`.
pub(crate) struct Entry {
    /// Address at which Envoy looks for the operator.
    pub(crate) operator: SocketAddr,
    /// The last listeners.
    pub(crate) last: Vec<u8>,
    /// The last clusters; `None`: the file of an operator that had no clusters.
    pub(crate) clusters: Option<Vec<u8>>,
}

/// Writes the files of a gateway, as its Pod has them; the configuration of its page.
fn configure(
    path: &Path,
    key: &ObjectKey,
    certificate: &Issued,
    authorities: &str,
    operator: SocketAddr,
    memory: u64,
) -> String {
    let platform = Platform {
        discovery_host: "localhost".to_owned(),
        discovery_port: operator.port(),
        listen_address: "127.0.0.1".to_owned(),
        ..Platform::default()
    };
    let client = path.join("client");
    fs::create_dir(&client).unwrap();
    write_certificates(&client, certificate, authorities);
    let text_of_path = path.to_str().unwrap();
    let mounted = client.to_str().unwrap();
    for (file, content) in [
        ("client.json", workload::certificate_file("client", mounted, false)),
        ("authority.json", workload::certificate_file("authority", mounted, true)),
    ] {
        fs::write(path.join(file), content.to_string()).unwrap();
    }
    // As on the host network: a second page, at the address of the Pod.
    let mut bootstrap = workload::bootstrap(key, &platform, true, Some(memory));
    // Ports of this machine are not a Pod's.
    let mut page: Value = serde_json::from_str(&workload::node_page()).unwrap();
    for of in [&mut bootstrap, &mut page] {
        of["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"] =
            0.into();
    }
    let page = page.to_string().replace("$(POD_IP)", &operator.ip().to_string());
    let family = if operator.is_ipv4() { "V4_ONLY" } else { "V6_ONLY" };
    bootstrap["static_resources"]["clusters"][1]["dns_lookup_family"] = family.into();
    let text = bootstrap.to_string().replace(BOOTSTRAP_DIRECTORY, text_of_path);
    let text = text.replace(RUN_DIRECTORY, text_of_path);
    fs::write(path.join("envoy.json"), text).unwrap();
    page
}

/// Starts a gateway of `key`, with this certificate and trust in these authorities, that asks the
/// operator at `operator`, and waits until it lives.
pub(crate) fn start(
    program: &Path,
    key: &ObjectKey,
    certificate: &Issued,
    authorities: &str,
    operator: SocketAddr,
    memory: u64,
    entry: Option<&Entry>,
) -> Envoy {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let page = configure(path, key, certificate, authorities, operator, memory);
    let last = path.join("last");
    fs::create_dir(&last).unwrap();
    let here = path.to_owned();
    let first = match entry {
        Some(_) => Path::new(env!("CARGO_BIN_EXE_packrat-start")),
        None => program,
    };
    let envoy = Envoy::spawn(first, directory, "envoy.json", |command| {
        if let Some(entry) = entry {
            fs::write(last.join("listeners.pb"), &entry.last).unwrap();
            if let Some(clusters) = &entry.clusters {
                fs::write(last.join("clusters.pb"), clusters).unwrap();
            }
            command
                .env("PACKRAT_ENVOY", program)
                .env("PACKRAT_OPERATOR", entry.operator.to_string())
                .env("PACKRAT_LAST_CONFIGURATION", last.join("listeners.pb"))
                .env("PACKRAT_ADMIN", here.join("admin.sock"))
                .envs([
                    ("PACKRAT_PATIENCE", "1"),
                    ("PACKRAT_INTERVAL", "1"),
                    ("PACKRAT_SPREAD", "1"),
                ]);
        }
        command
            .args(["--config-yaml", &page])
            .args(["--service-node", "edge-0", "--service-cluster", &key.to_string()])
            .args(["--component-log-level", "dynamic_modules:info"])
            .args(["--concurrency", "2", "--drain-time-s", "20"])
            .env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", module_directory());
    });
    envoy.wait_until("Envoy's administration interface", |envoy| !envoy.get("/stats").is_empty());
    envoy
}

/// The socket of an Envoy's administration interface.
pub(crate) fn admin(envoy: &Envoy) -> PathBuf {
    envoy.directory().join("admin.sock")
}

/// Puts another certificate into the place of its own, as the kubelet does when a Secret changes,
/// and waits until Envoy has read it.
pub(crate) fn replace_certificates(envoy: &Envoy, certificate: &Issued, authorities: &str) {
    let updates = |envoy: &Envoy| {
        let stats = envoy.get("/stats?filter=ssl_context_update_by_sds$");
        stats.trim().rsplit(' ').next().and_then(|count| count.parse::<u64>().ok())
    };
    let mounted = envoy.directory().join("client");
    let former = fs::read_to_string(mounted.join("ca.crt")).unwrap();
    let before = updates(envoy).unwrap();
    write_certificates(&mounted, certificate, authorities);
    // Envoy does not count secrets that have not changed.
    let expected = before + 1 + u64::from(former != authorities);
    envoy.wait_until("Envoy to read the certificates", |envoy| updates(envoy) >= Some(expected));
}

/// The listeners that Envoy has from the operator: name, version, configuration.
pub(crate) fn listeners(envoy: &Envoy) -> Vec<(String, String, Value)> {
    let dump: Value = serde_json::from_str(&envoy.get("/config_dump?resource=dynamic_listeners"))
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

/// Writes the files of a gateway's Secret as the kubelet mounts them: into a folder beside, to
/// which a link is moved, so that all of them change at once.
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
