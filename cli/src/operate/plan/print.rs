//! Output of `packrat plan`.

use packrat_figures::plan::{Advice, Expected};
use serde_json::json;

use super::super::memory;
use super::super::output::{Format, Paint, bits, milliseconds, painted, percent};
use super::forecast::{Paths, Plan};
use super::known::Known;

/// Prints which measurements are missing, and how to get them.
pub(super) fn not_measured(known: &Known, output: Format) {
    let names: Vec<&str> = known.missing().map(|figure| figure.name).collect();
    if output == Format::Json {
        println!(
            "{:#}",
            json!({ "route": known.route, "last_download": known.last_download, "pays": null, "not_measured": names })
        );
        return;
    }
    let options: Vec<&str> = known.missing().map(|figure| figure.option).collect();
    let (names, options) = (names.join(", "), options.join(", "));
    if let Some(last) = &known.last_download {
        println!("{}", memory::text(last));
    }
    match &known.route {
        Some(route) => println!(
            "Route {route} has not measured {names} yet: let an assisted client download something through it, or give {options}."
        ),
        None => println!(
            "The last download does not tell {names}: download something through a gateway that assists (`packrat get`), or give {options}."
        ),
    }
}

const fn name(advice: Advice) -> &'static str {
    match advice {
        Advice::LeaveAlone => "leave-alone",
        Advice::Assist => "assist",
        Advice::Terminate => "terminate",
    }
}

/// Prints a plan for machines.
pub(super) fn json(known: &Known, paths: &Paths, plan: &Plan) {
    let bits = |expected: Expected| json!({ "p10": expected.low, "p50": expected.middle, "p90": expected.high });
    let forecast = plan.forecast;
    println!(
        "{:#}",
        json!({
            "route": known.route,
            "last_download": known.last_download,
            "sources": {
                "last_mile_round_trip": known.last_mile.source,
                "last_mile_loss": known.last_mile_loss.source,
                "far_round_trip": known.far.source,
                "far_loss": "given",
            },
            "last_mile_round_trip_seconds": paths.last_mile,
            "last_mile_loss_ratio": paths.last_mile_loss,
            "far_round_trip_seconds": paths.far,
            "far_loss_ratio": paths.far_loss,
            "loss_hidden_ratio": plan.hidden,
            "without_bits_per_second": bits(forecast.end_to_end),
            "with_bits_per_second": bits(forecast.assisted),
            "terminated_bits_per_second": bits(forecast.terminated),
            "extrapolated": forecast.extrapolated,
            "gain_times": plan.gain(),
            "pays": plan.pays(),
            "advice": name(plan.advice),
            "why": plan.why,
        })
    );
}

/// Prints a plan for people.
pub(super) fn text(known: &Known, paths: &Paths, plan: &Plan) {
    if let Some(name) = &known.route {
        println!("Route {name}");
    }
    if let Some(last) = &known.last_download {
        println!("{}", memory::text(last));
    }
    println!(
        "Far segment {} ({}), {} lost (given); last mile {} ({}), {} lost ({}).",
        milliseconds(paths.far),
        known.far.source,
        percent(paths.far_loss),
        milliseconds(paths.last_mile),
        known.last_mile.source,
        percent(paths.last_mile_loss),
        known.last_mile_loss.source,
    );
    let about = |expected: Expected| {
        let Expected { low, middle, high } = expected;
        format!("{} ({} to {})", bits(middle), bits(low), bits(high))
    };
    let forecast = plan.forecast;
    println!("Without a gateway            about {} per download.", about(forecast.end_to_end));
    println!("With one                     about {}.", about(forecast.assisted));
    println!("Ended at the gateway's place about {}.", about(forecast.terminated));
    let verdict = if plan.pays() {
        painted(&format!("It pays: {:.1} times.", plan.gain()), Paint::Good)
    } else {
        painted("It does not pay here.", Paint::Warning)
    };
    println!("{verdict} Why: {}.", plan.why);
    if plan.advice == Advice::Terminate {
        println!(
            "A connection that ends at the gateway's place would be faster: it has congestion control of its own on the last mile, and a round trip of {} there. It needs a certificate for the server's name: in a cluster packrat.dev/mode: terminate.",
            milliseconds(paths.last_mile)
        );
    }
    println!(
        "The rates are those of one long download, looked up in measurements of the laboratory; on eight of ten other paths they were within the ranges (docs/EVALUATION.md)."
    );
    if forecast.extrapolated {
        println!("This path is outside of what was measured: the nearest values stand for it.");
    }
}
