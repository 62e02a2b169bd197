//! The services, of the command line or of a file, checked and resolved.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use listenfd::ListenFd;
use packrat_agent::{
    Access, Allowed, Choosing, ClientConfig, DontFragment, IdentifierScheme, Limits,
    MOST_ALLOCATIONS, Service, SocksListener, Target, Token, TurnCredentials, TurnListener, choose,
};
use packrat_token_client::gateway_key;
use rustls::pki_types::CertificateDer;
use serde::Deserialize;

use super::limits::{OTHER_DESCRIPTORS, limits};
use super::options::AgentOptions;
use super::pages::check_metrics;
use crate::assist_token;
use crate::http3::token::TokenSource;
use crate::http3::{Request, host_and_port, read_certificates};

/// Descriptors of all associations of a SOCKS listener.
const OF_SOCKS: u64 = 2048;

/// A file with services.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    metrics: Option<SocketAddr>,
    #[serde(default)]
    allow_remote: bool,
    #[serde(default)]
    allow_remote_metrics: bool,
    flows: Option<NonZeroU32>,
    idle_seconds: Option<NonZeroU32>,
    cacert: Option<PathBuf>,
    #[serde(default)]
    service: Vec<Entry>,
    socks: Option<Socks>,
    turn: Option<Turn>,
}

/// The TURN server of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Turn {
    listen: SocketAddr,
    #[serde(default)]
    users: BTreeMap<String, String>,
    secret_file: Option<PathBuf>,
    #[serde(default)]
    allow: Vec<String>,
    gateway_key: Option<String>,
    maximum_hold_ms: Option<u64>,
    #[serde(default)]
    uploads: bool,
    #[serde(default)]
    dont_fragment: DontFragment,
    assist_token_file: Option<PathBuf>,
}

/// The listener of a file for programs that choose their destinations.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Socks {
    listen: SocketAddr,
    #[serde(default)]
    allow: Vec<String>,
    gateway_key: Option<String>,
    maximum_hold_ms: Option<u64>,
    #[serde(default)]
    uploads: bool,
    #[serde(default)]
    dont_fragment: DontFragment,
    assist_token_file: Option<PathBuf>,
}

/// A service of a configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Option<String>,
    to: String,
    listen: Option<SocketAddr>,
    gateway_key: Option<String>,
    maximum_hold_ms: Option<u64>,
    #[serde(default)]
    uploads: bool,
    #[serde(default)]
    dont_fragment: DontFragment,
    assist_token_from: Option<String>,
    assist_token_file: Option<PathBuf>,
}

/// Source of a service's tokens.
pub(super) struct Tokens {
    pub(super) service: usize,
    pub(super) source: Source,
    /// The settings, with the token of the file.
    pub(super) access: Access,
}

/// A source of tokens.
pub(super) enum Source {
    Endpoint(TokenSource, Box<Request>),
    File(PathBuf),
}

/// Everything that an agent needs.
pub(super) struct Plan {
    pub(super) services: Vec<Service>,
    pub(super) choosing: Choosing,
    /// The hosts of the services, as they were given.
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) tokens: Vec<Tokens>,
    pub(super) limits: Limits,
    pub(super) metrics: Option<SocketAddr>,
}

impl Plan {
    /// Reads files, resolves hosts and opens sockets.
    ///
    /// # Errors
    /// A sentence that names the mistake and the remedy.
    pub(super) fn new(options: &AgentOptions) -> Result<Self, String> {
        let file = match &options.config {
            Some(path) => read(path)?,
            None => of_options(options)?,
        };
        if file.service.is_empty() && file.socks.is_none() && file.turn.is_none() {
            return Err(
                "the configuration names no service; add one with [[service]], or [socks] or [turn]"
                    .to_owned(),
            );
        }
        let limits = limits_of(options, &file);
        let authorities = options.cacert.as_ref().or(file.cacert.as_ref());
        let authorities = authorities.map(|path| read_certificates(path)).transpose();
        let authorities = authorities.map_err(|error| error.to_string())?.unwrap_or_default();
        let allow_remote = options.allow_remote || file.allow_remote;
        let metrics = options.metrics.or(file.metrics);
        let allow_remote_metrics = options.allow_remote_metrics || file.allow_remote_metrics;
        if let Some(address) = metrics {
            check_metrics(address, allow_remote_metrics)?;
        }
        let mut plan = Self {
            services: Vec::new(),
            choosing: Choosing::default(),
            hosts: Vec::new(),
            tokens: Vec::new(),
            limits,
            metrics,
        };
        // Sockets that systemd has opened, in the order of its unit.
        let mut passed = ListenFd::from_env();
        for (index, entry) in file.service.into_iter().enumerate() {
            let name = entry.name.clone().unwrap_or_else(|| entry.to.clone());
            plan.add_service(index, &name, entry, &mut passed, allow_remote, &authorities)
                .map_err(|error| format!("service {name}: {error}"))?;
        }
        if let Some(socks) = file.socks {
            plan.add_socks(socks, allow_remote).map_err(|error| format!("socks: {error}"))?;
        }
        if let Some(turn) = file.turn {
            plan.add_turn(turn, allow_remote).map_err(|error| format!("turn: {error}"))?;
        }
        Ok(plan)
    }

    fn add_service(
        &mut self,
        index: usize,
        name: &str,
        entry: Entry,
        passed: &mut ListenFd,
        allow_remote: bool,
        authorities: &[CertificateDer<'static>],
    ) -> Result<(), String> {
        let (host, to) = resolve(&entry.to)?;
        let socket = socket(passed, index, entry.listen, allow_remote, to)?;
        let access = entry.access()?;
        if let Some(source) = &entry.assist_token_from {
            let Ok(source) = source.parse::<TokenSource>();
            let of_host = format!("https://{}", entry.to);
            let url = if let TokenSource::Url(url) = &source { url } else { &of_host };
            let mut request = Request::new(url).map_err(|error| error.to_string())?;
            request.trust.additional = authorities.to_vec();
            let source = Source::Endpoint(source, Box::new(request));
            self.tokens.push(Tokens { service: index, source, access: access.clone() });
        }
        if let Some(path) = entry.assist_token_file {
            let source = Source::File(path);
            self.tokens.push(Tokens { service: index, source, access: access.clone() });
        }
        // A program's datagrams need not end in random bytes.
        let config = ClientConfig::from(access).with_scheme(IdentifierScheme::Payload);
        let config = config.with_uploads(entry.uploads);
        let dont_fragment = entry.dont_fragment;
        let (name, to) = (name.to_owned(), Target::Service(to));
        self.services.push(Service { name, socket, to, config, dont_fragment });
        self.hosts.push(host);
        Ok(())
    }

    fn add_socks(&mut self, socks: Socks, allow_remote: bool) -> Result<(), String> {
        if let Some(path) = socks.assist_token_file.clone() {
            let (service, access) = (self.services.len(), socks.access()?);
            self.tokens.push(Tokens { service, source: Source::File(path), access });
        }
        self.choosing.socks = Some(socks.open(allow_remote)?);
        Ok(())
    }

    fn add_turn(&mut self, turn: Turn, allow_remote: bool) -> Result<(), String> {
        if let Some(path) = turn.assist_token_file.clone() {
            let service = self.services.len() + self.choosing.socks.iter().len();
            let access = turn.access()?;
            self.tokens.push(Tokens { service, source: Source::File(path), access });
        }
        self.choosing.turn = Some(turn.open(allow_remote)?);
        Ok(())
    }
}

fn limits_of(options: &AgentOptions, file: &File) -> Limits {
    let defaults = limits(
        "agent",
        options.flows.or(file.flows.map(NonZeroU32::get)),
        OTHER_DESCRIPTORS
            + file.service.len() as u64
            + file.socks.iter().len() as u64 * OF_SOCKS
            + file.turn.iter().len() as u64 * MOST_ALLOCATIONS as u64,
    );
    Limits {
        idle: options
            .idle
            .or(file.idle_seconds.map(NonZeroU32::get))
            .map_or(defaults.idle, |seconds| Duration::from_secs(seconds.into())),
        ..defaults
    }
}

impl Entry {
    fn access(&self) -> Result<Access, String> {
        access(self.gateway_key.as_deref(), self.maximum_hold_ms, self.assist_token_file.as_deref())
    }
}

impl Socks {
    fn access(&self) -> Result<Access, String> {
        access(self.gateway_key.as_deref(), self.maximum_hold_ms, self.assist_token_file.as_deref())
    }

    fn open(self, allow_remote: bool) -> Result<SocksListener, String> {
        let config = ClientConfig::from(self.access()?).with_scheme(IdentifierScheme::Payload);
        let config = config.with_uploads(self.uploads);
        let (listen, allow) = (self.listen, rules(&self.allow)?);
        check_chooser(listen, allow_remote, &allow, "--socks-allow")?;
        let socket = TcpListener::bind(listen).map_err(|error| {
            format!("cannot listen on {listen}: {error}; choose another address with --socks")
        })?;
        let name = "socks".to_owned();
        Ok(SocksListener { name, socket, config, dont_fragment: self.dont_fragment, allow })
    }
}

impl Turn {
    fn access(&self) -> Result<Access, String> {
        let (key, token) = (self.gateway_key.as_deref(), self.assist_token_file.as_deref());
        let mut access = access(key, self.maximum_hold_ms, token)?;
        access.maximum_hold = TurnListener::maximum_hold(access.maximum_hold);
        Ok(access)
    }

    fn open(self, allow_remote: bool) -> Result<TurnListener, String> {
        let config = TurnListener::config(self.access()?).with_uploads(self.uploads);
        let (listen, allow) = (self.listen, rules(&self.allow)?);
        check_chooser(listen, allow_remote, &allow, "--turn-allow")?;
        let secret = self.secret_file.as_deref().map(read_secret).transpose()?;
        let credentials = TurnCredentials { users: self.users, secret };
        if credentials.users.is_empty() && credentials.secret.is_none() {
            return Err(
                "every page could send through it; name users (--turn-user), or a secret (--turn-secret-file)"
                    .to_owned(),
            );
        }
        let socket = UdpSocket::bind(listen).map_err(|error| {
            format!("cannot listen on {listen}: {error}; choose another address with --turn")
        })?;
        let (name, dont_fragment) = ("turn".to_owned(), self.dont_fragment);
        Ok(TurnListener { name, socket, config, dont_fragment, credentials, allow })
    }
}

fn rules(allow: &[String]) -> Result<Vec<Allowed>, String> {
    allow.iter().map(|rule| rule.parse().map_err(|error| format!("allow: {error}"))).collect()
}

/// Fails if other machines could choose destinations, unless they may, and these are named.
fn check_chooser(
    listen: SocketAddr,
    allow_remote: bool,
    allow: &[Allowed],
    option: &str,
) -> Result<(), String> {
    if listen.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    if !allow_remote {
        return Err(format!(
            "other machines can reach {listen}, and could send through this one; listen on 127.0.0.1, or allow it with \
             --allow-remote"
        ));
    }
    if allow.is_empty() {
        return Err(format!(
            "other machines can reach {listen}, and could send anywhere through this one; name the destinations with \
             {option}"
        ));
    }
    Ok(())
}

fn read_secret(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the secret {}: {error}", path.display()))?;
    match text.trim() {
        "" => Err(format!("the secret {} is empty", path.display())),
        secret => Ok(secret.to_owned()),
    }
}

fn access(
    key: Option<&str>,
    maximum_hold_ms: Option<u64>,
    token: Option<&Path>,
) -> Result<Access, String> {
    let mut access = Access::default();
    if let Some(key) = key {
        access.gateway_key =
            Some(gateway_key(key).map_err(|error| format!("gateway_key: {error}"))?);
    }
    if let Some(hold) = maximum_hold_ms {
        access.maximum_hold = Duration::from_millis(hold);
    }
    if let Some(path) = token {
        access.token = read_token(path)?;
    }
    Ok(access)
}

fn read(path: &Path) -> Result<File, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the configuration {}: {error}", path.display()))?;
    toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The settings of the command line, as a file with one service, SOCKS and TURN.
fn of_options(options: &AgentOptions) -> Result<File, String> {
    if options.to.is_none() && options.socks.is_none() && options.turn.is_none() {
        return Err("give --to HOST:PORT, --socks ADDR, --turn ADDR or --config FILE".to_owned());
    }
    let key = || options.assistance.gateway_key.map(|key| packrat_wire::hexadecimal::encode(&key));
    let socks = options.socks.map(|listen| Socks {
        listen,
        allow: options.socks_allow.clone(),
        gateway_key: key(),
        maximum_hold_ms: options.assistance.maximum_hold,
        uploads: options.assistance.uploads,
        dont_fragment: options.assistance.dont_fragment,
        assist_token_file: options.assistance.assist_token_file.clone(),
    });
    let turn = options.turn.map(|listen| Turn {
        listen,
        users: options.turn_users.turn_user.iter().cloned().collect(),
        secret_file: options.turn_users.turn_secret_file.clone(),
        allow: options.turn_users.turn_allow.clone(),
        gateway_key: key(),
        maximum_hold_ms: options.assistance.maximum_hold,
        uploads: options.assistance.uploads,
        dont_fragment: options.assistance.dont_fragment,
        assist_token_file: options.assistance.assist_token_file.clone(),
    });
    let service = options.to.clone().map(|to| Entry {
        name: None,
        to,
        listen: options.listen,
        gateway_key: key(),
        maximum_hold_ms: options.assistance.maximum_hold,
        uploads: options.assistance.uploads,
        dont_fragment: options.assistance.dont_fragment,
        assist_token_from: options.assistance.assist_token_from.as_ref().map(
            |source| match source {
                TokenSource::SameHost => "auto".to_owned(),
                TokenSource::Url(url) => url.clone(),
            },
        ),
        assist_token_file: options.assistance.assist_token_file.clone(),
    });
    Ok(File { service: service.into_iter().collect(), socks, turn, ..File::default() })
}

/// The token in a file.
///
/// # Errors
/// A sentence that names the mistake.
pub(crate) fn read_token(path: &Path) -> Result<Token, String> {
    let fault =
        |error: String| format!("cannot use the assist token of {}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
    assist_token::read(text.trim()).map_err(fault)
}

/// The host as it was given, and its first address with a route.
fn resolve(to: &str) -> Result<((String, u16), SocketAddr), String> {
    let (host, port) = host_and_port(to).map_err(|error| format!("{to:?}: {error}"))?;
    let found = (host.as_str(), port).to_socket_addrs().map_err(|error| {
        format!("cannot resolve the host {host:?}: {error}; check the spelling and the name server")
    })?;
    let address = choose(found).ok_or_else(|| format!("the host {host:?} has no address"))?;
    if port == 0 {
        return Err(format!("{to:?}: a datagram cannot be sent to port 0"));
    }
    Ok(((host, port), address))
}

/// The socket that programs send to.
fn socket(
    passed: &mut ListenFd,
    index: usize,
    listen: Option<SocketAddr>,
    allow_remote: bool,
    to: SocketAddr,
) -> Result<UdpSocket, String> {
    let socket = if index < passed.len() {
        let taken = passed.take_udp_socket(index);
        taken
            .map_err(|error| {
                format!("socket {index} that systemd has passed is no UDP socket: {error}")
            })?
            .ok_or_else(|| format!("socket {index} that systemd has passed was taken already"))?
    } else {
        let listen = listen.unwrap_or_else(|| ([127, 0, 0, 1], 0).into());
        UdpSocket::bind(listen).map_err(|error| {
            format!("cannot listen on {listen}: {error}; choose another address with --listen")
        })?
    };
    let address = socket.local_addr().map_err(|error| error.to_string())?;
    if !address.ip().to_canonical().is_loopback() && !allow_remote {
        return Err(format!(
            "other machines can reach {address}, and could send to {to} through this one; listen on 127.0.0.1, or allow it \
             with --allow-remote"
        ));
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_strictly() {
        let file: File = toml::from_str(
            "metrics = \"127.0.0.1:0\"\n[[service]]\nto = \"localhost:1\"\nmaximum_hold_ms = 50\nuploads = true\n",
        )
        .unwrap();
        assert_eq!(file.service.len(), 1);
        assert!(file.service[0].uploads && file.socks.is_none());
        assert_eq!(file.service[0].access().unwrap().maximum_hold, Duration::from_millis(50));
        for wrong in [
            "speed = 1",
            "[socks]\nallow = []",
            "[turn]\nusers = {}",
            "[[service]]\nlisten = \"x\"",
            "[[service]]\nto = \"a:1\"\nmode = 3",
        ] {
            assert!(toml::from_str::<File>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_this_machine_may_use_the_agent_unless_that_is_said() {
        let mut none = ListenFd::empty();
        let to: SocketAddr = "192.0.2.1:443".parse().unwrap();
        let mut open =
            |listen: &str, allowed| socket(&mut none, 0, listen.parse().ok(), allowed, to);
        assert!(open("127.0.0.1:0", false).is_ok());
        assert!(open("0.0.0.0:0", false).unwrap_err().contains("--allow-remote"));
        assert!(open("0.0.0.0:0", true).is_ok());
    }

    #[test]
    fn a_turn_server_needs_users_and_names_its_destinations() {
        let open = |text: &str, allow_remote| {
            let file: File = toml::from_str(&format!("[turn]\n{text}")).unwrap();
            file.turn.unwrap().open(allow_remote).map(|turn| turn.config.access.maximum_hold)
        };
        let user = "users = { page = \"secret\" }\n";
        let at = |listen: &str, more: &str| format!("listen = \"{listen}:0\"\n{user}{more}");
        assert_eq!(open(&at("127.0.0.1", ""), false), Ok(Duration::from_millis(200)));
        let short = at("127.0.0.1", "maximum_hold_ms = 50");
        assert_eq!(open(&short, false), Ok(Duration::from_millis(50)));
        assert!(open("listen = \"127.0.0.1:0\"", false).unwrap_err().contains("users"));
        let missing = "listen = \"127.0.0.1:0\"\nsecret_file = \"/nowhere/at/all\"";
        assert!(open(missing, false).unwrap_err().contains("/nowhere/at/all"));
        assert!(open(&at("0.0.0.0", ""), false).unwrap_err().contains("--allow-remote"));
        assert!(open(&at("0.0.0.0", ""), true).unwrap_err().contains("--turn-allow"));
        let named = at("0.0.0.0", "allow = [\"192.0.2.0/24:*\"]");
        assert!(open(&named, true).is_ok());
    }

    #[test]
    fn targets_are_resolved_or_said_to_be_wrong() {
        let (host, address) = resolve("localhost:4433").unwrap();
        assert_eq!(host, ("localhost".to_owned(), 4433));
        assert!(address.ip().is_loopback() && address.port() == 4433);
        for (wrong, why) in [
            ("localhost", "HOST:PORT"),
            ("localhost:0", "port 0"),
            ("no-such-host.invalid:1", "cannot resolve"),
        ] {
            let error = resolve(wrong).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
