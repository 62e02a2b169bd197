//! Every query of every dashboard, rule and alert against a real Prometheus that scrapes a real
//! Envoy in the middle of a lossy download, and alerts fired by real faults. `make test-telemetry`
//! builds and installs the programs.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use packrat_dashboards::queries::{all, names, resolved};
use packrat_dashboards::{Definitions, Selection};
use packrat_figures::Figures;

use serde_json::Value;

use crate::compared::{Clients, Slow};
use crate::place::PATIENCE;
use crate::prometheus::{Prometheus, find_tools};
use crate::scene::{Demo, IdleEnvoy, built};

const NO_OPERATOR: &str = "no operator runs here; a test holds the names against its source";
/// Queries without an answer here, and the reason.
const EMPTY_BY_DESIGN: [(&str, &str); 7] = [
    (
        "packrat-operator.json: Connected to the operator",
        "this Envoy reads files, it has no operator",
    ),
    ("packrat-operator.json: Replica that writes", NO_OPERATOR),
    ("packrat-operator.json: Gateways connected", NO_OPERATOR),
    ("packrat-operator.json: Gateways that refuse", NO_OPERATOR),
    ("packrat-operator.json: Problems of Services", NO_OPERATOR),
    ("packrat-operator.json: What is configured", NO_OPERATOR),
    ("packrat-operator.json: First certificate to expire", "this Envoy has no certificate"),
];
/// Window of the rates in the test.
const WINDOW: &str = "10s";

#[test]
#[ignore = "needs Prometheus, Envoy and Caddy: make test-telemetry"]
fn rules_and_alerts_pass_promtool() {
    let Some(tools) = find_tools() else { return };
    tools.promtool(&["check", "rules", "../../charts/packrat/rules/packrat-recording.yaml"]);
    tools.promtool(&["check", "rules", "../../charts/packrat/rules/packrat-alerts.yaml"]);
    tools.promtool(&["test", "rules", "tests/alerts.yaml"]);
}

#[test]
#[ignore = "needs Prometheus, Envoy and Caddy: make test-telemetry"]
fn every_query_returns_data_and_faults_make_alerts_fire() {
    let Some(tools) = find_tools() else { return };
    let demo = Demo::start();
    let mut idle = IdleEnvoy::start();
    let prometheus = Prometheus::start(&tools, &[demo.admin(), idle.admin()]);
    prometheus.wait_for(
        "what there is before anybody comes",
        "packrat_session_duration_seconds_count{route=\"idle\"} == 0",
    );
    let clients = |number: usize, slow| {
        let (gateway, server) = idle.compared(number);
        Clients::start(gateway, server, 20 + number as u8, slow)
    };
    let (pays, harms) = (clients(0, Slow::HeldOut), clients(1, Slow::Assisted));
    idle.visit();
    prometheus.wait_for(
        "the end of a session",
        "increase(packrat_session_duration_seconds_count{route=\"idle\"}[1m]) > 0",
    );
    prometheus.wait_for(
        "repairs in the middle of a download",
        "sum(packrat_repairs_arrived_total) > 100",
    );
    prometheus.wait_for(
        "enough scrapes",
        "packrat_datagrams_recorded_total{route=\"demo\"} offset 9s > 0",
    );
    prometheus.wait_for(
        "a measured gain",
        // A recorded one of a recorded one: the last of all that there is.
        "packrat:speedup_lower:times{route=\"pays\"} > 1",
    );

    every_query_is_answered(&prometheus);
    every_alert_has_its_series(&prometheus);
    the_command_and_prometheus_agree(&prometheus);
    a_plan_uses_measurements(&demo);

    // Where assistance does harm, it stops by itself.
    prometheus.wait_for_alert("PackratAssistanceStopped");
    let stopped = prometheus.query("packrat_assistance_stopped{route=\"harms\"}");
    let pays_still = prometheus.query("packrat_assistance_stopped{route=\"pays\"}");
    assert_eq!((stopped, pays_still), (vec![1.0], vec![0.0]));
    the_command_shows_the_benefit(&idle);
    drop((pays, harms));

    idle.refuse_a_configuration();
    prometheus.wait_for_alert("PackratConfigurationRefused");
    drop(demo);
    prometheus.wait_for_alert("PackratGatewayDown");
}

fn every_query_is_answered(prometheus: &Prometheus) {
    // A value that is not a number (0 / 0, a quantile of no values) is no answer.
    let is_answered =
        |expression: &str| prometheus.query(expression).iter().any(|value| !value.is_nan());
    let definitions = Definitions::read().unwrap();
    for query in all(&definitions)
        .iter()
        .filter(|query| !query.is_logs && !query.place.starts_with("alert "))
    {
        let expression = resolved(&query.expression, WINDOW).replace("[5m]", "[10s]");
        if EMPTY_BY_DESIGN.iter().any(|(place, _)| *place == query.place) {
            assert!(!is_answered(&expression), "{}: an answer to {expression}", query.place);
        } else {
            wait_until(&format!("{}: {expression}", query.place), || is_answered(&expression));
        }
    }
}

/// Alerts are silent, but their series exist.
fn every_alert_has_its_series(prometheus: &Prometheus) {
    let definitions = Definitions::read().unwrap();
    for alert in &definitions.alerts {
        let words = alert
            .expression
            .split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
        let others = words
            .filter(|word| *word == "up" || (word.starts_with("envoy_") && !word.contains("cert")));
        let ours = names(&alert.expression)
            .into_iter()
            .filter(|name| !name.starts_with("packrat_operator_"));
        for name in ours.chain(others) {
            prometheus.wait_for(&alert.name, name);
        }
    }
}

/// `packrat stat` shows the measurements, and the decision that followed.
fn the_command_shows_the_benefit(idle: &IdleEnvoy) {
    let gateway = format!("http://{}", idle.admin());
    let stat = |format: &str| {
        let output = Command::new(built().join("packrat"))
            .args(["stat", "--gateway", &gateway, "--window", "0.1", "-o", format])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let json: Value = serde_json::from_str(&stat("json")).unwrap();
    let routes = json["routes"].as_array().unwrap();
    let of = |name: &str| routes.iter().find(|route| route["route"] == name).unwrap();
    let benefit = &of("pays")["benefit"];
    assert!(benefit["lower_times"].as_f64().unwrap() > 1.0, "{benefit:#}");
    assert!(benefit["holdout_sessions"].as_u64().unwrap() >= 30, "{benefit:#}");
    assert!(of("pays")["goodput_gain_times"].is_null(), "the formula goes where it is measured");
    assert_eq!(of("harms")["benefit"]["gateways_stopped"], 1);
    let wide = stat("wide");
    let row = |name: &str| wide.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("pays").contains(", faster"), "{wide}");
    assert!(row("harms").contains("stopped by itself"), "{wide}");
    assert!(row("idle").contains("no holdout"), "{wide}");
}

/// `packrat plan` reads both segments of the demo's path from its Envoy: 4 ms and 4 % on the last
/// mile, 60 ms behind the gateway.
fn a_plan_uses_measurements(demo: &Demo) {
    let gateway = format!("http://{}", demo.admin());
    let plan = || -> Value {
        let output = Command::new(built().join("packrat"))
            .args(["plan", "--gateway", &gateway, "--route", "demo", "-o", "json"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let number =
        |plan: &Value, key: &str| plan[key].as_f64().unwrap_or_else(|| panic!("{key}: {plan:#}"));
    let first = plan();
    assert_eq!(
        (&first["route"], &first["sources"]["last_mile_loss"]),
        (&"demo".into(), &"measured".into())
    );
    // A busy machine makes round trips longer for a while, never shorter.
    assert!(number(&first, "last_mile_round_trip_seconds") >= 0.003, "{first:#}");
    assert!(number(&first, "far_round_trip_seconds") >= 0.055, "{first:#}");
    wait_until("a plan that is that of the path", || {
        let plan = plan();
        let loss = number(&plan, "last_mile_loss_ratio");
        (0.02..0.08).contains(&loss) && plan["pays"] == true && number(&plan, "gain_times") > 2.0
    });
}

/// The figures computed from two readings equal Prometheus' figures, when each scrape has come in
/// time.
fn the_command_and_prometheus_agree(prometheus: &Prometheus) {
    let definitions = Definitions::read().unwrap();
    let demo = Selection { of_routes: "route=\"demo\"", of_processes: "", window: "8s" };
    wait_until("the command and Prometheus to agree", || {
        let (before, after, at) = prometheus.readings(Duration::from_secs(8), "demo");
        let figures = Figures::between(&before, &after, 8.0);
        let all = [
            ("packrat:last_mile_loss:ratio_rate5m", figures.loss, 0.02),
            ("packrat:loss_hidden:ratio_rate5m", figures.hidden, 0.1),
            ("packrat:quality:points_rate5m", figures.quality, 2.0),
            ("packrat:goodput_gain:times_rate5m", figures.goodput_gain, 5.0),
        ];
        all.iter().all(|(record, ours, tolerance)| {
            let expression = demo.apply(record, &definitions);
            let theirs = prometheus.query_at(&expression, at).first().copied();
            println!("{record}: {ours:?} here, {theirs:?} in Prometheus");
            ours.zip(theirs).is_some_and(|(ours, theirs)| (ours - theirs).abs() < *tolerance)
        })
    });
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        sleep(Duration::from_millis(200));
    }
}
