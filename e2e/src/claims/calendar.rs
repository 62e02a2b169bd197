//! Downloads, tokens and configuration while a clock is set.

use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use super::exposure::with;
use super::tokens::{assisted_with_token, with_token};
use super::weather::{during, process_of};
use crate::command::{Failure, Outcome, until};
use crate::suite::{HELM_RELEASE, LARGE_FILE, SHOP_GATEWAY, SHOP_NAMESPACE, Suite};

/// Name of the gateway whose calendar can be set, as in `manifests/gateway-calendar.yaml`.
const GATEWAY_NAME: &str = "with-calendar";
const NODE_PORT: u16 = 30446;
/// The file with the offset of a Pod's calendar, as `clock/settable_clock.c` defines it.
const CALENDAR_FILE: &str = "/dev/shm/packrat-calendar";
/// Name of the operator's program, of which the kernel keeps fifteen characters.
const OPERATOR_PROGRAM: &str = "packrat-operato";
/// Seconds of an hour.
const HOUR_SECONDS: i64 = 3600;
/// Longest time in seconds between an event and its check.
const TOLERANCE_SECONDS: i64 = 300;
/// Bytes of a download that have arrived when a clock is set.
const BYTES_BEFORE: u64 = 5_000_000;

/// The clocks of a gateway and of the operator are set forwards and backwards by an hour, with
/// downloads in flight.
pub(super) fn jumps(suite: &mut Suite) -> Outcome<String> {
    let images = ["gateway-calendar", "operator-calendar"];
    suite.cluster.load(&images.map(|name| suite.places.images.join(format!("{name}.tar"))))?;
    suite.install_chart(&["image.repository=packrat-e2e/operator-calendar", "image.tag=dev"])?;
    let outcome = with_operator_ahead(suite);
    suite.install_chart(&[])?;
    outcome
}

/// Gives the shop's gateway a settable calendar.
pub(crate) fn let_gateway_be_set(suite: &mut Suite) -> Outcome {
    suite.cluster.load(&[suite.places.images.join("gateway-calendar.tar")])?;
    let image = "packrat-e2e/gateway-calendar:dev";
    let patch =
        serde_json::json!({ "spec": { "envoy": { "image": image, "imagePullPolicy": "Never" } } });
    suite.patch_gateway(SHOP_GATEWAY, &patch)?;
    let name = format!("packrat-gateway-{}", SHOP_GATEWAY);
    until(Duration::from_secs(60), "the operator passes the image on", || {
        let deployment = suite.get(SHOP_NAMESPACE, &["deployment", &name])?;
        let now = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
        if *now == image { Ok(()) } else { Err(Failure(format!("it is {now}"))) }
    })?;
    suite.rolled_out(&format!("deployment/{name}"), SHOP_NAMESPACE)
}

/// The clock of the shop's gateway is set forwards by an hour, and back, during one download.
pub(super) fn there_and_back(suite: &mut Suite) -> Outcome<String> {
    during(suite, |suite, _| {
        let (pod, node) = suite.gateway_pod(SHOP_GATEWAY)?;
        set(suite, [SHOP_NAMESPACE, &pod, &node, "envoy"], HOUR_SECONDS)?;
        std::thread::sleep(Duration::from_secs(2));
        set(suite, [SHOP_NAMESPACE, &pod, &node, "envoy"], 0)?;
        Ok(String::new())
    })
}

/// An operator that is an hour ahead makes everything for the gateway.
fn with_operator_ahead(suite: &mut Suite) -> Outcome<String> {
    set_operator(suite, HOUR_SECONDS)?;
    with(suite, "gateway-calendar.yaml", |suite| {
        suite.gateway_is(GATEWAY_NAME, "Programmed")?;
        suite.gateway_is(GATEWAY_NAME, "Ready")?;
        let to = suite.node_port(GATEWAY_NAME, NODE_PORT)?;
        // A gateway that is ready can be reached a moment later.
        until(Duration::from_secs(60), "assistance with a token", || {
            assisted_with_token(suite, &to)
        })?;
        let mut said = Vec::new();
        for (jump, seconds) in
            [("forwards", HOUR_SECONDS), ("back", 0), ("an hour behind", -HOUR_SECONDS)]
        {
            said.push(format!("{jump}: {}", jump_in_flight(suite, &to, seconds)?));
        }
        // The gateway continues when the operator's clock is set back.
        set_operator(suite, 0)?;
        set_operator(suite, HOUR_SECONDS)?;
        said.push(format!(
            "operator, an hour ahead, lost and replaced: {}",
            operator_replaced(suite, &to)?
        ));
        Ok(said.join("; "))
    })
}

/// Sets the gateway's clock during a download. The next client also gets a token and is assisted.
fn jump_in_flight(suite: &mut Suite, to: &str, seconds: i64) -> Outcome<String> {
    let (pod, node) = suite.gateway_pod(GATEWAY_NAME)?;
    let mut download = suite.start_download(&with_token(suite, LARGE_FILE, to))?;
    download.wait_for(BYTES_BEFORE)?;
    let set = set(suite, [SHOP_NAMESPACE, &pod, &node, "envoy"], seconds);
    let transfer = download.finish()?;
    set?;
    transfer.expect(&suite.checksum(LARGE_FILE)?)?;
    if transfer.repaired().is_none() {
        return Err(Failure(format!("no assistance: {}", transfer.assistance())));
    }
    let next = assisted_with_token(suite, to)?;
    // The test counts only if the gateway uses the new time.
    until(Duration::from_secs(60), "the gateway's log has the new time", || {
        let ahead = calendar_of(suite, &pod)?;
        if (ahead - seconds).abs() < TOLERANCE_SECONDS {
            Ok(())
        } else {
            Err(Failure(format!("the gateway is {ahead} s ahead instead of {seconds}")))
        }
    })?;
    Ok(format!("stalled {} ms, afterwards, with a new token: {next}", transfer.stall.as_millis()))
}

/// The operator, an hour ahead, is lost without notice. Its successor, whose clock is right, must
/// get the lease although its predecessor claims to have renewed it an hour from now.
fn operator_replaced(suite: &mut Suite, to: &str) -> Outcome<String> {
    let lost = Instant::now();
    // An operator that is asked to end would release its lease.
    let (pod, node) = operator_pod(suite)?;
    let process = process_of(suite, HELM_RELEASE[0], &pod, &node, OPERATOR_PROGRAM)?;
    suite.cluster.inside(&node).output(["kill", "-STOP", &process])?;
    let arguments =
        ["delete", "pod", "-n", HELM_RELEASE[0], "-l", "app.kubernetes.io/component=operator"];
    suite.kubectl.output(arguments.into_iter().chain(["--grace-period=0", "--force"]))?;
    suite.rolled_out(&format!("deployment/{}-operator", HELM_RELEASE[1]), HELM_RELEASE[0])?;
    // A gateway that starts again needs everything that the operator has for it, and only the
    // holder of the lease changes its Deployment.
    let annotations = serde_json::json!({ "packrat.dev/e2e": "replaced" });
    let patch =
        serde_json::json!({ "spec": { "workload": { "pod": { "annotations": annotations } } } });
    suite.patch_gateway(GATEWAY_NAME, &patch)?;
    let selector = format!("packrat.dev/edge-gateway={GATEWAY_NAME}");
    until(Duration::from_secs(120), "the operator's successor writes", || {
        let pods = suite.get(SHOP_NAMESPACE, &["pods", "-l", &selector])?;
        let replaced = pods["items"].as_array().is_some_and(|pods| {
            pods.iter().any(|pod| pod["metadata"]["annotations"]["packrat.dev/e2e"] == "replaced")
        });
        if replaced { Ok(()) } else { Err(Failure::new("the gateway's Pods are as before")) }
    })?;
    let time = lost.elapsed().as_secs();
    suite.rolled_out(&format!("deployment/packrat-gateway-{GATEWAY_NAME}"), SHOP_NAMESPACE)?;
    let next = until(Duration::from_secs(60), "assistance", || assisted_with_token(suite, to))?;
    Ok(format!("its successor writes after {time} s, {next}"))
}

/// Sets the operator's clock, and waits until the operator has used it.
fn set_operator(suite: &Suite, seconds: i64) -> Outcome {
    let (pod, node) = operator_pod(suite)?;
    set(suite, [HELM_RELEASE[0], &pod, &node, OPERATOR_PROGRAM], seconds)?;
    until(Duration::from_secs(60), "the operator has renewed its lease", || {
        let lease =
            suite.get(HELM_RELEASE[0], &["lease", &format!("{}-operator", HELM_RELEASE[1])])?;
        let ahead = ahead(&lease["spec"]["renewTime"])?;
        if (ahead - seconds).abs() < TOLERANCE_SECONDS {
            Ok(())
        } else {
            Err(Failure(format!("the lease was renewed {ahead} s from now, instead of {seconds}")))
        }
    })
}

fn operator_pod(suite: &Suite) -> Outcome<(String, String)> {
    let selector = "app.kubernetes.io/component=operator";
    let pods = suite.get(HELM_RELEASE[0], &["pods", "-l", selector])?;
    let running = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
    let pod = pods["items"].as_array().and_then(|pods| pods.iter().find(running));
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let name = text(pod.map(|pod| &pod["metadata"]["name"]));
    let node = text(pod.map(|pod| &pod["spec"]["nodeName"]));
    name.zip(node).ok_or_else(|| Failure::new("there is no operator"))
}

/// Sets the calendar of the program in a Pod (namespace, Pod, node, program) to this machine's time
/// plus `seconds`.
fn set(suite: &Suite, [namespace, pod, node, program]: [&str; 4], seconds: i64) -> Outcome {
    let process = process_of(suite, namespace, pod, node, program)?;
    let bytes: String = seconds.to_ne_bytes().iter().map(|byte| format!("\\{byte:03o}")).collect();
    // No `O_CREAT`: in such a directory, not even root can open another user's file with it.
    let script = format!(
        "printf '{bytes}' | dd of=/proc/{process}/root{CALENDAR_FILE} conv=notrunc,nocreat status=none"
    );
    suite.cluster.inside(node).output(["sh", "-c", &script]).map(drop)
}

/// Seconds by which a gateway's last log entry is ahead of this machine.
fn calendar_of(suite: &Suite, pod: &str) -> Outcome<i64> {
    let log = suite.kubectl.output(["logs", "-n", SHOP_NAMESPACE, pod, "--tail=50"])?;
    let mut entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let last =
        entries.next_back().ok_or_else(|| Failure::new("the gateway has not logged anything"))?;
    ahead(&last["ts"])
}

/// Seconds by which a time is in the future.
fn ahead(time: &Value) -> Outcome<i64> {
    let text = time.as_str().unwrap_or_default();
    let time =
        humantime::parse_rfc3339(text).map_err(|error| Failure(format!("{text:?}: {error}")))?;
    Ok(match time.duration_since(SystemTime::now()) {
        Ok(ahead) => ahead.as_secs().cast_signed(),
        Err(behind) => -behind.duration().as_secs().cast_signed(),
    })
}
