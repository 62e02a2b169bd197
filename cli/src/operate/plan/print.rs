//! Output of `packrat plan`.

use serde_json::json;

use super::super::output::{Format, Paint, bits, milliseconds, painted, percent};
use super::forecast::{Paths, Plan};
use super::known::Known;

/// Prints which measurements are missing, and what to do.
pub(super) fn not_measured(known: &Known, output: Format) {
    let route = known.route.as_deref().unwrap_or_default();
    let names: Vec<&str> = known.missing().map(|figure| figure.name).collect();
    if output == Format::Json {
        println!("{:#}", json!({ "route": route, "pays": null, "not_measured": names }));
        return;
    }
    let options: Vec<&str> = known.missing().map(|figure| figure.option).collect();
    println!(
        "Route {route} has not measured {} yet: let an assisted client download something through it, or give {}.",
        names.join(", "),
        options.join(", "),
    );
}

/// Prints a plan for machines.
pub(super) fn json(known: &Known, paths: &Paths, plan: &Plan) {
    println!(
        "{:#}",
        json!({
            "route": known.route,
            "sources": {
                "last_mile_round_trip": known.last_mile.source(),
                "last_mile_loss": known.last_mile_loss.source(),
                "far_round_trip": known.far.source(),
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
}

/// Prints a plan for people.
pub(super) fn text(known: &Known, paths: &Paths, plan: &Plan) {
    if let Some(name) = &known.route {
        println!("Route {name}");
    }
    println!(
        "Far segment {} ({}), {} lost (given); last mile {} ({}), {} lost ({}).",
        milliseconds(paths.far),
        known.far.source(),
        percent(paths.far_loss),
        milliseconds(paths.last_mile),
        known.last_mile.source(),
        percent(paths.last_mile_loss),
        known.last_mile_loss.source(),
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
}
