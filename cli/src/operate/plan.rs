//! `packrat plan`: does assistance pay on these paths, by how much, and if not, why not.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use packrat_figures::response::Sender;
use serde_json::json;

use super::error::OperateError;
use super::finish;
use super::output::{Format, Paint, bits, milliseconds, painted, percent};
use super::target::{RouteFigures, Target};

/// Payload bytes of a datagram that rates are computed with.
const DATAGRAM_BYTES: f64 = 1350.0;
/// Time in seconds that clients wait for a repair beside three round trips, and the longest wait by
/// default.
const PATIENCE_MARGIN: f64 = 0.1;
const PATIENCE_MAXIMUM: f64 = 1.0;
/// Below this loss there is nothing to repair.
const NO_LOSS: f64 = 1e-4;
/// A gain from here on is worth a gateway.
const WORTH_IT: f64 = 1.1;

/// Measurement period of the figures that a gateway does not keep from its start.
const WINDOW: Duration = Duration::from_secs(2);

/// Options of the command.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: Target,

    /// The route, when there are several
    #[arg(long, value_name = "NAME")]
    route: Option<String>,

    /// Round trip between gateway and client, in milliseconds. What is not given is taken from
    /// what the gateways have measured
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

/// A sender's congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Reaction {
    /// NewReno
    Reno,
    /// CUBIC: most QUIC servers
    Cubic,
    /// BBR
    Bbr,
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

/// The two segments and the sender.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Paths {
    last_mile: f64,
    last_mile_loss: f64,
    far: f64,
    far_loss: f64,
    sender: Reaction,
    bits: f64,
    budget: f64,
}

/// Expected effect of assistance.
#[derive(Debug, Clone, PartialEq)]
struct Plan {
    /// Share of the last mile's losses that repairs fill in time.
    hidden: f64,
    /// Bits per second without a gateway.
    without: f64,
    /// Bits per second with one.
    with: f64,
    pays: bool,
    why: String,
}

impl Plan {
    fn of(paths: &Paths) -> Self {
        let hidden = hidden(paths);
        let survives = (1.0 - paths.far_loss) * (1.0 - paths.last_mile_loss);
        let (loss_without, round_trip) = (1.0 - survives, paths.far + paths.last_mile);
        let loss_with =
            1.0 - (1.0 - paths.far_loss) * (1.0 - paths.last_mile_loss * (1.0 - hidden));
        let rate = |loss: f64| {
            let sender = match paths.sender {
                Reaction::Reno => Sender::Reno,
                Reaction::Cubic => Sender::Cubic,
                Reaction::Bbr => Sender::Bbr,
            };
            let limited = sender.datagrams_per_second(round_trip, loss).unwrap_or(f64::INFINITY);
            (limited * DATAGRAM_BYTES * 8.0).min(paths.bits) * (1.0 - loss)
        };
        let (without, with) = (rate(loss_without), rate(loss_with));
        let gain = with / without;
        let pays = gain >= WORTH_IT;
        let why = if paths.last_mile_loss < NO_LOSS {
            "the last mile loses next to nothing: there is nothing to hide".to_owned()
        } else if pays {
            format!(
                "the sender would take each loss of the last mile for congestion and wait {} for its repair; the gateway repairs {} of them within {}",
                milliseconds(round_trip),
                percent(hidden),
                milliseconds(paths.last_mile * 1.5),
            )
        } else if paths.sender == Reaction::Bbr {
            format!(
                "a BBR sender does not slow down at this loss; what is saved is {} of its datagrams that it need not send twice, and a wait of {} for each",
                percent(paths.last_mile_loss * hidden),
                milliseconds(paths.far),
            )
        } else if hidden < 0.5 {
            "repairs come too late or exceed the budget: most losses stay visible".to_owned()
        } else if paths.far_loss > paths.last_mile_loss {
            "most of the loss is on the far segment, before the gateway: only the sender can repair that"
                .to_owned()
        } else {
            "the path's rate is the limit, not its loss: at this round trip a sender recovers by itself"
                .to_owned()
        };
        Self { hidden, without, with, pays, why }
    }
}

/// The share of losses that repairs fill before the client has to reveal them.
fn hidden(paths: &Paths) -> f64 {
    let loss = paths.last_mile_loss;
    if loss <= 0.0 {
        return 1.0;
    }
    let patience = (3.0 * paths.last_mile + PATIENCE_MARGIN).min(PATIENCE_MAXIMUM);
    // The hole is known half a round trip after the loss, and the repair there another half later;
    // then once a round trip.
    let attempts = ((patience - 0.01) / paths.last_mile.max(1e-4)).floor();
    if attempts < 1.0 {
        return 0.0;
    }
    // Copies make up for what time does not allow; each transmission is lost as any other.
    let arrives = 1.0 - loss.powf(attempts.max(2.0));
    let wanted = loss / (1.0 - loss);
    arrives * (paths.budget / wanted).min(1.0)
}

/// Measurements of a gateway, and the flags that replace them.
const LAST_MILE_ROUND_TRIP: (&str, &str) = ("the last mile's round trip", "--last-mile-ms");
const LAST_MILE_LOSS: (&str, &str) = ("the last mile's loss", "--last-mile-loss");
const FAR_ROUND_TRIP: (&str, &str) = ("the far segment's round trip", "--far-ms");

/// Prints which measurements are missing, and what to do.
fn not_measured(route: &str, missing: &[(&str, &str)], output: Format) {
    if output == Format::Json {
        let missing: Vec<&str> = missing.iter().map(|(what, _)| *what).collect();
        println!("{:#}", json!({ "route": route, "pays": null, "not_measured": missing }));
        return;
    }
    let [whats, options] =
        [|pair: &(&str, &str)| pair.0.to_owned(), |pair: &(&str, &str)| pair.1.to_owned()]
            .map(|part| missing.iter().map(part).collect::<Vec<_>>().join(", "));
    println!(
        "Route {route} has not measured {whats} yet: let an assisted client download something through it, or give {options}."
    );
}

pub(crate) fn run(options: &Options) -> ExitCode {
    finish("plan", plan(options))
}

fn recorded(route: &RouteFigures) -> f64 {
    route.route.metrics.get("packrat_datagrams_recorded_total").copied().unwrap_or_default()
}

fn plan(options: &Options) -> Result<ExitCode, OperateError> {
    let mut measured = (None, None, None, None);
    let mut name = None;
    let is_all_given = options.last_mile_ms.is_some()
        && options.last_mile_loss.is_some()
        && options.far_ms.is_some();
    if !is_all_given || options.route.is_some() {
        let gateways = options.target.gateways()?;
        let routes = gateways.figures(WINDOW, false)?.routes;
        let chosen = match &options.route {
            Some(wanted) => routes.iter().find(|route| route.route.route == *wanted),
            // The busiest one says most.
            None => routes.iter().max_by(|one, other| recorded(one).total_cmp(&recorded(other))),
        };
        let Some(chosen) = chosen else {
            let known: Vec<&str> = routes.iter().map(|route| route.route.route.as_str()).collect();
            let name = options.route.clone().unwrap_or_default();
            return Err(OperateError::NoRoute { name, known: known.join(", ") });
        };
        let value = |series: &str| chosen.route.metrics.get(series).copied().unwrap_or_default();
        let recorded = recorded(chosen);
        // Since the gateway runs: more to go by than two seconds.
        let loss = (recorded > 0.0).then(|| value("packrat_datagrams_missing_total") / recorded);
        measured = (
            chosen.figures.last_mile_round_trip,
            loss,
            chosen.figures.far_round_trip,
            Some(chosen.route.configuration.repair_budget),
        );
        name = Some(chosen.route.route.clone());
    }
    let milliseconds_of = |value: Option<f64>| value.map(|value| value / 1e3);
    let given = (
        milliseconds_of(options.last_mile_ms),
        options.last_mile_loss,
        milliseconds_of(options.far_ms),
    );
    let known = (given.0.or(measured.0), given.1.or(measured.1), given.2.or(measured.2));
    let (Some(last_mile), Some(last_mile_loss), Some(far)) = known else {
        let missing: Vec<_> = [
            (known.0.is_none(), LAST_MILE_ROUND_TRIP),
            (known.1.is_none(), LAST_MILE_LOSS),
            (known.2.is_none(), FAR_ROUND_TRIP),
        ]
        .into_iter()
        .filter_map(|(is_missing, what)| is_missing.then_some(what))
        .collect();
        not_measured(&name.unwrap_or_default(), &missing, options.output);
        return Ok(ExitCode::FAILURE);
    };
    let source = |is_given: bool| if is_given { "given" } else { "measured" };
    let sources = [source(given.0.is_some()), source(given.1.is_some()), source(given.2.is_some())];
    let paths = Paths {
        last_mile,
        last_mile_loss,
        far,
        far_loss: options.far_loss,
        sender: options.sender,
        bits: options.rate * 1e6,
        budget: options.repair_budget.or(measured.3).unwrap_or(0.25),
    };
    let plan = Plan::of(&paths);
    if options.output == Format::Json {
        println!(
            "{:#}",
            json!({
                "route": name,
                "sources": {
                    "last_mile_round_trip": sources[0], "last_mile_loss": sources[1], "far_round_trip": sources[2],
                    "far_loss": "given",
                },
                "last_mile_round_trip_seconds": paths.last_mile,
                "last_mile_loss_ratio": paths.last_mile_loss,
                "far_round_trip_seconds": paths.far,
                "far_loss_ratio": paths.far_loss,
                "loss_hidden_ratio": plan.hidden,
                "without_bits_per_second": plan.without,
                "with_bits_per_second": plan.with,
                "gain_times": plan.with / plan.without,
                "pays": plan.pays,
                "why": plan.why,
            })
        );
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(name) = &name {
        println!("Route {name}");
    }
    println!(
        "Far segment {} ({}), {} lost (given); last mile {} ({}), {} lost ({}).",
        milliseconds(paths.far),
        sources[2],
        percent(paths.far_loss),
        milliseconds(paths.last_mile),
        sources[0],
        percent(paths.last_mile_loss),
        sources[1],
    );
    println!("Without a gateway about {} per download.", bits(plan.without));
    println!(
        "With one          about {}, with {} of the losses hidden.",
        bits(plan.with),
        percent(plan.hidden)
    );
    let verdict = if plan.pays {
        painted(&format!("It pays: {:.1} times.", plan.with / plan.without), Paint::Good)
    } else {
        painted("It does not pay here.", Paint::Warning)
    };
    println!("{verdict} Why: {}.", plan.why);
    println!(
        "The rates are those of the senders' response functions (RFC 9002, RFC 9438), not a measurement."
    );
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIFI: Paths = Paths {
        last_mile: 0.004,
        last_mile_loss: 0.04,
        far: 0.06,
        far_loss: 0.0,
        sender: Reaction::Cubic,
        bits: 20e6,
        budget: 0.25,
    };

    #[test]
    fn the_demos_path_pays_as_the_demo_shows() {
        // The demo measures 1.26 Mbit/s end to end and 18.7 with Packrat.
        let plan = Plan::of(&WIFI);
        assert!(plan.pays, "{plan:?}");
        assert!(
            (0.5e6..2e6).contains(&plan.without) && (18e6..=20e6).contains(&plan.with),
            "{plan:?}"
        );
    }

    #[test]
    fn it_says_why_it_does_not_pay() {
        let why = |paths: Paths| {
            let plan = Plan::of(&paths);
            assert!(!plan.pays, "{plan:?}");
            plan.why
        };
        assert!(why(Paths { last_mile_loss: 0.0, ..WIFI }).contains("nothing to hide"));
        assert!(why(Paths { sender: Reaction::Bbr, ..WIFI }).contains("BBR"));
        assert!(why(Paths { far_loss: 0.3, ..WIFI }).contains("far segment"));
        assert!(why(Paths { last_mile: 1.0, ..WIFI }).contains("too late"));
        assert!(
            why(Paths { far: 0.001, last_mile: 0.001, last_mile_loss: 0.001, ..WIFI })
                .contains("limit")
        );
    }

    #[test]
    fn a_budget_that_is_too_small_hides_less() {
        let small = Plan::of(&Paths { budget: 0.01, ..WIFI });
        assert!(small.hidden < 0.3 && small.with < Plan::of(&WIFI).with, "{small:?}");
    }
}
