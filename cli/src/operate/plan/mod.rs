//! `packrat plan`: does assistance pay on these paths, by how much, and if not, why not; or would it
//! be better to end connections at the gateway's place.

mod forecast;
mod known;
mod print;

use std::process::ExitCode;

use clap::Args;

use super::error::OperateError;
use super::output::Format;
use super::target::Target;
use forecast::{Paths, Plan, Reaction};
use known::Known;

/// Options of the command.
#[derive(Debug, Args)]
pub(crate) struct PlanOptions {
    #[command(flatten)]
    target: Target,

    /// The route, when there are several
    #[arg(long, value_name = "NAME")]
    route: Option<String>,

    /// Round trip between gateway and client, in milliseconds. Values that are not given are taken
    /// from the gateways' measurements
    #[arg(long, value_name = "MS", value_parser = positive)]
    last_mile_ms: Option<f64>,

    /// Loss between gateway and client, 0 to 1
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    last_mile_loss: Option<f64>,

    /// Round trip between server and gateway, in milliseconds
    #[arg(long, value_name = "MS", value_parser = positive)]
    far_ms: Option<f64>,

    /// Loss between server and gateway, 0 to 1: a gateway cannot see it, and it is the sender's to
    /// repair in any case
    #[arg(long, value_name = "RATIO", value_parser = ratio, default_value_t = 0.0)]
    far_loss: f64,

    /// The sender's congestion control
    #[arg(long, value_enum, default_value = "cubic")]
    sender: Reaction,

    /// Capacity of the path in Mbit/s, the most that a download gets
    #[arg(long, value_name = "MBIT/S", value_parser = positive, default_value_t = 20.0)]
    rate: f64,

    /// Repairs as a share of the forwarded bytes, as the route is configured
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    repair_budget: Option<f64>,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("give a number above 0".to_owned()),
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("give a ratio from 0 to 1; 0.04 is 4 %".to_owned()),
    }
}

/// Runs `packrat plan`.
pub(crate) fn plan(options: &PlanOptions) -> Result<ExitCode, OperateError> {
    let known = Known::of(options)?;
    let (Some(last_mile), Some(last_mile_loss), Some(far)) =
        (known.last_mile.value, known.last_mile_loss.value, known.far.value)
    else {
        print::not_measured(&known, options.output);
        return Ok(ExitCode::FAILURE);
    };
    let paths = Paths {
        last_mile,
        last_mile_loss,
        far,
        far_loss: options.far_loss,
        sender: options.sender,
        bits: options.rate * 1e6,
        budget: known.repair_budget,
    };
    let plan = Plan::of(&paths);
    if options.output == Format::Json {
        print::json(&known, &paths, &plan);
    } else {
        print::text(&known, &paths, &plan);
    }
    Ok(ExitCode::SUCCESS)
}
