//! `packrat agent`: a local forwarder that makes any UDP program a client.

mod options;
mod plan;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::future::join_all;
use indicatif::ProgressBar;
use packrat_agent::{Access, Agent, Condition, Counters, Handle, Limits, Service, Target, choose};
use packrat_pages::{Answer, Pages};
use packrat_token_client::AssistToken;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

pub(crate) use options::Options;
pub(crate) use plan::read_token;
use plan::{Plan, Source, Tokens};

use crate::get::Request;
use crate::get::token::{self, TokenSource};

/// Interval of the status line.
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// Interval at which the services' hosts are resolved again.
const RESOLVE_EVERY: Duration = Duration::from_secs(60);
/// Pause after a token endpoint's failure, until the first token is there.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// Interval at which a file with a token is read.
const READ_AGAIN: Duration = Duration::from_secs(2);

/// Runs the command; its exit code.
pub(crate) fn run(options: Options) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime
        .map_err(|error| format!("cannot start: {error}"))
        .and_then(|runtime| runtime.block_on(serve(&options)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell!("packrat agent: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Forwards until a signal ends the command.
async fn serve(options: &Options) -> Result<(), String> {
    raise_descriptor_limit();
    let Plan { services, socks, hosts, tokens, limits, metrics } = Plan::new(options)?;
    let begun = |error: io::Error| format!("cannot start: {error}");
    // From here on signals end the command in order.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(begun)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(begun)?;
    let target = |service: &Service| match service.to {
        Target::Service(to) => Some(to),
        Target::Original { .. } => None,
    };
    let targets: Vec<_> = services.iter().filter_map(target).collect();
    let (agent, handle) =
        Agent::new(services, socks, limits).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => error.to_string(),
            _ => begun(error),
        })?;
    let (ended, has_ended) = oneshot::channel();
    let thread = std::thread::Builder::new().name("packrat-agent".to_owned());
    let thread = thread.spawn(move || drop(ended.send(agent.run()))).map_err(begun)?;
    let pages = metrics.map(|address| pages(address, &handle)).transpose()?;
    announce(&handle, pages.as_ref());

    let helpers = async {
        tokio::join!(
            show(options, &handle),
            follow_names(&hosts, targets, &handle),
            join_all(tokens.into_iter().map(|tokens| keep_token(tokens, &handle))),
        )
    };
    let failed = |error: io::Error| format!("forwarding has ended: {error}");
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        ended = has_ended => return match ended {
            Ok(result) => result.map_err(failed),
            Err(_) => Err("forwarding has ended with an internal error; please report it".to_owned()),
        },
        _ = helpers => {}
    }
    handle.stop();
    // Its panic has been printed already.
    let _ = thread.join();
    Ok(())
}

/// Every flow needs a descriptor.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    // With fewer there are fewer flows.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Descriptors that a forwarding process has besides its flows'.
pub(crate) const OTHER_DESCRIPTORS: u64 = 64;

/// The limits of a command's agent: as many flows as `wished`, and as there are descriptors, one
/// for each. `others`: descriptors for other things.
pub(crate) fn limits(command: &str, wished: Option<u32>, others: u64) -> Limits {
    let defaults = Limits::default();
    let wished = wished.map_or(defaults.flows, |flows| flows as usize);
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // If there are few, the other things have a quarter.
    let possible = descriptors - others.min(descriptors / 4);
    let possible = usize::try_from(possible).unwrap_or(usize::MAX);
    let flows = possible.clamp(1, wished);
    if flows < wished {
        tell!(
            "packrat {command}: {descriptors} descriptors are enough for {flows} sockets of programs or hosts, not for \
             {wished}: raise the limit (ulimit -n)"
        );
    }
    // Another machine cannot keep all others out.
    Limits { flows, source_flows: (flows / 4).max(1), ..defaults }
}

/// Prints the addresses to send to, also for scripts: a port may have been chosen.
fn announce(handle: &Handle, pages: Option<&Pages>) {
    let mut text = String::new();
    for service in handle.status().map(|status| status.services).unwrap_or_default() {
        let (name, listen) = (service.name, service.listen);
        text += &match service.to {
            Some(to) => format!("{name} listens on {listen} and forwards to {to}\n"),
            None => format!("{name} listens on {listen} and forwards to where programs say\n"),
        };
    }
    if let Some(pages) = pages {
        text += &format!(
            "metrics on http://{0}/metrics, status on http://{0}/packrat\n",
            pages.address()
        );
    }
    // A reader that has gone away does not end the forwarding.
    let _ = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
}

/// Serves metrics and status of the agent, to other machines only if they may ask.
pub(crate) fn serve_pages(
    address: std::net::SocketAddr,
    allow_remote: bool,
    handle: &Handle,
) -> Result<Pages, String> {
    plan::check_metrics(address, allow_remote)?;
    pages(address, handle)
}

fn pages(address: std::net::SocketAddr, handle: &Handle) -> Result<Pages, String> {
    let handle = handle.clone();
    Pages::serve(address, move |request| answer(request, &handle))
        .map_err(|error| error.to_string())
}

fn answer(request: &packrat_pages::Request<'_>, handle: &Handle) -> Answer {
    let path = request.target.split('?').next().unwrap_or_default();
    if request.method != "GET" && request.method != "HEAD" {
        return Answer::problem(405, format!("{path} takes no {}; use GET", request.method));
    }
    if !["/metrics", "/packrat"].contains(&path) {
        return Answer::problem(404, format!("nothing is at {path}; try /metrics or /packrat"));
    }
    match handle.status() {
        None => Answer::problem(503, "the agent ends".to_owned()),
        Some(status) if path == "/metrics" => Answer::prometheus(status.prometheus()),
        Some(status) => Answer::json(&status),
    }
}

/// Shows the agent's state on a terminal.
async fn show(options: &Options, handle: &Handle) {
    if options.silent || !io::stderr().is_terminal() {
        return std::future::pending().await;
    }
    let bar = ProgressBar::new_spinner();
    let mut before = (Instant::now(), 0);
    loop {
        tokio::time::sleep(SHOW_EVERY).await;
        let Some(status) = handle.status() else { return };
        let total = status.total();
        let (now, bytes) = (Instant::now(), total.delivered_bytes);
        let seconds = (now - before.0).as_secs_f64();
        let rate = bytes.saturating_sub(before.1) as f64 * 8e-6 / seconds.max(1e-3);
        before = (now, bytes);
        let flows: u64 = status.services.iter().flat_map(|service| service.flows.values()).sum();
        bar.set_message(line(flows, status.flows_in(Condition::Assisted), rate, &total));
        bar.tick();
    }
}

/// The status line.
fn line(flows: u64, assisted: u64, rate: f64, total: &Counters) -> String {
    format!(
        "{flows} flows, {assisted} assisted; {rate:.1} Mbit/s; {} datagrams missing: {} repaired in time, {} late, {} given up",
        total.holes, total.repaired_in_time, total.repaired_late, total.given_up
    )
}

/// Flows that begin follow the services' names when these lead to other addresses.
async fn follow_names(
    hosts: &[(String, u16)],
    mut targets: Vec<std::net::SocketAddr>,
    handle: &Handle,
) {
    loop {
        tokio::time::sleep(RESOLVE_EVERY).await;
        for (index, ((host, port), target)) in hosts.iter().zip(&mut targets).enumerate() {
            // Without an answer the address stays.
            let Ok(found) = tokio::net::lookup_host((host.as_str(), *port)).await else { continue };
            let found: Vec<_> = found.collect();
            if !found.contains(target)
                && let Some(address) = choose(found)
            {
                *target = address;
                handle.set_target(index, address);
            }
        }
    }
}

/// Gives a service its tokens as they come. Without a token the gateway forwards everything but
/// does not assist.
async fn keep_token(tokens: Tokens, handle: &Handle) {
    let Tokens { service, source, access } = tokens;
    match source {
        Source::Endpoint(endpoint, request) => {
            ask_for_tokens(service, &endpoint, &request, access, handle).await
        }
        Source::File(path) => follow_file(service, &path, access, handle).await,
    }
}

async fn ask_for_tokens(
    service: usize,
    endpoint: &TokenSource,
    request: &Request,
    access: Access,
    handle: &Handle,
) {
    let use_token = |token: &AssistToken| {
        let access = access.clone().with_gateway_key(token.gateway_key);
        handle.set_access(service, access.with_token(token.token.clone()));
    };
    let mut is_told = false;
    loop {
        match token::fetch(endpoint, request, access.gateway_key).await {
            Ok((token, fresh, mut later)) => {
                use_token(&token);
                fresh
                    .during(async {
                        while later.changed().await.is_ok() {
                            use_token(&later.borrow_and_update());
                        }
                    })
                    .await;
            }
            Err(error) => {
                if !std::mem::replace(&mut is_told, true) {
                    tell!("packrat agent: {error}; forwarding without assistance, asking again");
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
    }
}

/// Follows a file that another program writes tokens into.
async fn follow_file(service: usize, path: &Path, mut access: Access, handle: &Handle) {
    let mut is_told = false;
    loop {
        tokio::time::sleep(READ_AGAIN).await;
        match read_token(path) {
            Ok(token) => {
                is_told = false;
                if token != access.token {
                    access.token = token;
                    handle.set_access(service, access.clone());
                }
            }
            // It may be written at this moment.
            Err(error) => {
                if !std::mem::replace(&mut is_told, true) {
                    tell!("packrat agent: {error}; the token before stays in use");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_line_says_what_was_repaired() {
        let mut total = Counters::default();
        (total.holes, total.repaired_in_time, total.repaired_late) = (12, 10, 1);
        assert_eq!(
            line(3, 2, 17.06, &total),
            "3 flows, 2 assisted; 17.1 Mbit/s; 12 datagrams missing: 10 repaired in time, 1 late, 0 given up"
        );
    }
}
