//! The clients of the demo: their programs, and what differs between them.

use std::ffi::OsString;

use tokio::process::Command;

use super::super::both_ends::{
    Signalling, WEBRTC_SCRIPT, WIREGUARD_SCRIPT, media_server_ports, wireguard_keys,
};
use super::super::error::DemoError;
use super::super::options::{ClientKind, DemoOptions};
use super::super::parts::{part, python, wireguard_go};
use super::job::Job;

/// A client of the demo.
pub(crate) struct Client {
    kind: ClientKind,
    /// Name of the server that it needs instead of a web server with HTTP/3.
    own_server: Option<&'static str>,
    /// Number of repetitions, unless the user sets it.
    repeats: u32,
    /// Name of the operation that it repeats.
    pub(super) repeated: &'static str,
    /// True if its data may be missing or wrong for a moment: that is measured.
    pub(super) bears_loss: bool,
    pub(super) program: Program,
}

/// The program of a client.
#[derive(Clone, Copy)]
pub(super) enum Program {
    /// `packrat get` or `packrat put`, in this process.
    Packrat,
    /// A game's client, in this process.
    Echo,
    /// A Python script, its environment, and its arguments.
    Script(&'static str, &'static str, Arguments),
    /// A program at a path of the parts, and its name.
    Binary(&'static str, &'static str, Arguments),
}

type Arguments = fn(&Job<'_>) -> Result<Vec<OsString>, DemoError>;

const CLIENT: Client = Client {
    kind: ClientKind::Packrat,
    own_server: None,
    repeats: 0,
    repeated: "pages loaded",
    bears_loss: false,
    program: Program::Packrat,
};
/// A script that loads pages in a browser.
const LOADING: &str = concat!(include_str!("browser.py"), include_str!("chromium.py"));
/// A script of two pages in a call.
const IN_A_CALL: &str = concat!(include_str!("browser.py"), include_str!("browser_webrtc.py"));
const CURL: Program = Program::Script("clients", include_str!("curl.py"), download);

const CLIENTS: [Client; 10] = [
    CLIENT,
    Client { kind: ClientKind::Curl, program: CURL, ..CLIENT },
    Client { kind: ClientKind::CurlSocks, program: CURL, ..CLIENT },
    Client {
        kind: ClientKind::Aioquic,
        program: Program::Script("venv", include_str!("aioquic.py"), download),
        ..CLIENT
    },
    Client {
        kind: ClientKind::QuicGo,
        program: Program::Binary("go-clients/download", "quic-go's client", download),
        ..CLIENT
    },
    Client {
        kind: ClientKind::Chromium,
        repeats: 10,
        program: Program::Script("venv", LOADING, pages),
        ..CLIENT
    },
    Client {
        kind: ClientKind::Wireguard,
        own_server: Some("wireguard-go"),
        program: Program::Script("venv", WIREGUARD_SCRIPT, tunnelled_download),
        ..CLIENT
    },
    Client {
        kind: ClientKind::Echo,
        own_server: Some("echo"),
        repeats: 1800,
        program: Program::Echo,
        ..CLIENT
    },
    Client {
        kind: ClientKind::Webrtc,
        own_server: Some("aiortc"),
        repeats: 600,
        repeated: "frames shown",
        bears_loss: true,
        program: Program::Script("webrtc", WEBRTC_SCRIPT, video),
    },
    Client {
        kind: ClientKind::BrowserWebrtc,
        own_server: Some("pion"),
        repeats: 600,
        repeated: "frames shown",
        bears_loss: true,
        program: Program::Script("venv", IN_A_CALL, call),
    },
];

impl Client {
    /// The client that the user wants.
    pub(crate) fn of(options: &DemoOptions) -> &'static Self {
        CLIENTS.iter().find(|client| client.kind == options.program.client).unwrap_or(&CLIENTS[0])
    }

    /// Name of the server.
    pub(crate) fn server_name(&self, options: &DemoOptions) -> String {
        self.own_server.map_or_else(|| options.server.to_string(), str::to_owned)
    }

    /// The number of its measurements.
    pub(crate) fn repeats(&self, options: &DemoOptions) -> u32 {
        options.program.repeats.unwrap_or(self.repeats)
    }
}

impl Program {
    /// The process to start, if it is another one than this.
    pub(super) fn command(self, job: &Job<'_>) -> Result<Option<Command>, DemoError> {
        let parts = &job.stage.options.parts;
        let (mut command, arguments) = match self {
            Self::Packrat | Self::Echo => return Ok(None),
            Self::Script(environment, script, arguments) => {
                let python = python(parts, environment, "the client's Python environment")?;
                let mut command = Command::new(python);
                command.args(["-c", script]);
                (command, arguments)
            }
            Self::Binary(path, what, arguments) => {
                (Command::new(part(parts, path, what)?), arguments)
            }
        };
        command.args(arguments(job)?);
        Ok(Some(command))
    }
}

fn download(job: &Job<'_>) -> Result<Vec<OsString>, DemoError> {
    let transfer = &job.transfer;
    let mut arguments = vec![
        transfer.server.to_string().into(),
        transfer.file.into(),
        transfer.authority.into(),
        transfer.patience.as_secs_f64().to_string().into(),
    ];
    arguments.extend(job.proxy.map(|proxy| format!("socks5h://{proxy}").into()));
    Ok(arguments)
}

fn pages(job: &Job<'_>) -> Result<Vec<OsString>, DemoError> {
    let (stage, mut arguments) = (job.stage, download(job)?);
    arguments.push(repeats(job));
    arguments.push(stage.files.clone().into());
    arguments.push(stage.certificate.chain.clone().into());
    Ok(arguments)
}

fn tunnelled_download(job: &Job<'_>) -> Result<Vec<OsString>, DemoError> {
    let transfer = &job.transfer;
    Ok(vec![
        "get".into(),
        wireguard_go(&job.stage.options.parts)?.into(),
        wireguard_keys(job.work).into(),
        transfer.server.to_string().into(),
        transfer.file.into(),
        transfer.patience.as_secs_f64().to_string().into(),
    ])
}

fn video(job: &Job<'_>) -> Result<Vec<OsString>, DemoError> {
    let signalling = Signalling::new(job.work);
    Ok(vec![
        "receive".into(),
        signalling.offer.into(),
        signalling.answer.into(),
        job.transfer.server.to_string().into(),
        repeats(job),
    ])
}

fn call(job: &Job<'_>) -> Result<Vec<OsString>, DemoError> {
    Ok(vec![
        media_server_ports(job.work).into(),
        job.transfer.server.to_string().into(),
        job.turn.map_or_else(|| "-".to_owned(), |turn| turn.to_string()).into(),
        repeats(job),
    ])
}

fn repeats(job: &Job<'_>) -> OsString {
    let options = job.stage.options;
    Client::of(options).repeats(options).to_string().into()
}
