//! Errors of a transfer, and their exit codes.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Why a transfer failed. [`GetError::exit_code`] follows curl's numbers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum GetError {
    /// The URL's scheme is not `https`.
    #[error("{url}: the scheme {scheme:?} is not supported; HTTP/3 needs an https:// URL")]
    UnsupportedScheme { url: String, scheme: String },
    /// The text is not a URL.
    #[error("{url:?} is not a URL: {reason}; expected https://host[:port]/path")]
    MalformedUrl { url: String, reason: String },
    /// DNS has no address.
    #[error("cannot resolve the host {host:?}: {reason}; check the spelling and the name server")]
    Resolve { host: String, reason: String },
    /// No endpoint listens at the address.
    #[error(
        "cannot connect to {remote} over UDP: {source}; check that an HTTP/3 server listens on this port"
    )]
    Unreachable { remote: SocketAddr, source: io::Error },
    /// The connection was not made, for another reason than those above.
    #[error("cannot connect to {remote}: {reason}")]
    Connect { remote: SocketAddr, reason: String },
    /// The proxy passes no connection.
    #[error(
        "cannot connect through the proxy {proxy}: {reason}; check HTTPS_PROXY or --proxy, or name the host in NO_PROXY"
    )]
    Proxy { proxy: String, reason: String },
    /// No socket, no runtime.
    #[error("cannot open the local endpoint: {reason}")]
    Local { reason: String },
    /// No answer to the handshake in time.
    #[error(
        "timed out after {after:?} while connecting to {remote}; check that an HTTP/3 server listens on this UDP port and \
         that no firewall drops UDP, or raise --connect-timeout"
    )]
    ConnectTimedOut {
        /// The address tried last.
        remote: SocketAddr,
        after: Duration,
    },
    /// The limit for the whole transfer.
    #[error("timed out after {after:?} with {bytes} bytes transferred; raise --max-time")]
    TimedOut { after: Duration, bytes: u64 },
    /// The server's certificate was not accepted.
    #[error("the certificate of {host:?} is not accepted: {fault}")]
    Certificate {
        /// The host it should be valid for.
        host: String,
        fault: CertificateFault,
    },
    /// TLS failed otherwise.
    #[error("the TLS handshake with {host:?} failed: {reason}")]
    Tls { host: String, reason: String },
    /// The trusted certificates cannot be read.
    #[error(
        "cannot use the trusted certificates {path:?}: {reason}; expected a file with PEM certificates"
    )]
    TrustFile { path: PathBuf, reason: String },
    /// No trusted certificates at all.
    #[error("no certificate authority is trusted: {reason}; name one with --cacert")]
    NoTrust { reason: String },
    /// HTTP status 400 or above.
    #[error("{url}: the server answered with HTTP status {status}")]
    Status { url: String, status: u16 },
    /// The server does not take an upload.
    #[error("{url}: the server refused the {method} with HTTP status {status}{}", refusal_advice(*.status))]
    Refused {
        url: String,
        /// PUT, POST, PATCH or HEAD.
        method: http::Method,
        status: u16,
    },
    /// An answer that does not indicate whether the upload was taken.
    #[error(
        "{url}: the server answered the {method} with HTTP status {status}, which does not say whether it has taken it; \
         look at what it has before you repeat it"
    )]
    Unclear {
        url: String,
        /// PUT or POST.
        method: http::Method,
        status: u16,
    },
    /// The server has answered an upload before it had all of it, and reads no more.
    #[error(
        "the server answered with HTTP status {status} after {bytes} bytes and read no more of the upload"
    )]
    Unread {
        status: u16,
        /// Bytes that were handed to QUIC by then.
        bytes: u64,
    },
    /// The options make no sense.
    #[error("{reason}")]
    Usage { reason: String },
    /// A redirect that is not followed.
    #[error(
        "{url}: redirected (HTTP status {status}) to {}; run the command with that URL, or a download with -L",
        .location.as_deref().map_or_else(|| "nowhere".to_owned(), redacted)
    )]
    Redirect { url: String, status: u16, location: Option<String> },
    /// A redirect to a place that must not be followed.
    #[error("{url}: redirected to {location}, which is not followed: {reason}")]
    RefusedRedirect { url: String, location: String, exit_code: u8, reason: String },
    /// More redirects than a download follows.
    #[error("{url}: redirected once more after {limit} redirects; check the URL")]
    TooManyRedirects { url: String, limit: usize },
    /// The server does not continue at the requested byte.
    #[error("cannot resume at byte {offset}: {reason}; remove the partial file and start over")]
    Range {
        /// First byte asked for.
        offset: u64,
        reason: String,
    },
    /// An upload cannot be created or continued.
    #[error("{url}: {reason}")]
    Resumable { url: String, reason: String },
    /// The server has forgotten an upload.
    #[error(
        "{url}: the server has no such upload any more (HTTP status {status}); begin anew at the URL where it \
         creates uploads, without --continue; --restart does so by itself"
    )]
    Vanished { url: String, status: u16 },
    /// The transfer broke.
    #[error("the transfer broke after {bytes} bytes: {reason}")]
    Transfer { bytes: u64, reason: String },
    /// The body ended before the announced length.
    #[error("the server ended the transfer after {bytes} of {expected} bytes")]
    Truncated { bytes: u64, expected: u64 },
    /// No assist token could be had.
    #[error("no assist token: {source}")]
    Token { source: Box<GetError> },
    /// The answer does not come from a token endpoint.
    #[error(
        "no assist token: the answer of {url} is not that of a token endpoint: {reason}; check --assist-token-from"
    )]
    TokenDocument { url: String, reason: String },
    /// The token endpoint names another gateway than the user.
    #[error(
        "the token endpoint names the gateway key {named}, which is not the one of --gateway-key; leave one of the two options out"
    )]
    OtherGatewayKey {
        /// The key that it names, in hexadecimal digits.
        named: String,
    },
    /// The file to upload cannot be read.
    #[error("cannot read {name}: {source}{}", read_advice(.source))]
    Read {
        /// File or stream.
        name: String,
        source: io::Error,
    },
    /// The output cannot be written.
    #[error("cannot write {target}: {source}{}", write_advice(.source))]
    Write {
        /// File or stream.
        target: String,
        source: io::Error,
    },
}

/// Fault of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CertificateFault {
    /// The certificate is not signed by a trusted authority.
    #[error(
        "its issuer is not a trusted authority; name the authority's certificate with --cacert if you trust it"
    )]
    UnknownIssuer,
    /// The certificate is for another name.
    #[error("it is for another name{}; check the host in the URL", presented(.names))]
    WrongName {
        /// The names that it is for, when they are known.
        names: Vec<String>,
    },
    /// Too old.
    #[error(
        "it has expired; the server's operator must renew it (or this machine's clock is wrong)"
    )]
    Expired,
    /// The certificate is not valid yet.
    #[error("it is not valid yet; check this machine's clock")]
    NotYetValid,
    /// Revoked.
    #[error("it has been revoked")]
    Revoked,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

fn presented(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}

fn write_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space or choose another place"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; choose a place that you may write to"
        }
        io::ErrorKind::NotFound => "; create the folder first",
        io::ErrorKind::IsADirectory => "; name a file, not a folder",
        io::ErrorKind::BrokenPipe => "; the reader has gone",
        _ => "",
    }
}

fn read_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; check the name",
        io::ErrorKind::PermissionDenied => "; choose a file that you may read",
        io::ErrorKind::IsADirectory => "; name a file, not a folder",
        io::ErrorKind::UnexpectedEof => "; it has become shorter meanwhile",
        _ => "",
    }
}

fn refusal_advice(status: u16) -> &'static str {
    match status {
        401 | 403 => {
            ": it wants another permission; give one with -u, --oauth2-bearer, --netrc or -H"
        }
        404 | 409 => ": there is no such place there",
        410 => ": it has forgotten it; begin anew",
        405 | 501 => ": it takes no such uploads there; try --post, or another URL",
        411 => ": it wants to know the length; name a file, not a stream",
        413 => ": it is too much for it",
        415 => ": it does not take this type; name one with --content-type",
        507 => ": it has no room for it",
        500..=599 => ": it has failed; try again later",
        _ => "",
    }
}

/// Exit code of a transfer that was interrupted with Ctrl-C: 128 + SIGINT.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;
/// Exit code of a transfer that was ended with SIGTERM: 128 + SIGTERM.
pub(crate) const EXIT_TERMINATED: u8 = 143;

impl GetError {
    /// The exit code: curl's number if curl has the same error.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::UnsupportedScheme { .. } => 1,
            Self::Usage { .. } => 2,
            Self::RefusedRedirect { exit_code, .. } => *exit_code,
            Self::MalformedUrl { .. } => 3,
            Self::Resolve { .. } => 6,
            Self::Token { source } => source.exit_code(),
            Self::TokenDocument { .. } => 8,
            Self::Unreachable { .. } | Self::Connect { .. } | Self::Proxy { .. } => 7,
            Self::Truncated { .. } | Self::Unread { .. } => 18,
            Self::Status { .. } | Self::Refused { .. } | Self::Unclear { .. } => 22,
            Self::Write { .. } => 23,
            Self::Read { .. } => 26,
            Self::ConnectTimedOut { .. } | Self::TimedOut { .. } => 28,
            Self::Range { .. } | Self::Resumable { .. } | Self::Vanished { .. } => 33,
            Self::Tls { .. } => 35,
            Self::Local { .. } => 45,
            Self::Redirect { .. } | Self::TooManyRedirects { .. } => 47,
            Self::Transfer { .. } => 56,
            Self::Certificate { .. } => 60,
            Self::OtherGatewayKey { .. } => 90,
            Self::TrustFile { .. } | Self::NoTrust { .. } => 77,
        }
    }

    /// A stable name of the kind of error, for `--json`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::UnsupportedScheme { .. } => "unsupported_scheme",
            Self::MalformedUrl { .. } => "malformed_url",
            Self::Resolve { .. } => "resolve",
            Self::Unreachable { source, .. }
                if source.kind() == io::ErrorKind::ConnectionRefused =>
            {
                "refused"
            }
            Self::Unreachable { .. } => "unreachable",
            Self::Connect { .. } => "connect",
            Self::Proxy { .. } => "proxy",
            Self::Local { .. } => "local",
            Self::ConnectTimedOut { .. } => "connect_timed_out",
            Self::TimedOut { .. } => "timed_out",
            Self::Certificate { .. } => "certificate",
            Self::Tls { .. } => "tls",
            Self::TrustFile { .. } => "trust_file",
            Self::NoTrust { .. } => "no_trust",
            Self::Status { .. } | Self::Refused { .. } | Self::Unclear { .. } => "status",
            Self::Usage { .. } => "usage",
            Self::Redirect { .. }
            | Self::RefusedRedirect { .. }
            | Self::TooManyRedirects { .. } => "redirect",
            Self::Range { .. } => "range",
            Self::Resumable { .. } => "resumable",
            Self::Vanished { .. } => "vanished",
            Self::Token { .. } => "token",
            Self::TokenDocument { .. } => "token_document",
            Self::OtherGatewayKey { .. } => "gateway_key",
            Self::Transfer { .. } => "transfer",
            Self::Truncated { .. } | Self::Unread { .. } => "truncated",
            Self::Read { .. } => "read",
            Self::Write { .. } => "write",
        }
    }
}

/// A text that may be a URL, without its user and password: for messages.
pub(crate) fn redacted(text: &str) -> String {
    let start = text.find("://").map_or(0, |at| at + 3);
    let end = text[start..].find(['/', '?', '#']).map_or(text.len(), |at| start + at);
    match text[start..end].rfind('@') {
        Some(at) => format!("{}{}", &text[..start], &text[start + at + 1..]),
        None => text.to_owned(),
    }
}
