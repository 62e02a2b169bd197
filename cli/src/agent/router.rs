//! `packrat router`: an agent for hosts that this one forwards for, without their knowledge.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;
use packrat_agent::{Agent, Choosing};
use packrat_pages::Pages;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::limits::{OTHER_DESCRIPTORS, limits, raise_descriptor_limit};
use super::pages::serve_pages;
use super::redirection::{
    Interface, Network, Redirection, RedirectionOptions, Whose, default_uplinks, listeners,
};
use super::summary::summary;

/// Examples in the help text.
const EXAMPLES_HELP: &str = "\
Examples:
    packrat router --interface br-lan
    packrat router --interface br-lan --interface wlan-guests --port 443 --port 51820 --to 203.0.113.0/24

It needs root (CAP_NET_ADMIN), nft and iproute2. To the firewall, these datagrams are the router's own:
docs/CLIENTS.md says what it has to let in, and how it forbids some.";
/// Options of `packrat router`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES_HELP)]
pub(crate) struct RouterOptions {
    /// Serve the hosts whose datagrams come in on this interface; repeat it for more
    #[arg(long = "interface", value_name = "NAME", required = true)]
    interfaces: Vec<Interface>,
    /// Take over the traffic that leaves by this interface; repeat it for more [default: the
    /// interfaces of the default routes]
    #[arg(long = "uplink", value_name = "NAME")]
    uplinks: Vec<Interface>,
    /// Take over datagrams to this network only; repeat it for more [default: all]
    #[arg(long = "to", value_name = "NETWORK")]
    destinations: Vec<Network>,
    #[command(flatten)]
    redirection: RedirectionOptions,
    /// Address to serve Prometheus metrics (/metrics) and the status (/packrat) on, over plain HTTP
    #[arg(long, value_name = "ADDR")]
    metrics: Option<std::net::SocketAddr>,
    /// Also serve metrics and status on addresses that other machines can reach
    #[arg(long)]
    allow_remote_metrics: bool,
    /// Sockets of hosts that are served at the same time [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    flows: Option<u32>,
}

/// Runs the command; its exit code.
pub(crate) fn run(options: &RouterOptions) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime
        .map_err(|error| format!("cannot start: {error}"))
        .and_then(|runtime| runtime.block_on(serve(options)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell!("packrat router: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Forwards until a signal ends the command.
async fn serve(options: &RouterOptions) -> Result<(), String> {
    let begun = |error: io::Error| format!("cannot start: {error}");
    // From here on signals end the command in order.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(begun)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(begun)?;
    raise_descriptor_limit();
    let limits = limits("router", options.flows, OTHER_DESCRIPTORS);
    let uplinks = match options.uplinks.as_slice() {
        [] => default_uplinks()?,
        uplinks => uplinks.to_vec(),
    };
    if uplinks.is_empty() {
        return Err(
            "there is no default route; name the uplink's interface with --uplink".to_owned()
        );
    }
    let (services, rules) = listeners(&options.redirection)?;
    let (agent, handle) = Agent::new(services, Choosing::default(), limits).map_err(begun)?;
    let pages = options
        .metrics
        .map(|address| serve_pages(address, options.allow_remote_metrics, &handle))
        .transpose()?;
    let (ended, has_ended) = oneshot::channel();
    let thread = std::thread::Builder::new().name("packrat-agent".to_owned());
    let thread = thread.spawn(move || drop(ended.send(agent.run()))).map_err(begun)?;
    let whose = Whose::Hosts {
        interfaces: &options.interfaces,
        uplinks: &uplinks,
        destinations: &options.destinations,
        flows: limits.flows,
    };
    let redirection = Redirection::set_up(&whose, &rules)?;
    for missing in options.interfaces.iter().filter(|interface| !interface.exists()) {
        tell!("packrat router: there is no interface {} yet", missing.name());
    }
    announce(&options.interfaces, pages.as_ref());
    let outcome = tokio::select! {
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        ended = has_ended => Err(match ended {
            Ok(Ok(())) => "forwarding has ended".to_owned(),
            Ok(Err(error)) => format!("forwarding has ended: {error}"),
            Err(_) => "forwarding has ended with an internal error; please report it".to_owned(),
        }),
    };
    // Hosts' datagrams go their own way before the sockets end.
    drop(redirection);
    if let Some(status) = handle.status() {
        let _ = writeln!(io::stdout(), "{}", summary(&status));
    }
    handle.stop();
    // Its panic has been printed already.
    let _ = thread.join();
    outcome
}

fn announce(interfaces: &[Interface], pages: Option<&Pages>) {
    let names: Vec<_> = interfaces.iter().map(Interface::name).collect();
    // A reader that has gone away does not end the forwarding.
    let _ = writeln!(io::stdout(), "hosts behind {} are served", names.join(", "));
    if let Some(pages) = pages {
        let _ = writeln!(
            io::stdout(),
            "metrics on http://{0}/metrics, status on http://{0}/packrat",
            pages.address()
        );
    }
}
