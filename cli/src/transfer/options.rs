//! The options that every transfer has.

use crate::http3::token::{self, FreshToken, TokenSource};
use crate::http3::{GetError, Request, host_and_port, read_certificates};
use clap::{Args, ValueHint};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use packrat_token_client::gateway_key;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::PathBuf;
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
    qlog: Option<PathBuf>,
    /// Print a machine-readable report on the standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress bar and no summary; errors are shown
    #[arg(short, long)]
    pub(crate) silent: bool,
    /// Trust the certificate authorities in this PEM file, in addition to the system's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    cacert: Option<PathBuf>,
    /// Connect to this host and port instead of the URL's (the certificate must still be valid for
    /// the URL's host)
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    connect_to: Option<(String, u16)>,
    /// Longest time until the connection stands
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    connect_timeout: Duration,
    /// Longest time for the whole transfer
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
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
        request.connect_to.clone_from(&self.connect_to);
        request.dns_server = self.dns_server;
        request.connect_timeout = self.connect_timeout;
        request.max_time = self.max_time;
        request.qlog.clone_from(&self.qlog);
        Ok(request)
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
