//! `packrat get`: the command line around [`crate::http3::download`].

use super::ending::{self, Failure, Signals, Words, blocking};
#[cfg(feature = "operate")]
use super::memory;
use super::options::{TransferOptions, renewing, style};
use crate::http3::{
    Connections, GetError, PartialFile, Progress, Proxies, Report, Request, Secret, download,
};
use clap::{Args, ValueHint};
use futures::StreamExt;
use indicatif::ProgressBar;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Exit codes, for `--help`.
const EXIT_CODES: &str = "\
Exit codes (curl's numbers where curl has the same error):
    0  done
    1  the URL's scheme is not https, or a redirect's
    2  wrong usage
    3  malformed URL
    6  the host cannot be resolved
    7  cannot connect: refused, no route, or the server gave up
    8  the token endpoint's answer cannot be understood
   18  the server ended the transfer too early
   22  HTTP status 400 or above
   23  the output cannot be written: disk full, no permission
   26  the .netrc file cannot be read
   28  timed out
   33  the server cannot resume there
   35  TLS handshake failed
   45  no local endpoint
   47  redirected without -L, or more than 10 times
   56  the transfer broke
   60  the server's certificate is not accepted
   77  the trusted certificates cannot be used
   90  the token endpoint names another gateway key than --gateway-key
  130  interrupted (Ctrl-C)
  143  terminated";

/// Pause before the second attempt of a download; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between attempts: curl's.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);
/// Downloads at the same time with `--parallel`: curl's.
const MOST_AT_ONCE: usize = 50;

/// Options of `packrat get`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct GetOptions {
    /// URLs of downloads, one after the other, over one connection to each server:
    /// https://host[:port]/path
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Write to this file; - is the standard output [default: the last part of the URL's path]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Take the file's name from the URL's path, as by default
    #[arg(short = 'O', long, conflicts_with = "output")]
    remote_name: bool,
    /// Continue the download of an earlier run with this option (or -C -); keep the received part
    /// when the download fails
    #[arg(short = 'C', long = "continue", alias = "continue-at")]
    resume: bool,
    /// Try again this many times after errors that may pass, with pauses of 1, 2, 4 ... s, and go on
    /// where the download stopped, as -C does
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    retry: u32,
    /// Download from all URLs at the same time, 50 at most
    #[arg(short = 'Z', long, conflicts_with = "head")]
    parallel: bool,
    /// Show the head of the response alone, on the standard output
    #[arg(short = 'I', long, conflicts_with_all = ["output", "resume", "retry"])]
    head: bool,
    /// Follow up to 10 redirects, to https only; to another scheme, host or port go no credentials
    /// and none of -H but Accept..., Cache-Control, Pragma and User-Agent
    #[arg(short = 'L', long)]
    location: bool,
    /// Never fall back to TCP, as the command does by default if UDP brings no answer, or no more of
    /// the body for the time of --connect-timeout
    #[arg(long)]
    http3_only: bool,
    /// Download over TCP through this HTTP proxy instead of the one that HTTPS_PROXY or ALL_PROXY
    /// names; "": none
    #[arg(short = 'x', long, value_name = "[USER:PASSWORD@]HOST:PORT")]
    proxy: Option<Secret>,
    /// Hosts without a proxy, instead of the hosts in NO_PROXY
    #[arg(long, value_name = "HOST[,HOST]...")]
    noproxy: Option<String>,
    /// Take at most this many bytes per second, on average: 500k, 2M
    #[arg(long, value_name = "BYTES", value_parser = rate)]
    limit_rate: Option<u32>,
    #[command(flatten)]
    transfer: TransferOptions,
}

/// Runs `packrat get`.
pub(crate) fn run(options: GetOptions) -> ExitCode {
    ending::run("packrat get", carry_out(options))
}

async fn carry_out(options: GetOptions) -> ExitCode {
    let urls = match options.checked_urls() {
        Ok(urls) => urls,
        Err(error) => {
            tell!("packrat get: {error}");
            return ExitCode::from(error.exit_code());
        }
    };
    let connections = Connections::default();
    let is_stopped = Cell::new(false);
    let (options, at_once) = (&options, if options.parallel { MOST_AT_ONCE } else { 1 });
    let downloads = urls.into_iter().map(async |url| {
        if is_stopped.get() {
            return ExitCode::SUCCESS;
        }
        let (code, goes_on) = one(options, &connections, url).await;
        is_stopped.set(!goes_on);
        code
    });
    let codes: Vec<_> = futures::stream::iter(downloads).buffered(at_once).collect().await;
    // A qlog that can't be written has been reported.
    let _ = connections.close().await;
    codes.into_iter().find(|code| *code != ExitCode::SUCCESS).unwrap_or(ExitCode::SUCCESS)
}

impl GetOptions {
    /// The URLs, without the `-` of `-C -`.
    fn checked_urls(&self) -> Result<Vec<&str>, GetError> {
        let urls = self.urls.iter().map(String::as_str);
        let urls: Vec<_> = urls.filter(|url| !(self.resume && *url == "-")).collect();
        let usage = |reason: &str| Err(GetError::Usage { reason: reason.to_owned() });
        let takes_one = self.output.is_some() || self.transfer.qlog.is_some();
        match urls.len() {
            0 => usage("a URL is missing: https://host[:port]/path"),
            2.. if takes_one => usage("-o and --qlog name one file; give one URL with them"),
            _ if self.transfer.json && (self.to_stdout() || self.head) => {
                usage("--json and -o - or -I both want the standard output; choose one")
            }
            _ if self.retry > 0 && self.to_stdout() => {
                usage("--retry cannot take back what -o - has written; name a file")
            }
            _ if self.parallel && !have_names_of_their_own(&urls) => {
                usage("-Z: two of the files would have the same name")
            }
            _ => Ok(urls),
        }
    }

    /// The request for one of the URLs.
    fn request(&self, url: &str) -> Result<Request, GetError> {
        let mut request = self.transfer.request(url)?;
        request.follow = self.location;
        request.may_use_tcp = !self.http3_only;
        request.limit_rate = self.limit_rate;
        request.head_only = self.head;
        let proxy = self.proxy.as_ref().map(|proxy| proxy.0.as_str());
        request.proxies = Proxies::new(proxy, self.noproxy.as_deref())?;
        if self.http3_only && request.proxy().is_some() {
            return Err(GetError::Usage {
                reason: "no HTTP proxy passes HTTP/3: leave --http3-only out, or name the host with --noproxy"
                    .to_owned(),
            });
        }
        Ok(request)
    }

    fn to_stdout(&self) -> bool {
        self.output.as_ref().is_some_and(|output| output.as_os_str() == "-")
    }
}

fn have_names_of_their_own(urls: &[&str]) -> bool {
    let mut names = BTreeSet::new();
    let requests = urls.iter().filter_map(|url| Request::new(url).ok());
    requests.map(|request| default_name(&request)).all(|name| names.insert(name))
}

/// Downloads from one URL: the exit code, and whether the next one has its turn.
async fn one(options: &GetOptions, connections: &Connections, url: &str) -> (ExitCode, bool) {
    let TransferOptions { json, silent, .. } = options.transfer;
    let mut note = None;
    let result = get(options, connections, url, &mut note).await;
    #[cfg(feature = "operate")]
    if let Ok((report, _)) = &result
        && !options.head
        && let Err(error) = memory::remember(url, report)
        && !silent
    {
        // The download is there, and the command has not failed.
        tell!("packrat get: {error}");
    }
    let goes_on = !matches!(result, Err(Failure::Signal(_)));
    let silent = silent || options.head;
    let words = Words { command: "packrat get", url, role: "output", json, silent };
    (words.conclude(&result, note), goes_on)
}

async fn get(
    options: &GetOptions,
    connections: &Connections,
    url: &str,
    note: &mut Option<String>,
) -> Result<(Report, String), Failure> {
    let mut signals = Signals::catch()?;
    let mut request = options.request(url)?;
    let renewal = signals.or(options.transfer.use_token(&mut request)).await?;
    let bar = match options.parallel {
        true => ProgressBar::hidden(),
        false => options.transfer.progress_bar(),
    };
    if options.head {
        let mut nowhere = io::sink();
        let work = download(connections, &request, &mut nowhere, show_head);
        let report = signals.or(renewing(renewal, work)).await?;
        return Ok((report, "the standard output".to_owned()));
    }
    if options.to_stdout() {
        // (a reader should not wait long if the rate is limited)
        let buffer = options.limit_rate.map_or(256 << 10, |rate| rate.min(256 << 10) / 4);
        let mut output = io::BufWriter::with_capacity(buffer as usize, io::stdout());
        let watch = options.transfer.watch(&bar, show(&bar));
        let work = download(connections, &request, &mut output, watch);
        let report = signals.or(renewing(renewal, work)).await;
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
    let mut kept = None;
    let work = save_in_attempts(options, connections, &mut request, &target, &mut kept, &bar);
    let saved = signals.or(renewing(renewal, work)).await;
    bar.finish_and_clear();
    match saved {
        // From here on there is nothing to interrupt: the file takes its name in one step.
        Ok((report, file)) => {
            file.publish().map_err(|source| GetError::Write { target: name.clone(), source })?;
            Ok((report, name))
        }
        Err(failure) => {
            *note = kept.map(|part| {
                format!("the received part is kept in {}; -C goes on there", part.display())
            });
            Err(failure)
        }
    }
}

/// Saves the download, in further attempts after errors that may pass.
async fn save_in_attempts(
    options: &GetOptions,
    connections: &Connections,
    request: &mut Request,
    target: &Path,
    kept: &mut Option<PathBuf>,
    bar: &ProgressBar,
) -> Result<(Report, PartialFile), GetError> {
    let (mut retries_left, mut pause) = (options.retry, FIRST_PAUSE);
    loop {
        match save(options, connections, request, target, kept, bar).await {
            Err(error) if retries_left > 0 && may_pass(&error) => {
                if !options.transfer.silent {
                    let seconds = pause.as_secs();
                    bar.suspend(|| tell!("packrat get: {error}; next attempt in {seconds} s"));
                }
                tokio::time::sleep(pause).await;
                retries_left -= 1;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            result => return result,
        }
    }
}

/// Saves the download in a file that waits for its name. `kept`: the path of a part that stays after
/// a failure.
async fn save(
    options: &GetOptions,
    connections: &Connections,
    request: &mut Request,
    target: &Path,
    kept: &mut Option<PathBuf>,
    bar: &ProgressBar,
) -> Result<(Report, PartialFile), GetError> {
    let name = target.display().to_string();
    let unwritable = |source| GetError::Write { target: name.clone(), source };
    let mut file = if options.resume || options.retry > 0 {
        // Reads the available bytes.
        let target = target.to_owned();
        let (file, resume) = blocking(move || PartialFile::resume(&target), &unwritable).await?;
        request.resume = resume;
        file
    } else {
        PartialFile::create(target).map_err(unwritable)?
    };
    *kept = file.kept_part().map(Path::to_owned);
    let watch = options.transfer.watch(bar, show(bar));
    let report = download(connections, request, &mut file, watch).await?;
    if request.qlog.is_some() {
        connections.close().await?;
    }
    blocking(file.complete().map_err(unwritable)?, &unwritable).await?;
    Ok((report, file))
}

/// True if another attempt may succeed: curl's cases, and connections that were refused or broke.
fn may_pass(error: &GetError) -> bool {
    match error {
        GetError::Status { status, .. } => matches!(status, 408 | 429 | 500 | 502 | 503 | 504),
        GetError::Resolve { .. }
        | GetError::Unreachable { .. }
        | GetError::Connect { .. }
        | GetError::ConnectTimedOut { .. }
        | GetError::Transfer { .. }
        | GetError::Truncated { .. } => true,
        _ => false,
    }
}

/// Prints the head of a response.
fn show_head(progress: Progress) {
    let Progress::Answered { status, headers } = progress else { return };
    let mut text = format!("HTTP {}\r\n", status.as_u16()).into_bytes();
    for (name, value) in &headers {
        text.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    text.extend(b"\r\n");
    // A reader that has gone away has no use for the rest.
    let _ = io::stdout().write_all(&text);
}

/// Bytes per second, at least 1, with curl's suffixes.
fn rate(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit: Option<u32> = match &text[digits.len()..] {
        "" => Some(1),
        "k" | "K" => Some(1 << 10),
        "m" | "M" => Some(1 << 20),
        "g" | "G" => Some(1 << 30),
        _ => None,
    };
    let bytes = unit.and_then(|unit| digits.parse::<u32>().ok()?.checked_mul(unit));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| {
        "expected bytes per second, below 4G, with k, M or G behind them or without".to_owned()
    })
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
        Progress::Answered { .. } | Progress::Sending { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_the_suffixes_of_curl() {
        assert_eq!(
            ["1", "500k", "2M", "3G"].map(rate),
            [Ok(1), Ok(512_000), Ok(2 << 20), Ok(3 << 30)]
        );
        for wrong in ["", "0", "k", "4G", "1.5M", "-1", "1T", "1 k", "é"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn default_names_come_from_the_path() {
        let name = |url| default_name(&Request::new(url).unwrap());
        assert_eq!(name("https://host/folder/file.iso?query=1/2"), "file.iso");
        assert_eq!(name("https://host/"), "index.html");
        assert_eq!(name("https://host"), "index.html");
        assert_eq!(name("https://host/a/..%2Fetc"), "..%2Fetc");
        assert_eq!(name("https://host/a/%2e%2e"), "index.html");
    }
}
