//! The command line around [`super::download`].

use super::error::{EXIT_INTERRUPTED, EXIT_TERMINATED};
use super::file::PartialFile;
use super::token::{self, FreshToken, TokenSource};
use super::{GetError, Progress, Report, Request, download, read_certificates, summary};
use clap::{Args, ValueHint};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use packrat_token_client::gateway_key;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit codes, for `--help`.
const EXIT_CODES: &str = "\
Exit codes (curl's numbers where curl has the same error):
    0  done
    1  the URL's scheme is not https
    2  wrong usage
    3  malformed URL
    6  the host cannot be resolved
    7  cannot connect: refused, no route, or the server gave up
    8  the token endpoint's answer cannot be understood
   18  the server ended the transfer too early
   22  HTTP status 400 or above
   23  the output cannot be written: disk full, no permission
   28  timed out
   33  the server cannot resume there
   35  TLS handshake failed
   45  no local endpoint
   47  redirected (redirects are not followed)
   56  the transfer broke
   60  the server's certificate is not accepted
   77  the trusted certificates cannot be used
   90  the token endpoint names another gateway key than --gateway-key
  130  interrupted (Ctrl-C)
  143  terminated";

/// Options of `packrat get`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Options {
    /// URL of the download: https://host[:port]/path
    url: String,
    /// Write to this file; - is the standard output [default: the last part of the URL's path]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Go on with what an earlier run with this option left behind; keep what has arrived when the
    /// download fails
    #[arg(short = 'C', long = "continue")]
    resume: bool,
    /// Download end to end, without a gateway's help
    #[arg(long)]
    no_assist: bool,
    /// Longest time that what has arrived waits while a gateway repairs a loss before it, in
    /// milliseconds; 0: nothing waits
    #[arg(long, value_name = "MS")]
    maximum_hold: Option<u64>,
    /// Ask this URL for an assist token first, pin the gateway key that it names, and download
    /// through the gateway that it names (the certificate must still be valid for the URL's
    /// host); auto: /.well-known/packrat of the URL's host
    #[arg(long, value_name = "URL|auto", conflicts_with = "no_assist")]
    assist_token_from: Option<TokenSource>,
    /// Accept help only from the gateway with this public key (64 hexadecimal digits)
    #[arg(long, value_name = "HEX", conflicts_with = "no_assist", value_parser = gateway_key)]
    gateway_key: Option<[u8; 32]>,
    /// Write what QUIC and assistance do on the connection, and why, to this file, as qlog for
    /// viewers such as qvis; best named .sqlog
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    qlog: Option<PathBuf>,
    /// Print a machine-readable report on the standard output
    #[arg(long)]
    json: bool,
    /// No progress bar and no summary; errors are shown
    #[arg(short, long)]
    silent: bool,
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
    /// Longest time for the whole download
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    max_time: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(value) {
        Ok(duration) if duration > Duration::ZERO && value < 1e9 => Ok(duration),
        _ => Err("expected a number of seconds above 0".to_owned()),
    }
}

/// Reads `HOST:PORT`.
pub(crate) fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let expected = || "expected HOST:PORT, an IPv6 address in brackets".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if host.is_empty() || (bare.is_none() && host.contains(':')) {
        return Err(expected());
    }
    Ok((bare.unwrap_or(host).to_owned(), port.parse().map_err(|_| expected())?))
}

/// The error or the signal that ended a download.
enum Failure {
    Error(GetError),
    Signal(u8),
}

impl From<GetError> for Failure {
    fn from(error: GetError) -> Self {
        Self::Error(error)
    }
}

/// Runs `packrat get`.
pub(crate) fn run(options: Options) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let error = GetError::Local { reason: format!("no runtime: {error}") };
            eprintln!("packrat get: {error}");
            return ExitCode::from(error.exit_code());
        }
    };
    let code = runtime.block_on(carry_out(options));
    // A name lookup that hangs in the operating system must not keep the command from ending.
    runtime.shutdown_background();
    code
}

async fn carry_out(options: Options) -> ExitCode {
    if options.json && to_stdout(&options) {
        eprintln!("packrat get: --json and -o - both want the standard output; choose one");
        return ExitCode::from(2);
    }
    let mut last_note = None;
    let result = get(&options, &mut last_note).await;
    let (code, json) = match &result {
        Ok((report, target)) => {
            if !options.silent {
                eprintln!("{}", summary::text(report, target));
            }
            (0, summary::json(&options.url, report, target))
        }
        Err(failure) => {
            let (code, kind, message) = match failure {
                Failure::Error(error) => (error.exit_code(), error.kind(), error.to_string()),
                Failure::Signal(code) => (*code, "interrupted", "interrupted".to_owned()),
            };
            eprintln!("packrat get: {message}");
            if let Some(note) = last_note {
                eprintln!("packrat get: {note}");
            }
            (code, summary::json_error(&options.url, code, kind, &message))
        }
    };
    if options.json {
        // A reader that has gone away has no use for an error either.
        let _ = writeln!(io::stdout(), "{json}");
    }
    ExitCode::from(code)
}

fn to_stdout(options: &Options) -> bool {
    options.output.as_ref().is_some_and(|output| output.as_os_str() == "-")
}

async fn get(options: &Options, note: &mut Option<String>) -> Result<(Report, String), Failure> {
    let mut signals = Signals::catch()?;
    let mut request = request(options)?;
    let mut renewal = None;
    if let Some(source) = &options.assist_token_from {
        renewal = Some(signals.or(use_token(source, &mut request, options)).await?);
    }
    let bar = progress_bar(options);
    if to_stdout(options) {
        let mut output = io::BufWriter::with_capacity(256 << 10, io::stdout());
        let report =
            signals.or(renewing(renewal, download(&request, &mut output, show(&bar)))).await;
        bar.finish_and_clear();
        let report = report?;
        let target = "the standard output".to_owned();
        let unwritable = |source| GetError::Write { target: target.clone(), source };
        signals.or(blocking(move || output.flush(), &unwritable)).await?;
        return Ok((report, target));
    }

    let target = match &options.output {
        Some(output) => output.clone(),
        None => PathBuf::from(default_name(&request)),
    };
    let name = target.display().to_string();
    let unwritable = |source| GetError::Write { target: name.clone(), source };
    let mut file = if options.resume {
        // Reads what is there.
        let part = blocking(move || PartialFile::resume(&target), &unwritable);
        let (file, resume) = signals.or(part).await?;
        request.resume = resume;
        file
    } else {
        PartialFile::create(&target).map_err(unwritable)?
    };
    let downloaded = signals
        .or(async {
            let report = renewing(renewal, download(&request, &mut file, show(&bar))).await?;
            blocking(file.complete().map_err(unwritable)?, &unwritable).await?;
            Ok(report)
        })
        .await;
    bar.finish_and_clear();
    match downloaded {
        // From here on there is nothing to interrupt: the file takes its name in one step.
        Ok(report) => {
            file.publish().map_err(unwritable)?;
            Ok((report, name))
        }
        Err(failure) => {
            *note = file.kept_part().map(|part| {
                format!("what has arrived is kept in {}; -C goes on there", part.display())
            });
            Err(failure)
        }
    }
}

/// Does `work`, with a fresh token all the time where there is one.
async fn renewing<T>(renewal: Option<FreshToken>, work: impl Future<Output = T>) -> T {
    match renewal {
        Some(renewal) => renewal.during(work).await,
        None => work.await,
    }
}

/// Asks for a token and lets the request use it, and those that come later.
async fn use_token(
    source: &TokenSource,
    request: &mut Request,
    options: &Options,
) -> Result<FreshToken, GetError> {
    let (token, renewal, later_tokens) = token::fetch(source, request, options.gateway_key).await?;
    request.later_tokens = Some(later_tokens);
    if request.connect_to.is_none() {
        request.connect_to.clone_from(&token.endpoint);
    }
    if let Some(assist) = &mut request.assist {
        assist.access = token.access(options.maximum_hold.map(Duration::from_millis));
    }
    Ok(renewal)
}

/// The signals that end the command.
///
/// From the first look on they do not end the process by themselves any more. Therefore there is
/// one look for the whole run, which also remembers a signal that came while no task waited for it.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn catch() -> Result<Self, GetError> {
        let local =
            |error: io::Error| GetError::Local { reason: format!("no signal handler: {error}") };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(local)?,
            terminate: signal(SignalKind::terminate()).map_err(local)?,
        })
    }

    /// Does `work` unless a signal comes, or has come since the last work.
    async fn or<T>(
        &mut self,
        work: impl Future<Output = Result<T, GetError>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => Err(Failure::Signal(EXIT_INTERRUPTED)),
            _ = self.terminate.recv() => Err(Failure::Signal(EXIT_TERMINATED)),
            result = work => Ok(result?),
        }
    }
}

/// Does what may wait for a disk or a reader in a thread of its own, so that signals are heard
/// meanwhile.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
    unwritable: impl Fn(io::Error) -> GetError,
) -> Result<T, GetError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(unwritable)
}

fn request(options: &Options) -> Result<Request, GetError> {
    let mut request = Request::new(&options.url)?;
    if options.no_assist {
        request.assist = None;
    } else if let (Some(hold), Some(assist)) = (options.maximum_hold, request.assist.as_mut()) {
        assist.access.maximum_hold = Duration::from_millis(hold);
    }
    if let Some(assist) = &mut request.assist {
        assist.access.gateway_key = options.gateway_key;
    }
    if let Some(file) = &options.cacert {
        request.trust.additional = read_certificates(file)?;
    }
    request.connect_to.clone_from(&options.connect_to);
    request.connect_timeout = options.connect_timeout;
    request.max_time = options.max_time;
    request.qlog.clone_from(&options.qlog);
    Ok(request)
}

/// The last part of the path; `index.html` when it is empty.
fn default_name(request: &Request) -> String {
    let last = request
        .url
        .path_segments()
        .and_then(|mut segments| segments.next_back())
        .unwrap_or_default();
    // Percent-encoded separators stay encoded, and a name is never one of the special folders.
    match last {
        "" | "." | ".." => "index.html".to_owned(),
        name => name.to_owned(),
    }
}

fn progress_bar(options: &Options) -> ProgressBar {
    if options.silent || !io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let bar = ProgressBar::no_length();
    bar.set_style(style(false));
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

fn style(with_length: bool) -> ProgressStyle {
    let template = if with_length {
        "{msg} [{bar:32}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}"
    } else {
        "{spinner} {msg} {decimal_bytes} {decimal_bytes_per_sec} {elapsed}"
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

fn show(bar: &ProgressBar) -> impl FnMut(Progress) + '_ {
    let mut offset = 0;
    move |progress| match progress {
        Progress::Connecting { remote } => bar.set_message(format!("connecting to {remote}")),
        Progress::Connected { remote } => bar.set_message(format!("waiting for {remote}")),
        Progress::Response { expected_bytes, resumed_from, .. } => {
            bar.set_message("downloading");
            offset = resumed_from;
            if let Some(expected) = expected_bytes {
                bar.set_length(expected);
                bar.set_style(style(true));
            }
            bar.set_position(offset);
            bar.reset_eta();
        }
        Progress::Data { bytes } => bar.set_position(offset + bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_names_come_from_the_path() {
        let name = |url| default_name(&Request::new(url).unwrap());
        assert_eq!(name("https://host/folder/file.iso?query=1/2"), "file.iso");
        assert_eq!(name("https://host/"), "index.html");
        assert_eq!(name("https://host"), "index.html");
        assert_eq!(name("https://host/a/..%2Fetc"), "..%2Fetc");
        assert_eq!(name("https://host/a/%2e%2e"), "index.html");
    }

    #[tokio::test]
    async fn a_signal_between_two_steps_is_not_lost() {
        let (mut signals, mut other) = (Signals::catch().unwrap(), Signals::catch().unwrap());
        assert!(signals.or(async { Ok(()) }).await.is_ok());
        let process = std::process::id().to_string();
        let sent = std::process::Command::new("kill").args(["-INT", &process]).status().unwrap();
        assert!(sent.success());
        // The signal is delivered while no task waits for it with the first one.
        assert!(matches!(
            other.or(std::future::pending::<Result<(), _>>()).await,
            Err(Failure::Signal(_))
        ));
        let next = signals.or(async { Ok(()) }).await;
        assert!(matches!(next, Err(Failure::Signal(EXIT_INTERRUPTED))));
    }

    #[test]
    fn times_and_targets_are_checked() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert!(
            seconds("0").is_err()
                && seconds("-1").is_err()
                && seconds("NaN").is_err()
                && seconds("x").is_err()
        );
        assert_eq!(host_and_port("host:1"), Ok(("host".to_owned(), 1)));
        assert_eq!(host_and_port("[::1]:1"), Ok(("::1".to_owned(), 1)));
        assert!(
            host_and_port("::1:1").is_err()
                && host_and_port("host").is_err()
                && host_and_port(":1").is_err()
        );
    }
}
