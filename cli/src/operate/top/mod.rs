//! `packrat top`: live sessions on the whole terminal, sorted and filtered.

mod list;
mod screen;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::error::OperateError;
use super::target::{Gateways, Target};
use list::{List, Order, Seen};

/// Sessions that are asked for.
const ASKED_SESSIONS: usize = 1000;

/// Options of the command.
#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    #[command(flatten)]
    target: Target,

    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    interval: u64,

    /// Only sessions in whose route, client or endpoint this text is
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,

    /// Order of the sessions
    #[arg(long, value_enum, default_value = "rate")]
    sort: Order,
}

/// Runs `packrat top`.
pub(crate) fn top(options: &TopOptions) -> Result<ExitCode, OperateError> {
    let gateways = options.target.gateways()?;
    let mut list = List::new(options.sort, options.filter.clone());
    // The first look before the terminal is taken over, so that its errors can be read.
    list.update(sessions(&gateways)?.0, Instant::now());
    if !io::stdout().is_terminal() {
        return Err(OperateError::Terminal(io::Error::other("standard output is none")));
    }
    let mut terminal = ratatui::try_init().map_err(OperateError::Terminal)?;
    let result = watch(&mut terminal, &gateways, &mut list, Duration::from_secs(options.interval));
    ratatui::restore();
    result
}

fn watch(
    terminal: &mut DefaultTerminal,
    gateways: &Gateways,
    list: &mut List,
    interval: Duration,
) -> Result<ExitCode, OperateError> {
    let mut looked = Instant::now();
    let title = match gateways.members.as_slice() {
        [gateway] => gateway.name(),
        all => format!("{} gateways", all.len()),
    };
    loop {
        terminal.draw(|frame| screen::draw(frame, list, &title)).map_err(OperateError::Terminal)?;
        let left = interval.saturating_sub(looked.elapsed());
        if event::poll(left).map_err(OperateError::Terminal)? {
            if let Event::Key(key) = event::read().map_err(OperateError::Terminal)?
                && key.kind == KeyEventKind::Press
            {
                let control_c =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if control_c || !list.key(key.code) {
                    return Ok(ExitCode::SUCCESS);
                }
            }
        } else {
            looked = Instant::now();
            match sessions(gateways) {
                Ok((sessions, problem)) => {
                    list.update(sessions, looked);
                    list.problem = problem.map(|problem| problem.to_string());
                }
                // It may be restarting.
                Err(error) => list.problem = Some(error.to_string()),
            }
        }
    }
}

/// The sessions of all gateways, and why one of them could not be asked. Fails when none can.
fn sessions(gateways: &Gateways) -> Result<(Seen, Option<OperateError>), OperateError> {
    let mut all = Seen::default();
    let mut problem = None;
    let mut answers = 0;
    for answer in gateways.each(|gateway| {
        let pod = gateway.place().map(|place| place.pod.clone());
        Ok((pod, gateway.sessions(ASKED_SESSIONS)?))
    }) {
        match answer {
            Ok((pod, sessions)) => {
                answers += 1;
                all.total += sessions.total;
                let sessions = sessions.sessions.into_iter();
                all.sessions.extend(sessions.map(|session| (pod.clone(), session)));
            }
            Err(error) => problem = Some(error),
        }
    }
    match problem {
        Some(problem) if answers == 0 => Err(problem),
        problem => Ok((all, problem)),
    }
}
