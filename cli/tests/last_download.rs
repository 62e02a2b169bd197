//! The findings of `packrat get` about its path, in `packrat plan` and `packrat stat`.

use lossy_path::LossyPath;
use serde_json::Value;
use server::Server;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::lossy_path;
use crate::server;

/// A user without a cluster.
struct User(tempfile::TempDir);

impl User {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn packrat(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_packrat"))
            .current_dir(self.0.path())
            .args(arguments)
            .env("XDG_STATE_HOME", self.0.path())
            .env("KUBECONFIG", self.0.path().join("no-kubeconfig"))
            .env_remove("PACKRAT_GATEWAY")
            .output()
            .unwrap()
    }

    fn get(&self, server: &Server, arguments: &[&str]) -> Output {
        let authority = server.authority.to_str().unwrap();
        let url = server.url("/file?token=secret");
        let common = ["get", &url, "--silent", "--cacert", authority, "-o", "downloaded"];
        self.packrat(&[&common[..], arguments].concat())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("packrat/last-download.json")
    }
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_plan_without_arguments_is_for_the_last_assisted_path() {
    let (server, user) = (Server::start(&["localhost"], false), User::new());
    let path = LossyPath::to(server.address);

    let nothing = user.packrat(&["plan"]);
    assert!(!nothing.status.success() && said(&nothing).is_empty());
    assert!(errors(&nothing).contains("no cluster to look at"), "{nothing:?}");

    let connect_to = path.address();
    let output = user.get(&server, &["--connect-to", &connect_to]);
    assert!(output.status.success(), "{}", errors(&output));
    // The URL may have secrets.
    assert!(!fs::read_to_string(user.file()).unwrap().contains("secret"));
    let remembered = read(&user.file());
    let number = |key: &str| remembered[key].as_f64().unwrap_or_else(|| panic!("{remembered:#}"));
    assert_eq!(remembered["assisted"], true);
    assert!(number("last_mile_round_trip_seconds") >= 0.01, "{remembered:#}");
    assert!(number("round_trip_seconds") >= 0.01, "{remembered:#}");
    assert!((0.001..1.0).contains(&number("loss_ratio")), "{remembered:#}");

    let output = user.packrat(&["plan"]);
    let text = said(&output);
    assert!(output.status.success(), "{output:?}");
    assert!(
        text.contains("The last download from here") && text.contains("(last download)"),
        "{text}"
    );
    // The text explains why it is not a gateway's measurement.
    assert!(errors(&output).contains("no cluster to look at"), "{output:?}");
    let plan: Value =
        serde_json::from_slice(&user.packrat(&["plan", "--far-ms", "50", "-o", "json"]).stdout)
            .unwrap();
    assert_eq!(plan["sources"]["far_round_trip"], "given");
    assert_eq!(plan["sources"]["last_mile_loss"], "last download");
    assert_eq!(plan["last_mile_loss_ratio"], remembered["loss_ratio"]);
    assert_eq!(plan["last_download"], remembered);

    // No gateway can be asked, which is an error; the last download is shown all the same.
    let output = user.packrat(&["stat"]);
    assert!(
        !output.status.success() && said(&output).contains("assisted by a gateway"),
        "{output:?}"
    );
    // Who names a gateway wants to know about that one.
    let output = user.packrat(&["stat", "--gateway", "http://127.0.0.1:1"]);
    assert!(!output.status.success() && said(&output).is_empty(), "{output:?}");
}

#[test]
fn a_damaged_memory_is_told_and_the_next_download_replaces_it() {
    let (server, user) = (Server::start(&["localhost"], false), User::new());
    fs::create_dir_all(user.file().parent().unwrap()).unwrap();
    fs::write(user.file(), "{\"version\": 0}").unwrap();
    let output = user.packrat(&["plan"]);
    assert!(!output.status.success());
    assert!(errors(&output).contains("is damaged, or of another version"), "{output:?}");
    assert_eq!(fs::read_to_string(user.file()).unwrap(), "{\"version\": 0}");

    let output = user.get(&server, &[]);
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(read(&user.file())["assisted"], false);
    let output = user.packrat(&["plan"]);
    let text = said(&output);
    assert!(!output.status.success(), "{output:?}");
    for part in ["without assistance; the whole path", "does not tell the last mile's round trip"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_download_succeeds_even_if_it_cannot_be_remembered() {
    let (server, user) = (Server::start(&["localhost"], false), User::new());
    fs::write(user.file().parent().unwrap(), "not a folder").unwrap();
    let output = user.get(&server, &[]);
    assert!(output.status.success() && errors(&output).is_empty(), "{output:?}");
    let authority = server.authority.to_str().unwrap();
    let output = user.packrat(&["get", &server.url("/file"), "--cacert", authority, "-o", "other"]);
    assert!(output.status.success(), "{output:?}");
    assert!(
        errors(&output).contains("this download is not remembered for `packrat plan`"),
        "{output:?}"
    );
}
