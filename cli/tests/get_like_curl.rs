//! `packrat get` and `packrat put` with the options of curl's users, against a real HTTP/3 server of
//! another implementation.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use packrat_real_envoy::free_port;

use crate::server::proxy::Proxy;
use crate::server::tcp::TcpServer;
use crate::server::{STALL_AFTER, Server, file};

/// Shows that a request had credentials, and must be in no message.
const PASSWORD: &str = "open-sesame";
/// Base64 of the user `me` and the password.
const ENCODED: &str = "bWU6b3Blbi1zZXNhbWU=";

fn run(command: &str, server: &Server, folder: &Path, arguments: &[&str]) -> Output {
    run_with(command, server, folder, &[], arguments)
}

fn run_with(
    command: &str,
    server: &Server,
    folder: &Path,
    environment: &[(&str, &str)],
    arguments: &[&str],
) -> Output {
    let mut packrat = Command::new(env!("CARGO_BIN_EXE_packrat"));
    packrat.current_dir(folder).args([command, "--cacert"]).arg(&server.authority).args(arguments);
    packrat.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR")).env("HOME", folder);
    packrat.env("PACKRAT_LOG", "debug,packrat=trace").stdin(Stdio::null());
    packrat.envs(environment.iter().copied());
    let output = packrat.output().unwrap();
    for secret in [PASSWORD, ENCODED] {
        assert!(!errors(&output).contains(secret), "{}", errors(&output));
    }
    output
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What the command printed.
#[track_caller]
fn printed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", errors(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
fn assert_fails(output: &Output, code: i32, message: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", errors(output));
    assert!(errors(output).contains(message), "{}", errors(output));
}

struct Place {
    server: Server,
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let names = ["localhost", "other.example", "127.0.0.1"];
        Self { server: Server::start(&names, false), folder: tempfile::tempdir().unwrap() }
    }

    fn get(&self, arguments: &[&str]) -> Output {
        run("get", &self.server, self.folder.path(), arguments)
    }

    /// The fields of a request, as the server had them.
    fn fields(&self, arguments: &[&str]) -> String {
        printed(&self.get(&[&[&self.server.url("/fields"), "-o", "-"], arguments].concat()))
    }

    /// The URL that redirects there.
    fn redirect(&self, to: &str) -> String {
        self.server.url(&format!("/to?{to}"))
    }
}

#[test]
fn redirects_are_followed_within_https_only() {
    let place = Place::new();
    let path = place.folder.path();
    let output = place.get(&["-L", &place.redirect("/file"), "-o", "moved"]);
    printed(&output);
    assert_eq!(fs::read(path.join("moved")).unwrap(), file());
    // The name comes from the user's URL.
    printed(&place.get(&["-L", &place.redirect("/file")]));
    assert_eq!(fs::read(path.join("to")).unwrap(), file());

    assert_fails(&place.get(&[&place.redirect("/file")]), 47, "-L");
    assert_fails(&place.get(&["-L", &place.server.url("/loop")]), 47, "after 10 redirects");
    assert_fails(&place.get(&["-L", &place.redirect("plain")]), 1, "only https");
    assert_fails(&place.get(&[&place.redirect("plain")]), 47, "to http://localhost/file;");
    assert_fails(&place.get(&["-L", &place.redirect("/nothing")]), 22, "404");
    assert_eq!(fs::read_dir(path).unwrap().count(), 2, "nothing is left of failures");
}

#[test]
fn a_redirect_to_another_origin_has_no_credentials() {
    let place = Place::new();
    let port = place.server.address.port();
    let user = format!("me:{PASSWORD}");
    let own = ["-L", "-u", &user, "-H", "X-Key: mine", "-H", "Accept-Language: en", "-o", "-"];
    let at = |to: &str| printed(&place.get(&[&own[..], &[&place.redirect(to)]].concat()));
    let same = at("/fields");
    assert!(same.contains("authorization: Basic") && same.contains("x-key: mine"), "{same}");
    // The same server, by another name.
    let other = at(&format!("https://127.0.0.1:{port}/fields"));
    assert!(!other.contains("authorization") && !other.contains("x-key"), "{other}");
    assert!(other.contains("accept-language: en"), "{other}");
    // A third origin that comes back gets none either.
    let back = format!("https://127.0.0.1:{port}/to?{}", place.server.url("/fields"));
    assert!(!at(&back).contains("authorization"));
}

#[test]
fn fields_and_credentials_reach_the_server() {
    let place = Place::new();
    let url = place.server.url("/fields");
    let sent = place.fields(&[
        "-H",
        "X-One: a: b",
        "-H",
        "X-Two;",
        "-H",
        "Accept:",
        "-H",
        "User-Agent: me",
    ]);
    for line in ["x-one: a: b\n", "x-two: \n", "user-agent: me\n"] {
        assert!(sent.contains(line), "{sent}");
    }
    assert!(!sent.contains("accept:"), "{sent}");

    let user = format!("me:{PASSWORD}");
    let basic = &format!("authorization: Basic {ENCODED}\n");
    assert!(place.fields(&["-u", &user]).contains(basic));
    let in_url = url.replace("localhost", &format!("{user}@localhost"));
    assert!(printed(&place.get(&[&in_url, "-o", "-"])).contains(basic));
    let bearer = place.fields(&["--oauth2-bearer", PASSWORD]);
    assert!(bearer.contains(&format!("authorization: Bearer {PASSWORD}\n")), "{bearer}");
    let netrc = format!("machine localhost login me password {PASSWORD}\n");
    fs::write(place.folder.path().join(".netrc"), &netrc).unwrap();
    assert!(place.fields(&["--netrc"]).contains(basic));
    fs::write(place.folder.path().join("logins"), &netrc).unwrap();
    assert!(place.fields(&["--netrc-file", "logins"]).contains(basic));
    assert!(!place.fields(&[]).contains("authorization"));
}

#[test]
fn wrong_fields_and_credentials_are_refused_unseen() {
    let place = Place::new();
    let url = place.server.url("/fields");
    for (arguments, code, words) in [
        (["-H", &format!("X: {PASSWORD}\r\nY: 1")], 2, "line break"),
        (["-H", &format!("Connection: {PASSWORD}")], 2, "HTTP/3"),
        (["-H", PASSWORD], 2, "Name: value"),
        (["-u", PASSWORD], 2, "USER:PASSWORD"),
        (["--oauth2-bearer", &format!("{PASSWORD}\n")], 2, "line break"),
        (["--netrc-file", "missing"], 26, "missing"),
    ] {
        assert_fails(&place.get(&[&[url.as_str()], &arguments[..]].concat()), code, words);
    }
    let malformed = format!("https://me:{PASSWORD}@localhost:port/");
    assert_fails(&place.get(&[&malformed]), 3, "not a URL");
    let missing =
        place.server.url("/nothing").replace("localhost", &format!("me:{PASSWORD}@localhost"));
    let output = place.get(&[&missing, "--json"]);
    assert_fails(&output, 22, "404");
    assert!(!String::from_utf8_lossy(&output.stdout).contains(PASSWORD));
}

#[test]
fn hosts_are_elsewhere_in_the_grammar_of_curl() {
    let place = Place::new();
    let port = place.server.address.port();
    let get = |more: &[&str]| {
        place.get(
            &[&["https://other.example/file", "-o", "file", "--connect-timeout", "5"], more]
                .concat(),
        )
    };
    printed(&get(&["--connect-to", &format!("other.example:443:127.0.0.1:{port}")]));
    printed(&get(&["--connect-to", "x:1:y:2", "--connect-to", &format!("::127.0.0.1:{port}")]));
    let rules = [
        "--connect-to",
        &format!(":::{port}"),
        "--resolve",
        &format!("other.example:{port}:127.0.0.1"),
    ];
    printed(&get(&rules));
    printed(&get(&[&rules[..], &["-4"]].concat()));
    assert_fails(&get(&[&rules[..], &["-6"]].concat()), 6, "leave -6 out");
    assert_fails(&get(&["--connect-to", "a:1:b"]), 2, "HOST1:PORT1:HOST2:PORT2");
    assert_fails(&get(&["--resolve", "a:1:b"]), 2, "HOST:PORT:ADDRESS");
}

#[test]
fn the_head_alone_is_shown() {
    let place = Place::new();
    let head = printed(&place.get(&["-I", &place.server.url("/file")]));
    assert!(head.starts_with("HTTP 200\r\n") && head.contains("etag: \"one\"\r\n"), "{head}");
    let output = place.get(&["-v", &place.server.url("/file"), "-o", "/dev/null"]);
    for line in ["* connected to 127.0.0.1", "< HTTP 200\n", "< etag: \"one\"\n"] {
        assert!(errors(&output).contains(line), "{}", errors(&output));
    }
    let heads = printed(&place.get(&["-IL", &place.redirect("/file")]));
    assert!(heads.contains("HTTP 302") && heads.contains("HTTP 200"), "{heads}");
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 0);
}

#[test]
fn a_broken_download_goes_on_within_its_retries() {
    let place = Place::new();
    let url = place.server.url("/breaking");
    let output = place.get(&[&url, "--retry", "1", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&printed(&output)).unwrap();
    assert_eq!(report["resumed_from"], STALL_AFTER);
    assert_eq!(fs::read(place.folder.path().join("breaking")).unwrap(), file());
    assert!(errors(&output).contains("next attempt in 1 s"), "{}", errors(&output));
    // Lasting errors end the attempts, and so does a target without a place for a part.
    let output = place.get(&[&place.server.url("/nothing"), "--retry", "3"]);
    assert_fails(&output, 22, "404");
    assert!(!errors(&output).contains("next attempt"));
    assert_fails(&place.get(&[&url, "--retry", "1", "-o", "-"]), 2, "name a file");
}

#[test]
fn the_habits_of_curl_are_understood() {
    let place = Place::new();
    let folder = place.folder.path();
    let (one, two) = (place.server.url("/file"), place.server.url("/fields"));
    assert_fails(&place.get(&["-C", "-", "-O", &place.server.url("/breaking")]), 18, "-C");
    printed(&place.get(&["-C", "-", "-O", &place.server.url("/breaking")]));
    assert_eq!(fs::read(folder.join("breaking")).unwrap(), file());
    let missing = place.server.url("/nothing");
    // One failure does not keep the others from their turn.
    assert_fails(&place.get(&[&one, &missing, &two]), 22, "404");
    assert!(folder.join("file").exists() && folder.join("fields").exists());
    assert_fails(&place.get(&[&one, &two, "-o", "both"]), 2, "one URL");
}

#[test]
fn over_tcp_the_fields_are_the_same() {
    let place = Place::new();
    let tcp = TcpServer::start(&place.server.identity, free_port(), "h2", None);
    let url = format!("https://localhost:{}/fields", tcp.address.port());
    let at = format!("::{}", tcp.address);
    let arguments = [&url, "-o", "-", "-H", "X-Key: mine", "--connect-to", &at];
    assert!(printed(&place.get(&arguments)).contains("x-key: mine\n"));
}

#[test]
fn what_breaks_behind_the_handshake_comes_over_tcp() {
    let place = Place::new();
    let _tcp = TcpServer::start(&place.server.identity, place.server.address.port(), "h2", None);
    let url = place.server.url("/file-over-tcp");
    let output = place.get(&[&url, "--json", "-4"]);
    let report: serde_json::Value = serde_json::from_str(&printed(&output)).unwrap();
    assert_eq!(report["protocol"], "h2");
    assert_eq!(fs::read(place.folder.path().join("file-over-tcp")).unwrap(), file());
    assert_fails(&place.get(&[&url, "-4", "--http3-only"]), 56, "broke after 0 bytes");
}

/// Both downloads share a connection, on which handshakes and signs of life pass, and no more.
#[test]
fn what_stalls_behind_the_handshake_goes_on_over_tcp() {
    let place = Place::new();
    let _tcp = TcpServer::start(&place.server.identity, place.server.address.port(), "h2", None);
    let (begun, silent) = (place.server.url("/stall"), place.server.url("/silent"));
    let output = place.get(&["-Z", &begun, &silent, "--json", "-4"]);
    for line in printed(&output).lines() {
        let report: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&report["protocol"], &report["status"]),
            (&"h2".into(), &if report["url"] == *begun { 206 } else { 200 }.into()),
            "{report}"
        );
        assert_eq!((&report["bytes"], &report["resumed_from"]), (&file().len().into(), &0.into()));
    }
    for name in ["stall", "silent"] {
        assert!(fs::read(place.folder.path().join(name)).unwrap() == file(), "{name}");
    }
}

#[test]
fn several_downloads_share_a_connection() {
    let place = Place::new();
    let url = |name: &str| place.server.url(&format!("/connection/{name}"));
    let connection = |name: &str| fs::read_to_string(place.folder.path().join(name)).unwrap();
    printed(&place.get(&[&url("a"), &url("b")]));
    printed(&place.get(&["-Z", &url("c"), &url("d"), &url("e")]));
    assert_eq!(["a", "b", "c", "d", "e"].map(connection), ["1", "1", "2", "2", "2"]);
    // A connection that breaks is followed by another one, and so is that for the next file.
    let broken = place.server.url("/file-over-tcp");
    let output = place.get(&[&url("f"), &broken, &url("g"), "--http3-only"]);
    assert_fails(&output, 56, "broke after 0 bytes");
    assert_eq!(["f", "g"].map(connection), ["3", "5"]);
    assert_fails(&place.get(&["-Z", &url("h"), &url("h")]), 2, "the same name");
}

#[test]
fn a_proxy_is_the_way_over_tcp() {
    let place = Place::new();
    let port = place.server.address.port();
    let tcp = TcpServer::start(&place.server.identity, port, "h2", None);
    let proxy = Proxy::start(tcp.address, 200);
    let at = proxy.address;
    let report =
        |output: &Output| -> serde_json::Value { serde_json::from_str(&printed(output)).unwrap() };
    let url = format!("https://other.example:{port}/file");
    let get = |environment: &[(&str, &str)], arguments: &[&str]| {
        let arguments = [&[url.as_str(), "-o", "file", "--json"], arguments].concat();
        run_with("get", &place.server, place.folder.path(), environment, &arguments)
    };

    let given = format!("me:{PASSWORD}@{at}");
    let by_option = report(&get(&[], &["--proxy", &given]));
    assert_eq!(
        (&by_option["protocol"], &by_option["proxy"]),
        (&"h2".into(), &format!("http://{at}/").into())
    );
    let head = proxy.heads.recv().unwrap();
    assert!(head.starts_with(&format!("CONNECT other.example:{port} HTTP/1.1\r\n")), "{head}");
    assert!(
        head.to_lowercase()
            .contains(&format!("proxy-authorization: basic {ENCODED}\r\n").to_lowercase()),
        "{head}"
    );
    assert_eq!(fs::read(place.folder.path().join("file")).unwrap(), file());

    let named = format!("http://{at}");
    let environment = [("HTTPS_PROXY", named.as_str()), ("NO_PROXY", "near.example")];
    let output = get(&environment, &[]);
    assert_eq!(report(&output)["protocol"], "h2");
    assert!(errors(&output).contains("passes no UDP"), "{}", errors(&output));
    assert_fails(&get(&environment, &["--http3-only"]), 2, "no HTTP proxy passes HTTP/3");
    // Without the proxy, the name leads nowhere but by the user's rule.
    let rule = format!("other.example:{port}:127.0.0.1");
    for spared in [["--noproxy", "other.example"], ["--proxy", ""]] {
        let direct = report(&get(&environment, &[&spared[..], &["--resolve", &rule]].concat()));
        assert_eq!((&direct["protocol"], &direct["proxy"]), (&"h3".into(), &().into()));
    }
    assert_fails(&get(&[("HTTPS_PROXY", "socks5://127.0.0.1:1")], &[]), 2, "not supported");
    assert_fails(
        &get(&[("HTTPS_PROXY", "http://127.0.0.1:1")], &[]),
        7,
        "through the proxy http://127.0.0.1:1/",
    );
    let refusing = Proxy::start(tcp.address, 407);
    assert_fails(
        &get(&[], &["--proxy", &refusing.address.to_string()]),
        7,
        "proxy authorization required",
    );

    let taken = format!("https://other.example:{port}/taken");
    fs::write(place.folder.path().join("data"), "data").unwrap();
    let arguments = ["data", &taken, "--resolve", &rule, "-v"];
    let output = run_with("put", &place.server, place.folder.path(), &environment, &arguments);
    printed(&output);
    for words in ["HTTPS_PROXY is not used", "* connected to 127.0.0.1", "< HTTP 201\n"] {
        assert!(errors(&output).contains(words), "{}", errors(&output));
    }
}

#[test]
fn an_upload_has_fields_and_credentials() {
    let place = Place::new();
    fs::write(place.folder.path().join("data"), "data").unwrap();
    let put = |arguments: &[&str]| run("put", &place.server, place.folder.path(), arguments);
    let user = format!("me:{PASSWORD}");
    let fields = ["-H", "X-Key: mine", "-H", "Content-Type: text/x-mine", "-u", &user];
    let url = place.server.url("/fields");
    let sent = printed(&put(&[&["data", &url, "--answer"], &fields[..]].concat()));
    let basic = format!("authorization: Basic {ENCODED}\n");
    for line in ["x-key: mine\n", "content-type: text/x-mine\n", &basic] {
        assert_eq!(sent.matches(line).count(), 1, "{sent}");
    }
    printed(&put(&[&["data", &place.server.url("/tus"), "--tus"], &fields[..]].concat()));
    let gone = put(&["data", &place.server.url("/tus/99"), "--continue"]);
    assert_fails(&gone, 33, "begin anew");
}

#[test]
fn a_vanished_upload_begins_anew_on_request() {
    let place = Place::new();
    fs::write(place.folder.path().join("data"), "data").unwrap();
    let put = |arguments: &[&str]| run("put", &place.server, place.folder.path(), arguments);
    let url = place.server.url("/tus-forgetting");
    let output = put(&["data", &url, "--tus", "--restart"]);
    printed(&output);
    assert!(errors(&output).contains("no such upload any more"), "{}", errors(&output));
    let forgotten = format!("{url}/0");
    assert_fails(&put(&["data", &forgotten, "--continue"]), 33, "--restart");
}
