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
use super::gateway::Gateway;
use super::{Target, finish};
use list::{List, Order};

/// Sessions that are asked for.
const SESSIONS: usize = 1000;

/// Options of the command.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: Target,

    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    interval: u64,

    /// Only sessions in whose route, client or endpoint this text is
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,

    /// What comes first
    #[arg(long, value_enum, default_value = "rate")]
    sort: Order,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    finish("top", top(options))
}

fn top(options: &Options) -> Result<ExitCode, OperateError> {
    let gateway = options.target.gateway();
    let mut list = List::new(options.sort, options.filter.clone());
    // The first look before the terminal is taken over, so that its errors can be read.
    list.update(gateway.sessions(SESSIONS)?, Instant::now());
    if !io::stdout().is_terminal() {
        return Err(OperateError::Terminal(io::Error::other("standard output is none")));
    }
    let mut terminal = ratatui::try_init().map_err(OperateError::Terminal)?;
    let result = watch(&mut terminal, &gateway, &mut list, Duration::from_secs(options.interval));
    ratatui::restore();
    result
}

fn watch(
    terminal: &mut DefaultTerminal,
    gateway: &Gateway,
    list: &mut List,
    interval: Duration,
) -> Result<ExitCode, OperateError> {
    let mut looked = Instant::now();
    let title = gateway.url().to_string();
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
            match gateway.sessions(SESSIONS) {
                Ok(sessions) => list.update(sessions, looked),
                // It may be restarting.
                Err(error) => list.problem = Some(error.to_string()),
            }
        }
    }
}
