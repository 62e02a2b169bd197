//! `packrat put`: the command line around [`crate::http3::upload`].

use super::ending::{self, Failure, Signals, Words};
use super::options::{TransferOptions, renewing, style};
use crate::http3::{
    Beginning, Begun, GetError, Progress, Proxies, Report, Request, Resumable, Source, Upload,
    content_type as type_field, length, upload,
};
use clap::{Args, ValueHint};
use http::{HeaderValue, Method, header};
use indicatif::ProgressBar;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use url::Url;

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
   26  the file or the .netrc file cannot be read
   28  timed out
   33  no upload can be created or continued at the URL
   35  TLS handshake failed
   45  no local endpoint
   47  redirected (redirects are not followed)
   56  the transfer broke
   60  the server's certificate is not accepted
   77  the trusted certificates cannot be used
   90  the token endpoint names another gateway key than --gateway-key
  130  interrupted (Ctrl-C)
  143  terminated
With --tus an upload goes on where it broke, and --continue sends the rest of one that was given up.
Without, one that has failed begins again: HTTP has no way to send the rest.";

/// Options of `packrat put`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct PutOptions {
    /// File to upload; - is the standard input, whose length the server does not learn beforehand
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// URL of the upload: https://host[:port]/path
    url: String,
    /// Send a POST request instead of PUT
    #[arg(long)]
    post: bool,
    /// Go on after a break by the tus protocol (tus.io): the URL is where its server creates uploads
    #[arg(long, conflicts_with_all = ["post", "answer"])]
    tus: bool,
    /// Begin anew when the server has forgotten the upload
    #[arg(long)]
    restart: bool,
    /// Send the rest of an upload; the URL is the upload's
    #[arg(long = "continue", conflicts_with_all = ["post", "answer", "restart"])]
    continues: bool,
    /// The type of the content, such as application/json [default: the server guesses]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<HeaderValue>,
    /// Print the body of the server's answer on the standard output
    #[arg(long, conflicts_with = "json")]
    answer: bool,
    #[command(flatten)]
    transfer: TransferOptions,
}

/// Runs `packrat put`.
pub(crate) fn run(options: PutOptions) -> ExitCode {
    ending::run("packrat put", carry_out(options))
}

async fn carry_out(options: PutOptions) -> ExitCode {
    let TransferOptions { json, silent, .. } = options.transfer;
    let words = Words { command: "packrat put", url: &options.url, role: "input", json, silent };
    let is_stream = matches!(length(&options.file), Ok(None));
    if options.tus || options.continues || !is_stream {
        let mut place = None;
        let result = put_resumable(&options, &mut place).await;
        let place = place.filter(|_| result.is_err());
        let file = options.file.display().to_string();
        let note = place.map(|place| rest(&file, place.as_str()));
        return words.conclude(&result, note);
    }
    words.conclude(&put(&options).await, None)
}

/// The command that sends the rest of an upload.
fn rest(file: &str, place: &str) -> String {
    format!("to send the rest: packrat put --continue {} {}", word(file), word(place))
}

/// Quotes a text as one word for a shell: a server chooses the place of an upload.
fn word(text: &str) -> String {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "-_./:@%+=,".contains(one);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

async fn put_resumable(
    options: &PutOptions,
    place: &mut Option<Url>,
) -> Result<(Report, String), Failure> {
    let mut signals = Signals::catch()?;
    let (mut request, content_type) = request(options)?;
    let beginning = match (options.continues, options.tus) {
        (true, _) => Beginning::Earlier(request.url.clone()),
        (_, true) => Beginning::Created,
        _ => Beginning::Whole(options.method()),
    };
    let mut resumable =
        Resumable::new(&options.file, content_type, beginning)?.restarting(options.restart);
    let renewal = signals.or(options.transfer.use_token(&mut request)).await?;
    let bar = options.transfer.progress_bar();
    let silent = options.transfer.silent;
    let paused = |error: &GetError, pause: Duration| {
        if !silent {
            bar.suspend(|| {
                tell!("packrat put: {error}; next attempt in {} s", pause.as_secs());
            });
        }
    };
    let mut answer = options.answer();
    let watch = options.transfer.watch(&bar, show(&bar));
    let work = resumable.run(&request, &mut answer, watch, paused);
    let uploaded = signals.or(renewing(renewal, work)).await;
    bar.finish_and_clear();
    *place = resumable.place().cloned();
    let report = uploaded?;
    flush(answer)?;
    Ok((report, options.file.display().to_string()))
}

/// The request that the options describe, without its token, and the type of the content.
fn request(options: &PutOptions) -> Result<(Request, Option<HeaderValue>), GetError> {
    let mut request = options.transfer.request(&options.url)?;
    let mut content_type = options.content_type.clone();
    // With tus, requests have another type than the content.
    for field in request.fields.extract_if(.., |field| field.name == header::CONTENT_TYPE) {
        content_type = content_type.or(field.value);
    }
    if let Some(assist) = &mut request.assist {
        // s2n-quic sends with CUBIC, which answers each loss: docs/POLICY.md.
        assist.uploads = true;
    }
    request.proxies = Proxies::new(None, None).unwrap_or_default();
    if request.proxy().is_some() && !options.transfer.silent {
        tell!(
            "packrat put: an upload goes over HTTP/3, which no HTTP proxy passes: HTTPS_PROXY is not used"
        );
    }
    request.proxies = None;
    Ok((request, content_type))
}

impl PutOptions {
    fn method(&self) -> Method {
        if self.post { Method::POST } else { Method::PUT }
    }

    /// The place of the server's answer.
    fn answer(&self) -> Box<dyn Write> {
        if self.answer { Box::new(io::stdout()) } else { Box::new(io::sink()) }
    }
}

fn flush(mut answer: impl Write) -> Result<(), GetError> {
    answer.flush().map_err(|source| GetError::Write { target: "the answer".to_owned(), source })
}

/// Sends a stream, which can't be read again.
async fn put(options: &PutOptions) -> Result<(Report, String), Failure> {
    let mut signals = Signals::catch()?;
    let (mut request, content_type) = request(options)?;
    let source = Source::open(&options.file)?;
    let name = source.name().to_owned();
    let renewal = signals.or(options.transfer.use_token(&mut request)).await?;
    let bar = options.transfer.progress_bar();
    let body = Upload {
        method: options.method(),
        headers: type_field(content_type),
        source,
        begun: Begun::default(),
        whole: None,
        offered: None,
    };
    let mut answer = options.answer();
    let watch = options.transfer.watch(&bar, show(&bar));
    let uploaded = signals.or(renewing(renewal, upload(&request, body, &mut answer, watch))).await;
    bar.finish_and_clear();
    let report = uploaded?;
    flush(answer)?;
    Ok((report, name))
}

fn show(bar: &ProgressBar) -> impl FnMut(Progress) + '_ {
    let (mut all, mut first) = (None, 0);
    move |progress| match progress {
        Progress::Connecting { remote } => bar.set_message(format!("connecting to {remote}")),
        Progress::Connected { .. } | Progress::Answered { .. } | Progress::Response { .. } => {}
        Progress::Sending { expected_bytes, resumed_from } => {
            bar.set_message("uploading");
            if let Some(expected) = expected_bytes {
                bar.set_length(expected);
                bar.set_style(style(true));
            }
            bar.set_position(resumed_from);
            bar.reset_eta();
            (all, first) = (expected_bytes, resumed_from);
        }
        Progress::Data { bytes } => {
            bar.set_position(first + bytes);
            if all == Some(first + bytes) {
                bar.set_message("waiting for the server");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_for_the_rest_is_one_command() {
        let plain = rest("file.iso", "https://host:8443/files/24e53");
        assert!(plain.ends_with(" file.iso https://host:8443/files/24e53"), "{plain}");
        // What a server may name, and a file may be called.
        let place = Url::parse("https://host/files/;touch$IFS'it'&$(id)|id").unwrap();
        let hostile = rest("my file", place.as_str());
        let words = format!("set -- {} && for word; do echo \"$word\"; done", &hostile[18..]);
        let output = std::process::Command::new("sh").args(["-c", &words]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let expected = ["packrat", "put", "--continue", "my file", place.as_str()];
        assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    }
}
