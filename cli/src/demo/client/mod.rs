//! Clients of the demo, and the tunnels through which they download.
//!
//! Programs that do not know Packrat go through an agent when they are assisted, otherwise directly.

mod agent;
mod echo;
mod job;
mod packrat;
mod program;
mod table;

use tokio::process::Command;

use super::error::DemoError;
use super::options::Tunnel;
use super::parts::tunnel_program;
use super::report::TimesReport;
use super::stage::FILE_NAME;
use program::{Line, last_line};
use table::Program;

pub(crate) use agent::RunningAgent;
pub(crate) use job::{Job, Outcome};
pub(crate) use packrat::Transfer;
pub(crate) use table::Client;

impl Job<'_> {
    /// Does the work, through a tunnel if there is one; calls `progress` with the number of bytes that
    /// have arrived.
    pub(crate) async fn run(
        &self,
        tunnel: Option<Tunnel>,
        progress: impl Fn(u64),
    ) -> Result<Outcome, DemoError> {
        if let Some(tunnel) = tunnel {
            return self.through_tunnel(tunnel, progress).await;
        }
        let (options, transfer) = (self.stage.options, &self.transfer);
        let client = Client::of(options);
        if let Some(command) = client.program.command(self)? {
            let line = last_line(command, options.program.client, self.work, progress).await?;
            return Ok(self.outcome(client, line));
        }
        match client.program {
            Program::Echo => {
                let repeats = client.repeats(options);
                echo::run(transfer.server, repeats, self.answers.as_deref(), progress).await
            }
            _ if options.upload => {
                let source = self.stage.files.join(FILE_NAME);
                transfer.upload(&source, progress).await.map(Outcome::from)
            }
            _ => transfer.download(progress).await.map(Outcome::from),
        }
    }

    /// Downloads through a tunnel that ends at the server's address.
    async fn through_tunnel(
        &self,
        tunnel: Tunnel,
        progress: impl Fn(u64),
    ) -> Result<Outcome, DemoError> {
        let Self { stage, transfer, .. } = self;
        let mut command = Command::new(tunnel_program(&stage.options.parts)?);
        command.arg("get").arg(tunnel.protocol).arg(transfer.server.to_string());
        command.arg(transfer.file).arg(transfer.authority);
        command.arg(transfer.patience.as_secs_f64().to_string());
        if tunnel.at_rate {
            let rate = stage.network.links().last_mile_down.rate;
            command.arg((rate as f64 * 1e-6).to_string());
        }
        let line = last_line(command, tunnel.protocol, self.work, progress).await?;
        Ok(Outcome::from(line.report(transfer.server)))
    }

    fn outcome(&self, client: &Client, mut line: Line) -> Outcome {
        let times = std::mem::take(&mut line.times_ms);
        let attempted = line.attempted.unwrap_or(times.len() as u64);
        let times = (attempted > 0).then(|| TimesReport {
            freezes: line.freezes,
            ..TimesReport::new(client.repeated, attempted, None, line.wrong, times)
        });
        let verified = client.bears_loss.then_some(line.bytes > 0);
        Outcome { report: line.report(self.transfer.server), times, verified }
    }
}
