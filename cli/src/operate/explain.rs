//! `packrat explain`: why a client has no benefit from its gateway, or what benefit it has.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use clap::Args;
use packrat_api::status::{SessionSnapshot, Stage};
use serde_json::{Value, json};

use super::error::OperateError;
use super::gateway::{AskedGateway, Route};
use super::output::{Format, bytes, milliseconds, percent};
use super::target::Target;
use super::warn;

/// Losses below this share matter to no sender.
const LITTLE_LOSS: f64 = 0.0005;
/// Sessions that a gateway lists at most.
const MOST_SESSIONS: usize = 10_000;

/// Options of the command.
#[derive(Debug, Args)]
pub(crate) struct ExplainOptions {
    #[command(flatten)]
    target: Target,

    /// The client: its address, with or without the port, as the gateway sees it; or the `session`, the
    /// `assistance` or the `client` of a log line
    #[arg(long, value_name = "ID|ADDRESS")]
    client: String,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// Runs `packrat explain`.
pub(crate) fn explain(options: &ExplainOptions) -> Result<ExitCode, OperateError> {
    let gateways = options.target.gateways()?;
    let mut problems = Vec::new();
    let mut found = Vec::new();
    let answers = gateways.each(|gateway| of_gateway(gateway, &options.client));
    for (gateway, answer) in gateways.members.iter().zip(answers) {
        match answer {
            Ok(sessions) => {
                found.extend(sessions.into_iter().map(|session| (gateway.name(), session)));
            }
            Err(problem) => problems.push(problem),
        }
    }
    if problems.len() == gateways.members.len()
        && let Some(problem) = problems.pop()
    {
        return Err(problem);
    }
    warn("explain", &problems);
    if found.is_empty() {
        return Err(OperateError::NoClient { client: options.client.clone() });
    }
    match options.output {
        Format::Json => {
            let all: Vec<Value> = found
                .iter()
                .map(|(gateway, (session, reasons))| {
                    json!({ "gateway": gateway, "session": session, "reasons": reasons })
                })
                .collect();
            println!("{:#}", json!({ "sessions": all }));
        }
        Format::Table | Format::Wide => {
            for (gateway, (session, reasons)) in &found {
                println!(
                    "session {} of route {} on {gateway}: {} to the client in {:.0} s",
                    session.session,
                    session.route,
                    bytes(session.to_client_bytes as f64),
                    session.seconds,
                );
                reasons.iter().for_each(|reason| println!("  - {reason}"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The client's sessions on a gateway, each with the reasons.
fn of_gateway(
    gateway: &AskedGateway,
    client: &str,
) -> Result<Vec<(SessionSnapshot, Vec<String>)>, OperateError> {
    let is_address = client.parse::<IpAddr>().is_ok() || client.parse::<SocketAddr>().is_ok();
    let sessions = if is_address {
        // The gateway compares: its answers do not show addresses.
        gateway.sessions_of(client)?.sessions
    } else {
        let number = client.parse::<u64>().ok();
        let is_wanted = |session: &SessionSnapshot| {
            session.client.as_deref() == Some(client)
                || number.is_some_and(|number| {
                    session.session == number || session.assistance.map(u64::from) == Some(number)
                })
        };
        let all = gateway.sessions(MOST_SESSIONS)?.sessions;
        let numbers = all.iter().filter(|session| is_wanted(session)).map(|found| found.session);
        let details = numbers.map(|number| gateway.session(number));
        let details: Result<Vec<_>, _> = details.collect();
        details?.into_iter().flat_map(|answer| answer.sessions).collect()
    };
    let status = gateway.status()?;
    let with_reasons = |session: SessionSnapshot| {
        let route = status.routes.iter().find(|route| route.route == session.route);
        let reasons = reasons(&session, route, status.draining);
        (session, reasons)
    };
    Ok(sessions.into_iter().map(with_reasons).collect())
}

/// The reasons why this session has no benefit, or the benefit, decisive ones first.
fn reasons(session: &SessionSnapshot, route: Option<&Route>, is_draining: bool) -> Vec<String> {
    if session.assistance.is_some() {
        return of_assisted(session);
    }
    if session.relayed {
        return vec![format!(
            "the client has come from another gateway of the same address, which has its session: it is \
             relayed there. Ask that one, at {}, for what becomes of its losses",
            session.endpoint
        )];
    }
    let mut reasons = Vec::new();
    if let Some(refusal) = &session.refusal {
        reasons.push(of_refusal(refusal, route));
    }
    let stage = route.and_then(|route| route.comparison.as_ref()).map(|of| of.stage);
    if stage == Some(Stage::Stopped) && session.refusal.as_deref() != Some("refused_disabled") {
        reasons.push(
            "assistance on this route has stopped by itself: assisted sessions were slower than those \
             held out"
                .to_owned(),
        );
    } else if route.is_some_and(|route| !route.configuration.assist) && session.refusal.is_none() {
        reasons.push("assistance is switched off on this route (`assist`)".to_owned());
    }
    if is_draining {
        reasons.push("the gateway is draining: no client begins to be assisted".to_owned());
    }
    if session.refusal.is_none() {
        reasons.push(
            "the client is not assisted, and was not refused: it has not asked (no SDK or agent, or its \
             questions do not arrive), has left, or its session was lost"
                .to_owned(),
        );
    }
    reasons
}

/// Why a client that has asked is not assisted. `refusal`: as in the metric handshakes_total.
fn of_refusal(refusal: &str, route: Option<&Route>) -> String {
    let comparison = route.and_then(|route| route.comparison.as_ref());
    match refusal {
        "refused_holdout" => format!(
            "refused for comparison: {} of the clients are left without assistance (`holdout`); it asks \
             again after an hour",
            comparison.map_or_else(|| "some".to_owned(), |comparison| percent(comparison.holdout))
        ),
        "refused_disabled" if comparison.is_some_and(|of| of.stage == Stage::Stopped) => {
            "refused: assistance on this route has stopped by itself, as assisted sessions were slower \
             than those held out (docs/RUNBOOK.md, PackratAssistanceStopped)"
                .to_owned()
        }
        "refused_disabled" => {
            "refused: assistance is switched off on this route (`assist`), or the gateway is draining"
                .to_owned()
        }
        "refused_full" => {
            "refused: no room for another assisted session, or the client's address has too many or \
             begins too many per second (`maximum_sessions`, `sessions_per_source`, \
             `handshakes_per_second_per_source`); it asks again"
                .to_owned()
        }
        "refused_version" => {
            "refused: client and gateway have no version of the protocol in common; update the SDK"
                .to_owned()
        }
        "refused_token_missing" => "refused: the route requires a token, and it brought none".to_owned(),
        "refused_token_expired" => "refused: its token has expired".to_owned(),
        "refused_token_forged" => {
            "refused: its token is malformed, or of a key that is not in force".to_owned()
        }
        "refused_token_elsewhere" => {
            "refused: its token is for another route or another network".to_owned()
        }
        other => format!("refused: {other} (docs/METRICS.md, packrat_handshakes_total)"),
    }
}

/// Counters of losses that were not repaired, and the reasons.
const UNREPAIRED_LOSSES: [(&str, &str); 5] = [
    (
        "losses_tolerated",
        "left to the sender, which tolerates losses (BBR) and gains nothing by repairs",
    ),
    ("losses_shown", "left to the sender, because a queue stands on the last mile"),
    ("repairs_paused", "left to the sender while repairs pause: most repairs never arrived"),
    ("repairs_late", "given up: a repair would come too late for the client's hold"),
    ("repairs_evicted", "given up: no longer in the cache (`cache_bytes_per_session`)"),
];
/// Counters of other obstacles.
const OBSTACLES: [(&str, &str); 4] = [
    ("budget_refusals", "repairs were put off: the repair budget was used up (`repair_budget`)"),
    ("eacks_limited", "eACKs were not looked at: the client makes the gateway work too much"),
    ("resets_gateway", "Resets, asked for by the gateway; repairs stop for a round trip each"),
    ("resets_client", "Resets, asked for by the client; repairs stop for a round trip each"),
];

/// The benefit of an assisted client, and the obstacles to more.
fn of_assisted(session: &SessionSnapshot) -> Vec<String> {
    let count = |name: &str| session.counters.get(name).copied().unwrap_or_default();
    let mut reasons = Vec::new();
    if session.recorded == 0 {
        return vec!["assisted; nothing has been sent to it since".to_owned()];
    }
    if count("eacks_decoded") == 0 {
        reasons.push(
            "its eACKs do not arrive, or none can be decoded: the gateway does not learn of losses"
                .to_owned(),
        );
    }
    let loss = session.missing as f64 / session.recorded as f64;
    if loss < LITTLE_LOSS {
        reasons.push(format!(
            "nothing to repair: its last mile has lost {} of {} datagrams",
            session.missing, session.recorded
        ));
        return reasons;
    }
    let share = |part: u64| percent(part as f64 / session.missing.max(1) as f64);
    reasons.push(format!(
        "the last mile loses {}; {} of that is repaired ({} of {})",
        percent(loss.min(1.0)),
        share(session.repairs_arrived),
        session.repairs_arrived,
        session.missing
    ));
    for (counter, reason) in UNREPAIRED_LOSSES {
        if count(counter) > 0 {
            reasons.push(format!("{} of the losses: {reason}", share(count(counter))));
        }
    }
    for (counter, reason) in OBSTACLES {
        if count(counter) > 0 {
            reasons.push(format!("{}: {reason}", count(counter)));
        }
    }
    let (last_mile, far) =
        (session.last_mile_round_trip_microseconds, session.far_round_trip_microseconds);
    if far > 0 && last_mile > 2 * far {
        let seconds = |microseconds: u64| milliseconds(microseconds as f64 / 1e6);
        reasons.push(format!(
            "the last mile's round trip ({}) is long beside the far segment's ({}): a repair is hardly \
             faster than the sender's own; `packrat plan` says what there is to gain",
            seconds(last_mile),
            seconds(far)
        ));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(changes: Value) -> SessionSnapshot {
        let mut value = json!({
            "session": 7, "client": null, "endpoint": "192.0.2.1:443", "assistance": 9, "seconds": 4.0,
            "to_client_bytes": 1_000_000, "recorded": 1000, "missing": 40, "repairs_arrived": 30, "resets": 0,
            "cache_bytes": 0, "last_mile_round_trip_microseconds": 5000, "route": "web",
            "counters": { "eacks_decoded": 50 },
        });
        for (key, change) in changes.as_object().unwrap() {
            value[key] = change.clone();
        }
        serde_json::from_value(value).unwrap()
    }

    fn route(comparison: Value) -> Route {
        let mut value =
            json!({ "route": "web", "metrics": {}, "configuration": { "assist": true } });
        value["comparison"] = comparison;
        serde_json::from_value(value).unwrap()
    }

    fn of(changes: Value, route: &Route) -> String {
        reasons(&session(changes), Some(route), false).join("; ")
    }

    #[test]
    fn who_is_not_assisted_is_told_why() {
        let plain = route(Value::Null);
        let compared = route(json!({ "holdout": 0.05, "stage": "assisting" }));
        let stopped = route(json!({ "holdout": 0.05, "stage": "stopped" }));
        let refused = |reason: &str, route: &Route| {
            of(json!({ "assistance": null, "refusal": reason }), route)
        };
        assert!(refused("refused_holdout", &compared).contains("5.0% of the clients"));
        assert!(refused("refused_disabled", &plain).contains("switched off"));
        assert!(refused("refused_disabled", &stopped).contains("stopped by itself"));
        assert!(refused("refused_token_expired", &plain).contains("expired"));
        assert!(refused("refused_tomorrow", &plain).contains("refused_tomorrow"));
        let relayed = of(json!({ "assistance": null, "relayed": true }), &plain);
        assert!(relayed.starts_with("the client has come from another gateway"), "{relayed}");
        let silent = of(json!({ "assistance": null }), &plain);
        assert!(silent.contains("has not asked"), "{silent}");
        assert!(of(json!({ "assistance": null }), &stopped).contains("stopped by itself"));
    }

    #[test]
    fn who_is_assisted_is_told_what_becomes_of_its_losses() {
        let plain = route(Value::Null);
        assert!(
            of(json!({ "missing": 0, "repairs_arrived": 0 }), &plain).contains("nothing to repair")
        );
        assert!(of(json!({ "recorded": 0 }), &plain).contains("nothing has been sent"));
        assert!(of(json!({ "counters": {} }), &plain).starts_with("its eACKs do not arrive"));
        let counters = json!({ "counters": { "eacks_decoded": 9, "losses_tolerated": 10, "budget_refusals": 3 } });
        let told = of(counters, &plain);
        assert!(told.contains("75.0% of that is repaired (30 of 40)"), "{told}");
        assert!(
            told.contains("25.0% of the losses: left to the sender, which tolerates"),
            "{told}"
        );
        assert!(told.contains("3: repairs were put off"), "{told}");
        let far = json!({ "last_mile_round_trip_microseconds": 600_000, "far_round_trip_microseconds": 1000 });
        assert!(of(far, &plain).contains("long beside the far segment's"));
    }
}
