//! `packrat get`: the command line around [`crate::http3::download`].

use super::ending::{self, Failure, Signals, Words, blocking};
#[cfg(feature = "operate")]
use super::memory;
use super::options::{TransferOptions, renewing, style};
use crate::http3::{GetError, PartialFile, Progress, Report, Request, download};
use clap::{Args, ValueHint};
use indicatif::ProgressBar;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

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
pub(crate) struct GetOptions {
    /// URL of the download: https://host[:port]/path
    url: String,
    /// Write to this file; - is the standard output [default: the last part of the URL's path]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Continue the download of an earlier run with this option; keep the received part when the
    /// download fails
    #[arg(short = 'C', long = "continue")]
    resume: bool,
    /// Never fall back to TCP, as the command does by default if UDP brings no answer
    #[arg(long)]
    http3_only: bool,
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
    let TransferOptions { json, silent, .. } = options.transfer;
    if json && to_stdout(&options) {
        tell!("packrat get: --json and -o - both want the standard output; choose one");
        return ExitCode::from(2);
    }
    let mut note = None;
    let result = get(&options, &mut note).await;
    #[cfg(feature = "operate")]
    if let Ok((report, _)) = &result
        && let Err(error) = memory::remember(&options.url, report)
        && !silent
    {
        // The download is there, and the command has not failed.
        tell!("packrat get: {error}");
    }
    let words = Words { command: "packrat get", url: &options.url, role: "output", json, silent };
    words.conclude(&result, note)
}

fn to_stdout(options: &GetOptions) -> bool {
    options.output.as_ref().is_some_and(|output| output.as_os_str() == "-")
}

async fn get(options: &GetOptions, note: &mut Option<String>) -> Result<(Report, String), Failure> {
    let mut signals = Signals::catch()?;
    let mut request = options.transfer.request(&options.url)?;
    request.may_use_tcp = !options.http3_only;
    request.limit_rate = options.limit_rate;
    let renewal = signals.or(options.transfer.use_token(&mut request)).await?;
    let bar = options.transfer.progress_bar();
    if to_stdout(options) {
        // (a reader should not wait long if the rate is limited)
        let buffer = options.limit_rate.map_or(256 << 10, |rate| rate.min(256 << 10) / 4);
        let mut output = io::BufWriter::with_capacity(buffer as usize, io::stdout());
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
        // Reads the available bytes.
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
        Progress::Sending { .. } => {}
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
