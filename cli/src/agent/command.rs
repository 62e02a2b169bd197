//! `packrat agent`: a local forwarder that makes any UDP program a client.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::future::join_all;
use indicatif::ProgressBar;
use packrat_agent::{Access, Agent, Condition, Counters, Handle};
use packrat_pages::Pages;
use packrat_token_client::AssistToken;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::limits::raise_descriptor_limit;
use super::options::AgentOptions;
use super::pages::pages;
use super::plan::{Plan, Source, Tokens, read_token};
use crate::http3::Request;
use crate::http3::token::{self, TokenSource};

/// Interval of the status line.
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// Interval at which the services' hosts are resolved again.
const RESOLVE_EVERY: Duration = Duration::from_secs(60);
/// Pause after a token endpoint's failure, until the first token is there.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// Interval at which a file with a token is read.
const READ_AGAIN: Duration = Duration::from_secs(2);

/// Runs the command; its exit code.
pub(crate) fn run(options: AgentOptions) -> ExitCode {
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
async fn serve(options: &AgentOptions) -> Result<(), String> {
    raise_descriptor_limit();
    let Plan { services, choosing, hosts, tokens, limits, metrics } = Plan::new(options)?;
    let begun = |error: io::Error| format!("cannot start: {error}");
    // From here on signals end the command in order.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(begun)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(begun)?;
    let (agent, handle) =
        Agent::new(services, choosing, limits).map_err(|error| match error.kind() {
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
            follow_names(&hosts, &handle),
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

/// Shows the agent's state on a terminal.
async fn show(options: &AgentOptions, handle: &Handle) {
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

/// Flows follow the services' names: new flows, and flows whose address falls silent.
async fn follow_names(hosts: &[(String, u16)], handle: &Handle) {
    loop {
        for (index, (host, port)) in hosts.iter().enumerate() {
            // Without an answer the addresses stay.
            if let Ok(found) = tokio::net::lookup_host((host.as_str(), *port)).await {
                handle.set_targets(index, found.collect());
            }
        }
        tokio::time::sleep(RESOLVE_EVERY).await;
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
