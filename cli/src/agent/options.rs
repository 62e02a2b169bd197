//! The command line.

use clap::{Args, ValueHint};
use packrat_agent::DontFragment;
use packrat_token_client::gateway_key;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::http3::token::TokenSource;

/// Examples in the help text.
const EXAMPLES_HELP: &str = "\
Examples:
    packrat agent --to edge.example:443 --listen 127.0.0.1:4433
    curl --http3-only --connect-to edge.example:443:127.0.0.1:4433 https://edge.example/file
    chromium --host-resolver-rules='MAP edge.example 127.0.0.1:4433' --origin-to-force-quic-on=edge.example:443

    packrat agent --config agent.toml, with one table for each service:
        metrics = \"127.0.0.1:9191\"
        [[service]]
        to = \"edge.example:443\"
        listen = \"127.0.0.1:4433\"
        [[service]]
        name = \"tunnel\"
        to = \"vpn.example:51820\"
        listen = \"127.0.0.1:51820\"

    packrat agent --socks 127.0.0.1:1080, for programs and front ends that speak SOCKS5
    packrat agent --turn 127.0.0.1:3478 --turn-user page:SECRET, for web pages that name it in iceServers

docs/CLIENTS.md has more programs, all settings of the file, and units for systemd.";

/// Options of `packrat agent`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES_HELP)]
pub(crate) struct AgentOptions {
    /// The service, or the gateway in front of it, that datagrams go to
    #[arg(
        long,
        value_name = "HOST:PORT",
        required_unless_present_any = ["config", "socks", "turn"],
        conflicts_with = "config"
    )]
    pub(crate) to: Option<String>,
    /// The address that programs send to instead [default: a free port of 127.0.0.1; sockets that
    /// systemd passes are used first]
    #[arg(long, value_name = "ADDR", conflicts_with = "config")]
    pub(crate) listen: Option<SocketAddr>,
    /// Also serve programs that choose their destinations: an address for SOCKS version 5, UDP
    /// ASSOCIATE (RFC 1928)
    #[arg(long, value_name = "ADDR", conflicts_with = "config")]
    pub(crate) socks: Option<SocketAddr>,
    /// Let programs reach only these destinations through SOCKS, such as *.example:443 or
    /// 192.0.2.0/24:*; repeat it for more [default: all]
    #[arg(long, value_name = "HOST:PORT", requires = "socks")]
    pub(crate) socks_allow: Vec<String>,
    /// Also serve programs that speak TURN over UDP (RFC 8656), such as a browser's pages: the
    /// server's address
    #[arg(long, value_name = "ADDR", conflicts_with = "config")]
    pub(crate) turn: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) turn_users: TurnOptions,
    /// A TOML file with several services
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Also listen on addresses that other machines can reach: everyone who reaches them can send
    /// to the service through this machine
    #[arg(long)]
    pub(crate) allow_remote: bool,
    #[command(flatten)]
    pub(crate) assistance: AssistanceOptions,
    /// Trust the certificate authorities in this PEM file with token endpoints, in addition to the
    /// system's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cacert: Option<PathBuf>,
    /// Address to serve Prometheus metrics (/metrics) and the status (/packrat) on, over plain HTTP
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Also serve metrics and status on addresses that other machines can reach
    #[arg(long)]
    pub(crate) allow_remote_metrics: bool,
    /// Sockets of programs that are served at the same time [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) flows: Option<u32>,
    /// Seconds without a datagram after which a program's socket is forgotten [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) idle: Option<u32>,
    /// No status line; errors are shown
    #[arg(short, long)]
    pub(crate) silent: bool,
}

/// Users and destinations of the TURN server.
#[derive(Debug, Clone, Args)]
pub(crate) struct TurnOptions {
    /// Credentials of the TURN server, which other users of this machine can see here, not in a file;
    /// repeat it for more
    #[arg(long, value_name = "NAME:PASSWORD", requires = "turn", value_parser = turn_user)]
    pub(crate) turn_user: Vec<(String, String)>,
    /// A file with the secret of the TURN server's time-limited credentials: the user name is
    /// UNIXTIME:NAME, the password its HMAC-SHA1 under the secret, in base64
    #[arg(long, value_name = "FILE", requires = "turn", value_hint = ValueHint::FilePath)]
    pub(crate) turn_secret_file: Option<PathBuf>,
    /// Let programs reach only these destinations through TURN, such as 192.0.2.0/24:*; repeat it
    /// for more [default: all but this host]
    #[arg(long, value_name = "HOST:PORT", requires = "turn")]
    pub(crate) turn_allow: Vec<String>,
}

fn turn_user(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, password)) if !name.is_empty() && !password.is_empty() => {
            Ok((name.to_owned(), password.to_owned()))
        }
        _ => Err("it is no NAME:PASSWORD".to_owned()),
    }
}

/// Options of a service's assistance.
#[derive(Debug, Clone, Args)]
pub(crate) struct AssistanceOptions {
    /// Accept help only from the gateway with this public key (64 hexadecimal digits)
    #[arg(long, value_name = "HEX", conflicts_with = "config", value_parser = gateway_key)]
    pub(crate) gateway_key: Option<[u8; 32]>,
    /// Longest time a datagram waits for the repair of an earlier one, in milliseconds
    #[arg(long, value_name = "MS", conflicts_with = "config")]
    pub(crate) maximum_hold: Option<u64>,
    /// Have the programs' uploads repaired as well: for programs whose transport answers each loss
    /// (CUBIC, NewReno), not for BBR
    #[arg(long, conflicts_with = "config")]
    pub(crate) uploads: bool,
    /// Send with don't-fragment: auto (QUIC only), always (datagrams longer than the path MTU are
    /// lost), or never [default: auto]
    #[arg(
        long,
        value_name = "WHEN",
        conflicts_with = "config",
        default_value = "auto",
        hide_default_value = true
    )]
    pub(crate) dont_fragment: DontFragment,
    /// Ask this URL for assist tokens, and accept only the gateway that it names; auto:
    /// /.well-known/packrat of the service's host
    #[arg(long, value_name = "URL|auto", conflicts_with_all = ["config", "assist_token_file"])]
    pub(crate) assist_token_from: Option<TokenSource>,
    /// Read an assist token from this file, as the gateway's token endpoint gives it out (the field
    /// token); read again when the file changes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "config")]
    pub(crate) assist_token_file: Option<PathBuf>,
}
