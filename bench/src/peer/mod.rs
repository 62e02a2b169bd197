//! Both ends of a measured flow, as processes of their own.

pub(crate) mod client;
pub(crate) mod datagram;
pub(crate) mod generator;
pub(crate) mod server;

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use client::Behaviour;
use generator::Pattern;
use server::Service;

/// The command line of a peer.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    /// Where the server listens, or where the client sends to.
    #[arg(long)]
    address: SocketAddr,
    /// Bytes of a datagram.
    #[arg(long)]
    size: usize,
    /// Datagrams of one send call.
    #[arg(long)]
    batch: usize,
    /// Datagrams per second; 0: as fast as they come through.
    #[arg(long)]
    rate: f64,
    /// For how long.
    #[arg(long)]
    seconds: f64,
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

impl Arguments {
    fn pattern(&self) -> Pattern {
        Pattern {
            size: self.size.max(datagram::SHORTEST),
            batch: self.batch.max(1),
            rate: self.rate,
            duration: Duration::from_secs_f64(self.seconds),
        }
    }
}

/// The server's part.
pub(crate) fn serve(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let served = server::run(&Service {
        listen: arguments.address,
        sessions: arguments.sessions,
        pattern: arguments.pattern(),
        pause: Duration::from_secs_f64(arguments.pause),
        upload: arguments.upload,
        limit: Duration::from_secs_f64(arguments.limit),
    })?;
    println!("{}", serde_json::to_string(&served)?);
    Ok(())
}

/// The client's part.
pub(crate) fn receive(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let seen = client::run(Behaviour {
        server: arguments.address,
        sessions: arguments.sessions,
        assist: arguments.assist,
        loss: arguments.loss,
        upload: arguments.upload.then(|| arguments.pattern()),
        feedback: arguments.rate == 0.0,
        limit: Duration::from_secs_f64(arguments.limit),
    })?;
    println!("{}", serde_json::to_string(&seen)?);
    Ok(())
}
