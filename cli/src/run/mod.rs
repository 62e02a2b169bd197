//! `packrat run`: a program whose datagrams an agent forwards, without the program's knowledge.

mod redirection;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use clap::{Args, ValueHint};
use packrat_agent::{
    Access, Agent, ClientConfig, Counters, DontFragment, IdentifierScheme, Limits, Service, Target,
    transparent,
};
use packrat_token_client::gateway_key;
use rustix::process::{Pid, kill_process};
use tokio::process::Command;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::agent::read_token;
use redirection::{Redirection, Rules};

const EXAMPLES: &str = "\
Examples:
    packrat run -- curl --http3-only https://edge.example/file -O
    packrat run --port 443 --port 8443 -- chromium https://edge.example/

It needs root (CAP_NET_ADMIN), nft, iproute2 and control groups version 2. Without these rights use
`packrat agent`.";

/// Options of `packrat run`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Redirect datagrams to this port; repeat it for more [default: 443]
    #[arg(long = "port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    ports: Vec<u16>,
    /// Accept help only from the gateway with this public key (64 hexadecimal digits)
    #[arg(long, value_name = "HEX", value_parser = gateway_key)]
    gateway_key: Option<[u8; 32]>,
    /// Longest time a datagram waits for the repair of an earlier one, in milliseconds
    #[arg(long, value_name = "MS")]
    maximum_hold: Option<u64>,
    /// Read an assist token from this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    assist_token_file: Option<PathBuf>,
    /// No line about what was repaired at the end
    #[arg(short, long)]
    silent: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

/// Runs the command; the program's exit code.
pub(crate) fn run(options: Options) -> ExitCode {
    match serve(&options) {
        Ok((status, counters)) => {
            if !options.silent {
                eprintln!("packrat run: {}", summary(&counters));
            }
            code(status)
        }
        Err(error) => {
            eprintln!("packrat run: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &Options) -> Result<(ExitStatus, Counters), String> {
    let mut access = Access::default().with_gateway_key(options.gateway_key);
    if let Some(hold) = options.maximum_hold {
        access.maximum_hold = Duration::from_millis(hold);
    }
    if let Some(path) = &options.assist_token_file {
        access.token = read_token(path)?;
    }
    let config = ClientConfig::from(access).with_scheme(IdentifierScheme::Payload);
    let mut ports = options.ports.clone();
    if ports.is_empty() {
        ports.push(443);
    }
    ports.sort_unstable();
    ports.dedup();
    let (mut services, mut rules) = (Vec::new(), Vec::new());
    for port in ports {
        let any = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), (Ipv6Addr::LOCALHOST, 0).into()];
        let listen = any.map(|any| {
            // A host without IPv6 has no such datagrams, either.
            let socket = match transparent(any) {
                Err(_) if any.is_ipv6() => return Ok(None),
                socket => socket.map_err(|error| {
                    format!(
                        "cannot take over a program's datagrams: {error}; run it as root, or use packrat agent"
                    )
                })?,
            };
            let listen = socket.local_addr().map_err(|error| error.to_string())?;
            services.push(Service {
                name: format!("port {port}"),
                socket,
                to: Target::Original { port },
                config: config.clone(),
                dont_fragment: DontFragment::default(),
            });
            Ok::<_, String>(Some(listen.port()))
        });
        let [v4, v6] = listen;
        rules.push(Rules { port, v4: v4?, v6: v6? });
    }
    let begun = |error: std::io::Error| format!("cannot start: {error}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(begun)?.block_on(async {
        // From here on signals end the program, and this command after it, in order.
        let mut interrupt = signal(SignalKind::interrupt()).map_err(begun)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(begun)?;
        let redirection = Redirection::set_up(&rules)?;
        let (agent, handle) = Agent::new(services, None, Limits::default()).map_err(begun)?;
        let thread = std::thread::spawn(move || agent.run());
        let outcome =
            run_program(&options.program, &redirection, &mut interrupt, &mut terminate).await;
        let counters = handle.status().map(|status| status.total()).unwrap_or_default();
        handle.stop();
        // Its panic has been printed already.
        let _ = thread.join();
        drop(redirection);
        Ok((outcome?, counters))
    })
}

/// Runs the program among the redirected, until it ends. An interrupt reaches it from the terminal; a
/// request to end is passed on.
async fn run_program(
    program: &[String],
    redirection: &Redirection,
    interrupt: &mut Signal,
    terminate: &mut Signal,
) -> Result<ExitStatus, String> {
    let name = program.first().ok_or("give a program to run")?;
    let failed = |error: std::io::Error| format!("cannot run {name}: {error}");
    // The shell puts itself among the redirected before it becomes the program.
    let mut process = Command::new("sh")
        .args(["-c", "echo 0 > \"$0\" && exec \"$@\""])
        .arg(redirection.members())
        .args(program)
        .spawn()
        .map_err(failed)?;
    loop {
        tokio::select! {
            status = process.wait() => return status.map_err(failed),
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {
                let id = process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
                // It may have ended meanwhile.
                let _ = id.map(|id| kill_process(id, rustix::process::Signal::TERM));
            }
        }
    }
}

/// The exit code as shells give it: that of a program which a signal has ended is 128 and its
/// number.
fn code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn summary(counters: &Counters) -> String {
    format!(
        "{} sessions with gateways; {} datagrams missing: {} repaired in time, {} late, {} given up",
        counters.sessions,
        counters.holes,
        counters.repaired_in_time,
        counters.repaired_late,
        counters.given_up
    )
}
