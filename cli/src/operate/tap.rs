//! `packrat tap`: what happens on a gateway, as it happens.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value};

use super::error::OperateError;
use super::output::{Format, Paint, painted};
use super::{Target, finish};

/// Time between two questions.
const INTERVAL: Duration = Duration::from_millis(400);

/// Options of the command.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: Target,

    /// Only events of this route
    #[arg(long, value_name = "NAME")]
    route: Option<String>,

    /// Only events of this kind, for example reset; may be given several times
    #[arg(long = "event", value_name = "EVENT")]
    events: Vec<String>,

    /// Begin with what is remembered, not with what comes next
    #[arg(long)]
    past: bool,

    /// End after this many events
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<u64>,

    /// How to print
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    finish("tap", tap(options))
}

fn tap(options: &Options) -> Result<ExitCode, OperateError> {
    let gateway = options.target.gateway();
    let mut left = options.lines.unwrap_or(u64::MAX);
    let mut after = if options.past { 0 } else { gateway.events(u64::MAX >> 1)?.newest };
    while left > 0 {
        let news = gateway.events(after)?;
        // A gateway that was restarted counts from the beginning.
        after = if news.newest < after { 0 } else { news.newest };
        let mut output = std::io::stdout().lock();
        for event in news.events.iter().filter(|event| options.wants(event)) {
            let line = if options.output == Format::Json {
                Value::Object(event.clone()).to_string()
            } else {
                line(event, options.output == Format::Wide)
            };
            match writeln!(output, "{line}") {
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
                written => written.map_err(OperateError::Output)?,
            }
            left -= 1;
            if left == 0 {
                return Ok(ExitCode::SUCCESS);
            }
        }
        drop(output);
        if news.events.is_empty() {
            std::thread::sleep(INTERVAL);
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn wants(&self, event: &Map<String, Value>) -> bool {
        let is = |key: &str, wanted: &str| event.get(key).and_then(Value::as_str) == Some(wanted);
        self.route.as_deref().is_none_or(|route| is("route", route))
            && (self.events.is_empty() || self.events.iter().any(|wanted| is("event", wanted)))
    }
}

fn line(event: &Map<String, Value>, wide: bool) -> String {
    let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
    let time = text("ts").get(11..23).unwrap_or_default();
    let paint = match text("level") {
        "error" => Paint::Bad,
        "warning" => Paint::Warning,
        _ => Paint::Good,
    };
    let mut line =
        format!("{} {}", painted(time, Paint::Soft), painted(&format!("{:<22}", text("event")), paint));
    let known = ["ts", "level", "event", "number", "gateway", "namespace", "public_key"];
    for (key, value) in event.iter().filter(|(key, _)| wide || !known.contains(&key.as_str())) {
        if known[..3].contains(&key.as_str()) {
            continue;
        }
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        line.push_str(&format!(" {}{value}", painted(&format!("{key}="), Paint::Soft)));
    }
    line
}
