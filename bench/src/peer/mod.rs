//! Both ends of a measured flow, as processes of their own.

pub(crate) mod client;
pub(crate) mod datagram;
pub(crate) mod generator;
pub(crate) mod progress;
pub(crate) mod server;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use client::Behaviour;
use generator::Pattern;
use progress::Progress;
use server::Service;

use crate::Fallible;

/// The command line of a peer.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    /// Address that the server listens on, or that the client sends to.
    #[arg(long)]
    address: SocketAddr,
    /// The addresses from which clients send in turn.
    #[arg(long = "source")]
    sources: Vec<IpAddr>,
    /// Bytes of a datagram.
    #[arg(long)]
    size: usize,
    /// The phases, one after the other: datagrams of one send call, datagrams per second (0: as fast
    /// as they come through), and for how many seconds.
    #[arg(long = "phase", value_name = "BATCH@RATE@SECONDS", value_parser = phase, required = true)]
    phases: Vec<Phase>,
    /// The file in which clients count what they have received; without it they report to the server.
    #[arg(long)]
    progress: Option<PathBuf>,
    /// Clients at once.
    #[arg(long)]
    sessions: usize,
    /// Seconds before the server begins.
    #[arg(long)]
    pause: f64,
    /// Seconds after which either side ends in any case.
    #[arg(long)]
    limit: f64,
    /// Share of datagrams that the last mile loses.
    #[arg(long)]
    loss: f64,
    /// Clients send.
    #[arg(long)]
    upload: bool,
    /// Clients ask for assistance.
    #[arg(long)]
    assist: bool,
}

/// A phase of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Phase {
    /// Datagrams of one send call.
    pub(crate) batch: usize,
    /// Datagrams per second; 0: as fast as they come through.
    pub(crate) rate: f64,
    /// Duration of the phase.
    pub(crate) seconds: f64,
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}@{}", self.batch, self.rate, self.seconds)
    }
}

fn phase(text: &str) -> Result<Phase, String> {
    let fields: Vec<&str> = text.split('@').collect();
    let [batch, rate, seconds] = fields[..] else {
        return Err("a phase is BATCH@RATE@SECONDS".to_owned());
    };
    let number = |text: &str| text.parse::<f64>().map_err(|error| format!("{text}: {error}"));
    let batch = batch.parse().map_err(|error| format!("{batch}: {error}"))?;
    Ok(Phase { batch, rate: number(rate)?, seconds: number(seconds)? })
}

impl Arguments {
    fn patterns(&self) -> Vec<Pattern> {
        let phases = (0..).zip(&self.phases);
        phases
            .map(|(number, phase)| Pattern {
                phase: number,
                size: self.size.max(datagram::SHORTEST_BYTES),
                batch: phase.batch.max(1),
                rate: phase.rate,
                duration: Duration::from_secs_f64(phase.seconds),
            })
            .collect()
    }

    fn progress(&self) -> Fallible<Option<Progress>> {
        Ok(self.progress.as_deref().map(Progress::open).transpose()?)
    }
}

/// The server's part.
pub(crate) fn serve(arguments: &Arguments) -> Fallible {
    server::run(&Service {
        listen: arguments.address,
        sessions: arguments.sessions,
        patterns: arguments.patterns(),
        pause: Duration::from_secs_f64(arguments.pause),
        upload: arguments.upload,
        limit: Duration::from_secs_f64(arguments.limit),
        progress: arguments.progress()?,
    })
}

/// The client's part.
pub(crate) fn receive(arguments: &Arguments) -> Fallible {
    let patterns = arguments.patterns();
    let unlimited = arguments.phases.iter().any(|phase| phase.rate == 0.0);
    let seen = client::run(Behaviour {
        server: arguments.address,
        sources: arguments.sources.clone(),
        sessions: arguments.sessions,
        assist: arguments.assist,
        loss: arguments.loss,
        upload: patterns.first().copied().filter(|_| arguments.upload),
        feedback: unlimited && arguments.progress.is_none(),
        progress: arguments.progress()?,
        phases: patterns.len(),
        limit: Duration::from_secs_f64(arguments.limit),
    })?;
    println!("{}", serde_json::to_string(&seen)?);
    Ok(())
}
