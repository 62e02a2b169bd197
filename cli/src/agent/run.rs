//! `packrat run`: a program whose datagrams an agent forwards, without the program's knowledge.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};

use clap::Args;
use packrat_agent::{Agent, Choosing, Limits};
use rustix::process::{Pid, Resource, getpgrp, getrlimit, kill_process};
use rustix::termios::tcgetpgrp;
use tokio::process::Command;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::limits::{OTHER_DESCRIPTORS, limits, raise_descriptor_limit};
use super::redirection::{Redirection, RedirectionOptions, Whose, listeners};
use super::summary::summary;

/// Examples in the help text.
const EXAMPLES_HELP: &str = "\
Examples:
    packrat run -- curl --http3-only https://edge.example/file -O
    packrat run --port 443 --port 8443 -- setpriv --reuid USER --regid GROUP --init-groups PROGRAM

It needs root (CAP_NET_ADMIN), nft, iproute2 and control groups version 2. Without these rights use
`packrat agent`.";

/// Options of `packrat run`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES_HELP)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    redirection: RedirectionOptions,
    /// No line about repairs at the end
    #[arg(short, long)]
    silent: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

/// Runs the command; the program's exit code.
pub(crate) fn run(options: RunOptions) -> ExitCode {
    match serve(&options) {
        Ok((status, summary)) => {
            if let Some(summary) = summary.filter(|_| !options.silent) {
                // The exit code is the program's, also if no one reads this any more.
                tell!("packrat run: {summary}");
            }
            code(status)
        }
        Err(error) => {
            tell!("packrat run: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &RunOptions) -> Result<(ExitStatus, Option<String>), String> {
    let (services, rules) = listeners(&options.redirection)?;
    let begun = |error: io::Error| format!("cannot start: {error}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(begun)?.block_on(async {
        // From here on signals end the program, and this command after it, in order.
        let mut signals = Signals::take().map_err(begun)?;
        let mut redirection = Redirection::set_up(&Whose::Program, &rules)?;
        let members = redirection.members().ok_or("there is no control group")?.to_owned();
        let descriptors = getrlimit(Resource::Nofile).current;
        raise_descriptor_limit();
        let limits = limits("run", None, OTHER_DESCRIPTORS);
        // All flows are one program's.
        let limits = Limits { source_flows: limits.flows, ..limits };
        let (agent, handle) = Agent::new(services, Choosing::default(), limits).map_err(begun)?;
        let (ended, has_ended) = oneshot::channel();
        let thread = std::thread::spawn(move || drop(ended.send(agent.run())));
        // Without the agent the program's datagrams would go to no socket.
        let let_go = async {
            let why = match has_ended.await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "an internal error; please report it".to_owned(),
            };
            redirection.end();
            tell!("packrat run: forwarding has ended: {why}; the program goes on without it");
        };
        let outcome =
            run_program(&options.program, &members, descriptors, let_go, &mut signals).await;
        let summary = handle.status().map(|status| summary(&status));
        handle.stop();
        // Its panic has been printed already.
        let _ = thread.join();
        drop(redirection);
        Ok((outcome?, summary))
    })
}

/// The signals that end this command after its program.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
    quit: Option<Signal>,
}

impl Signals {
    fn take() -> io::Result<Self> {
        let ignored = ignored_signals();
        // One that is ignored (nohup) stays so, for the program as well.
        let unless_ignored = |kind: SignalKind| {
            let is_ignored = (ignored >> (kind.as_raw_value() - 1)) & 1 == 1;
            (!is_ignored).then(|| signal(kind)).transpose()
        };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: unless_ignored(SignalKind::hangup())?,
            quit: unless_ignored(SignalKind::quit())?,
        })
    }

    /// The next signal that the program has to get. A terminal's interrupt reaches it by itself.
    async fn next(&mut self) -> rustix::process::Signal {
        async fn of(signal: &mut Option<Signal>) {
            match signal {
                Some(signal) => drop(signal.recv().await),
                None => std::future::pending().await,
            }
        }
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {
                    if !is_in_foreground() {
                        return rustix::process::Signal::INT;
                    }
                }
                _ = self.terminate.recv() => return rustix::process::Signal::TERM,
                () = of(&mut self.hangup) => return rustix::process::Signal::HUP,
                () = of(&mut self.quit) => return rustix::process::Signal::QUIT,
            }
        }
    }
}

/// True if a terminal sends its interrupts to this process's group, and so to the program too.
fn is_in_foreground() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(terminal) == Ok(getpgrp()))
}

/// The signals that this process ignores, the first in the lowest bit.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

/// Runs the program among the members of a control group, until it ends; runs `let_go` beside it.
/// `descriptors`: the program's limit, from before this command raised its own.
async fn run_program(
    program: &[String],
    members: &Path,
    descriptors: Option<u64>,
    let_go: impl Future<Output = ()>,
    signals: &mut Signals,
) -> Result<ExitStatus, String> {
    let name = program.first().ok_or("give a program to run")?;
    let failed = |error: io::Error| format!("cannot run {name}: {error}");
    let descriptors = descriptors.map_or_else(|| "unlimited".to_owned(), |most| most.to_string());
    // The shell puts itself among the redirected before it becomes the program.
    let mut process = Command::new("sh")
        .args(["-c", "echo 0 > \"$0\" && ulimit -S -n \"$1\" && shift && exec \"$@\""])
        .arg(members)
        .arg(descriptors)
        .args(program)
        .spawn()
        .map_err(failed)?;
    tokio::pin!(let_go);
    let mut has_let_go = false;
    loop {
        tokio::select! {
            status = process.wait() => return status.map_err(failed),
            () = &mut let_go, if !has_let_go => has_let_go = true,
            signal = signals.next() => {
                let id = process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
                // It may have ended meanwhile.
                let _ = id.map(|id| kill_process(id, signal));
            }
        }
    }
}

/// The exit code as shells give it: for a program ended by a signal, 128 plus its number.
fn code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signals that no other test sends to this process.
    fn signals() -> Signals {
        let unused = || signal(SignalKind::user_defined2()).unwrap();
        Signals { interrupt: unused(), terminate: unused(), hangup: None, quit: None }
    }

    /// The agent's end does not take the program's network from it.
    #[tokio::test]
    async fn a_program_outlives_the_agent_without_the_redirection() {
        let folder = tempfile::tempdir().unwrap();
        let (members, gone) = (folder.path().join("members"), folder.path().join("gone"));
        let let_go = async { std::fs::write(&gone, "").unwrap() };
        let script = "for _ in $(seq 1200); do [ -e \"$0\" ] && exit 7; sleep 0.05; done";
        let program = ["sh", "-c", script, gone.to_str().unwrap()].map(str::to_owned);
        let mut signals = signals();
        let status = run_program(&program, &members, Some(64), let_go, &mut signals).await;
        assert_eq!(status.unwrap().code(), Some(7));
        assert_eq!(std::fs::read_to_string(members).unwrap(), "0\n");
    }

    #[tokio::test]
    async fn a_program_has_the_limit_of_descriptors_that_it_would_have() {
        let folder = tempfile::tempdir().unwrap();
        let members = folder.path().join("members");
        let program = ["sh", "-c", "exit $(ulimit -S -n)"].map(str::to_owned);
        let mut signals = signals();
        let pending = std::future::pending();
        let status = run_program(&program, &members, Some(77), pending, &mut signals).await;
        assert_eq!(status.unwrap().code(), Some(77));
    }
}
