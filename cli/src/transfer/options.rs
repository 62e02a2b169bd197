//! The options that every transfer has.

use crate::http3::token::{self, FreshToken, TokenSource};
use crate::http3::{
    ConnectTo, Family, GetError, Netrc, Places, Progress, Request, Resolve, Secret, UserField,
    basic, bearer, of_user, read_certificates, redacted,
};
use clap::{Args, ValueHint};
use http::header;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use packrat_token_client::gateway_key;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Options of `packrat get` and `packrat put`.
#[derive(Debug, Clone, Args)]
pub(crate) struct TransferOptions {
    /// Transfer end to end, without a gateway's help
    #[arg(long)]
    no_assist: bool,
    /// Longest time that data above a loss waits for the repair, in milliseconds; 0: no wait
    #[arg(long, value_name = "MS")]
    maximum_hold: Option<u64>,
    /// Ask this URL for an assist token first, pin the gateway key that it names, and transfer
    /// through the gateway that it names (the certificate must still be valid for the URL's
    /// host); auto: /.well-known/packrat of the URL's host
    #[arg(long, value_name = "URL|auto", conflicts_with = "no_assist")]
    assist_token_from: Option<TokenSource>,
    /// Accept help only from the gateway with this public key (64 hexadecimal digits)
    #[arg(long, value_name = "HEX", conflicts_with = "no_assist", value_parser = gateway_key)]
    gateway_key: Option<[u8; 32]>,
    /// Ask this DNS server (address:port) for the HTTPS record that names the gateway and its key,
    /// instead of the system's
    #[arg(long, value_name = "ADDRESS", conflicts_with = "no_assist")]
    dns_server: Option<SocketAddr>,
    /// Write what QUIC and assistance do on the connection, and why, to this file, as qlog for
    /// viewers such as qvis; best named .sqlog
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) qlog: Option<PathBuf>,
    /// Print a machine-readable report on the standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress bar and no summary; errors are shown
    #[arg(short, long)]
    pub(crate) silent: bool,
    /// Show on the standard error which addresses are tried, and the heads of responses
    #[arg(short, long)]
    verbose: bool,
    /// Trust the certificate authorities in this PEM file, in addition to the system's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    cacert: Option<PathBuf>,
    /// Connect to HOST2 and PORT2 instead of HOST1 and PORT1, each of which may be empty; in short
    /// HOST2:PORT2 (the certificate must still be valid for the URL's host)
    #[arg(long, value_name = "HOST1:PORT1:HOST2:PORT2")]
    connect_to: Vec<ConnectTo>,
    /// Connect to these addresses for a host and port, instead of asking the DNS; * is any host
    #[arg(long, value_name = "HOST:PORT:ADDRESS[,ADDRESS]...")]
    resolve: Vec<Resolve>,
    /// Connect to IPv4 addresses only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Connect to IPv6 addresses only
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Send this field ("Name: value"; "Name;": an empty value), or leave one out ("Name:")
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    headers: Vec<Secret>,
    /// Prove the user's identity with a password (Basic)
    #[arg(short, long, value_name = "USER:PASSWORD", conflicts_with = "oauth2_bearer")]
    user: Option<Secret>,
    /// Prove the user's identity with a token (Bearer)
    #[arg(long, value_name = "TOKEN")]
    oauth2_bearer: Option<Secret>,
    /// Take user and password of the URL's host from ~/.netrc
    #[arg(short, long)]
    netrc: bool,
    /// Take user and password of the URL's host from this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    netrc_file: Option<PathBuf>,
    /// Longest time until the connection stands
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    connect_timeout: Duration,
    /// Longest time for the whole transfer
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    max_time: Option<Duration>,
}

impl TransferOptions {
    /// The request for `url`.
    ///
    /// # Errors
    /// The URL or the certificates are of no use.
    pub(crate) fn request(&self, url: &str) -> Result<Request, GetError> {
        let mut request = Request::new(url)?;
        if self.no_assist {
            request.assist = None;
        } else if let (Some(hold), Some(assist)) = (self.maximum_hold, request.assist.as_mut()) {
            assist.access.maximum_hold = Duration::from_millis(hold);
        }
        if let Some(assist) = &mut request.assist {
            assist.access.gateway_key = self.gateway_key;
        }
        if let Some(file) = &self.cacert {
            request.trust.additional = read_certificates(file)?;
        }
        self.identify(&mut request)?;
        request.places = Places {
            connect_to: self.connect_to.clone(),
            resolve: self.resolve.clone(),
            family: match (self.ipv4, self.ipv6) {
                (true, _) => Some(Family::V4),
                (_, true) => Some(Family::V6),
                _ => None,
            },
        };
        request.connect_to = request.places.connect_to(&request.url);
        request.dns_server = self.dns_server;
        request.connect_timeout = self.connect_timeout;
        request.max_time = self.max_time;
        request.qlog.clone_from(&self.qlog);
        Ok(request)
    }

    /// Gives the request the user's fields, and the proof of the user's identity: of the first of
    /// `--user` and `--oauth2-bearer`, `.netrc`, and the URL.
    fn identify(&self, request: &mut Request) -> Result<(), GetError> {
        let fields = self.headers.iter().map(|text| UserField::parse(&text.0));
        request.fields = fields.collect::<Result<_, _>>()?;
        request.netrc = self.read_netrc()?.map(Arc::new);
        let host = request.server_name();
        let login = request.netrc.as_ref().and_then(|netrc| netrc.find(&host, true));
        let given = match (&self.user, &self.oauth2_bearer, login) {
            (Some(user), _, _) => Some(of_user(user)?),
            (_, Some(token), _) => Some(bearer(token)?),
            (_, _, Some((user, password))) => Some(basic(user.as_bytes(), password.as_bytes())?),
            _ => None,
        };
        if given.is_some() {
            request.authorization = given;
        }
        Ok(())
    }

    fn read_netrc(&self) -> Result<Option<Netrc>, GetError> {
        let file = match (&self.netrc_file, self.netrc) {
            (Some(file), _) => file.clone(),
            (None, true) => {
                let home = std::env::home_dir().ok_or_else(|| GetError::Usage {
                    reason: "--netrc: there is no home folder; name a file with --netrc-file"
                        .to_owned(),
                })?;
                home.join(".netrc")
            }
            (None, false) => return Ok(None),
        };
        let name = file.display().to_string();
        let fault = |source| GetError::Read { name: name.clone(), source };
        let text = std::fs::read_to_string(&file).map_err(fault)?;
        Netrc::parse(&text).map(Some).map_err(|reason| fault(io::Error::other(reason)))
    }

    /// Asks for a token if the user wants one, and lets the request use it and later tokens.
    ///
    /// # Errors
    /// There is no token.
    pub(crate) async fn use_token(
        &self,
        request: &mut Request,
    ) -> Result<Option<FreshToken>, GetError> {
        let Some(source) = &self.assist_token_from else { return Ok(None) };
        if request.proxy().is_some() {
            // No gateway is on that way.
            return Ok(None);
        }
        let (token, renewal, later_tokens) =
            token::fetch(source, request, self.gateway_key).await?;
        request.later_tokens = Some(later_tokens);
        if request.connect_to.is_none() {
            request.connect_to.clone_from(&token.endpoint);
        }
        if let Some(assist) = &mut request.assist {
            assist.access = token.access(self.maximum_hold.map(Duration::from_millis));
        }
        Ok(Some(renewal))
    }

    /// A progress bar, if there is a terminal.
    pub(crate) fn progress_bar(&self) -> ProgressBar {
        if self.silent || !io::stderr().is_terminal() {
            return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        }
        let bar = ProgressBar::no_length();
        bar.set_style(style(false));
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }

    /// Shows events by `show`, and tells them if the user wants that.
    pub(crate) fn watch<'a>(
        &self,
        bar: &'a ProgressBar,
        mut show: impl FnMut(Progress) + 'a,
    ) -> impl FnMut(Progress) + 'a {
        let verbose = self.verbose;
        move |progress| {
            if verbose {
                bar.suspend(|| tell_event(&progress));
            }
            show(progress);
        }
    }
}

/// Shows what `-v` wants to see: addresses, and heads of responses.
fn tell_event(progress: &Progress) {
    match progress {
        Progress::Connecting { remote } => tell!("* connecting to {remote}"),
        Progress::Connected { remote } => tell!("* connected to {remote}"),
        Progress::Answered { status, headers } => {
            tell!("< HTTP {}", status.as_u16());
            for (name, value) in headers {
                let value = String::from_utf8_lossy(value.as_bytes());
                match *name {
                    header::SET_COOKIE => tell!("< {name}: (not shown)"),
                    header::LOCATION => tell!("< {name}: {}", redacted(&value)),
                    _ => tell!("< {name}: {value}"),
                }
            }
        }
        _ => {}
    }
}

/// Does `work`, with a fresh token all the time if there is one.
pub(crate) async fn renewing<T>(renewal: Option<FreshToken>, work: impl Future<Output = T>) -> T {
    match renewal {
        Some(renewal) => renewal.during(work).await,
        None => work.await,
    }
}

/// The look of a progress bar.
pub(crate) fn style(with_length: bool) -> ProgressStyle {
    let template = if with_length {
        "{msg} [{bar:32}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}"
    } else {
        "{spinner} {msg} {decimal_bytes} {decimal_bytes_per_sec} {elapsed}"
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(value) {
        Ok(duration) if duration > Duration::ZERO && value < 1e9 => Ok(duration),
        _ => Err("expected a number of seconds above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_checked() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert!(
            seconds("0").is_err()
                && seconds("-1").is_err()
                && seconds("NaN").is_err()
                && seconds("x").is_err()
        );
    }
}
