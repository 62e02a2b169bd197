//! The command line around [`super::upload`].

use super::{Source, Upload, upload};
use crate::get::ending::{self, Failure, Signals, Words};
use crate::get::options::{TransferOptions, renewing, style};
use crate::get::{GetError, Progress, Report};
use clap::{Args, ValueHint};
use http::{HeaderValue, Method};
use indicatif::ProgressBar;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit codes, for `--help`.
const EXIT_CODES: &str = "\
Exit codes (curl's numbers where curl has the same error):
    0  done: the server has answered that it has taken everything
    1  the URL's scheme is not https
    2  wrong usage
    3  malformed URL
    6  the host cannot be resolved
    7  cannot connect: refused, no route, or the server gave up
    8  the token endpoint's answer cannot be understood
   18  the server answered before it had everything, and read no more
   22  HTTP status 400 or above, or one that says nothing about an upload
   23  the answer or the qlog cannot be written
   26  the file cannot be read
   28  timed out
   35  TLS handshake failed
   45  no local endpoint
   47  redirected (redirects are not followed)
   56  the transfer broke
   60  the server's certificate is not accepted
   77  the trusted certificates cannot be used
   90  the token endpoint names another gateway key than --gateway-key
  130  interrupted (Ctrl-C)
  143  terminated
An upload that has failed begins again: servers do not take the rest of one.";

/// Options of `packrat put`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Options {
    /// File to upload; - is the standard input, whose length the server does not learn beforehand
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// URL of the upload: https://host[:port]/path
    url: String,
    /// Send a POST request instead of PUT
    #[arg(long)]
    post: bool,
    /// The type of what is sent, such as application/json [default: the server guesses]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<HeaderValue>,
    /// Print the body of the server's answer on the standard output
    #[arg(long, conflicts_with = "json")]
    answer: bool,
    #[command(flatten)]
    transfer: TransferOptions,
}

/// Runs `packrat put`.
pub(crate) fn run(options: Options) -> ExitCode {
    ending::run("packrat put", carry_out(options))
}

async fn carry_out(options: Options) -> ExitCode {
    let TransferOptions { json, silent, .. } = options.transfer;
    let result = put(&options).await;
    let words = Words { command: "packrat put", url: &options.url, role: "input", json, silent };
    words.conclude(&result, None)
}

async fn put(options: &Options) -> Result<(Report, String), Failure> {
    let mut signals = Signals::catch()?;
    let mut request = options.transfer.request(&options.url)?;
    if let Some(assist) = &mut request.assist {
        // s2n-quic sends with CUBIC, which answers each loss: docs/POLICY.md.
        assist.uploads = true;
    }
    let source = Source::open(&options.file)?;
    let name = source.name().to_owned();
    let renewal = signals.or(options.transfer.use_token(&mut request)).await?;
    let bar = options.transfer.progress_bar();
    let body = Upload {
        method: if options.post { Method::POST } else { Method::PUT },
        content_type: options.content_type.clone(),
        source,
    };
    let mut answer: Box<dyn Write> =
        if options.answer { Box::new(io::stdout()) } else { Box::new(io::sink()) };
    let uploaded =
        signals.or(renewing(renewal, upload(&request, body, &mut answer, show(&bar)))).await;
    bar.finish_and_clear();
    let report = uploaded?;
    answer.flush().map_err(|source| GetError::Write { target: "the answer".to_owned(), source })?;
    Ok((report, name))
}

fn show(bar: &ProgressBar) -> impl FnMut(Progress) + '_ {
    let mut all = None;
    move |progress| match progress {
        Progress::Connecting { remote } => bar.set_message(format!("connecting to {remote}")),
        Progress::Connected { .. } | Progress::Response { .. } => {}
        Progress::Sending { expected_bytes } => {
            bar.set_message("uploading");
            if let Some(expected) = expected_bytes {
                bar.set_length(expected);
                bar.set_style(style(true));
            }
            bar.set_position(0);
            bar.reset_eta();
            all = expected_bytes;
        }
        Progress::Data { bytes } => {
            bar.set_position(bytes);
            if all == Some(bytes) {
                bar.set_message("waiting for the server");
            }
        }
    }
}
