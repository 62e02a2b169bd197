//! Faults, each during a download that must finish with the right bytes.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use crate::command::{Failure, Outcome, until};
use crate::download::{Download, Transfer};
use crate::suite::{
    HELM_RELEASE, LARGE_FILE, LAST_MILE_LOSS, NODE_PORT, SHOP_GATEWAY, SHOP_NAMESPACE, SMALL_FILE,
    SMALLEST_FILE, Suite,
};

/// Bytes that have arrived when the fault occurs.
const BYTES_BEFORE: u64 = 5_000_000;

/// A download in flight when `fault` occurs. It must finish, intact.
pub(super) fn during(
    suite: &mut Suite,
    fault: impl FnOnce(&mut Suite, &str) -> Outcome<String>,
) -> Outcome<String> {
    let to = suite.node_port(SHOP_GATEWAY, NODE_PORT)?;
    suite.last_gateway.clone_from(&to);
    let mut download = suite.start_download(&suite.request(LARGE_FILE, &to))?;
    download.wait_for(BYTES_BEFORE)?;
    let said = fault(suite, &to);
    let transfer = finish(suite, download);
    // The fault's own failure is more informative.
    let said = said?;
    report(&transfer?, &said)
}

pub(super) fn finish(suite: &Suite, download: Download) -> Outcome<Transfer> {
    let transfer = download.finish()?;
    transfer.expect(&suite.checksum(LARGE_FILE)?)?;
    Ok(transfer)
}

pub(super) fn report(transfer: &Transfer, said: &str) -> Outcome<String> {
    let repaired = transfer
        .repaired()
        .ok_or_else(|| Failure(format!("no assistance: {}", transfer.assistance())))?;
    let separator = if said.is_empty() { "" } else { "; " };
    Ok(format!(
        "stalled {} ms, {:.1} Mbit/s, {repaired} datagrams repaired{separator}{said}",
        transfer.stall.as_millis(),
        transfer.goodput(),
    ))
}

/// Lets no datagram pass the last mile for five seconds.
pub(super) fn blackhole(suite: &mut Suite) -> Outcome<String> {
    during(suite, |suite, _| {
        suite.last_mile.set_loss(1.0, 1.0)?;
        thread::sleep(Duration::from_secs(5));
        suite.last_mile.set_loss(LAST_MILE_LOSS, 1.0)?;
        Ok(String::new())
    })
}

/// The last mile loses 30 % in bursts for ten seconds.
pub(super) fn bursts(suite: &mut Suite) -> Outcome<String> {
    during(suite, |suite, _| {
        suite.last_mile.set_loss(0.3, 8.0)?;
        thread::sleep(Duration::from_secs(10));
        suite.last_mile.set_loss(LAST_MILE_LOSS, 1.0)?;
        Ok(String::new())
    })
}

/// The client's NAT maps it to another port.
pub(super) fn port_changes(suite: &mut Suite) -> Outcome<String> {
    during(suite, |suite, _| suite.last_mile.rebind(None).map(|()| String::new()))
}

/// The client's NAT maps it to another address.
pub(super) fn address_changes(suite: &mut Suite) -> Outcome<String> {
    let address = suite.second_client_address();
    let outcome = during(suite, |suite, _| suite.last_mile.rebind(address).map(|()| String::new()));
    suite.last_mile.rebind(None)?;
    outcome
}

/// Process identifier, on the machine, of a Pod's program.
pub(crate) fn process_of(
    suite: &Suite,
    namespace: &str,
    pod: &str,
    node: &str,
    program: &str,
) -> Outcome<String> {
    let uid = suite.get(namespace, &["pod", pod])?["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    // The name of its control group has the Pod's identifier in it, with systemd's punctuation or
    // without.
    let other = uid.replace('-', "_");
    let script = format!(
        "for p in $(pgrep -x {program}); do grep -q -e 'pod{uid}' -e 'pod{other}' /proc/$p/cgroup && echo $p && exit 0; done; exit 1"
    );
    Ok(suite.cluster.inside(node).output(["sh", "-c", &script])?.trim().to_owned())
}

/// The gateway's process dies (SIGKILL); its container is started again in the same Pod.
pub(super) fn gateway_killed(suite: &mut Suite) -> Outcome<String> {
    let (pod, node) = suite.gateway_pod(SHOP_GATEWAY)?;
    during(suite, |suite, _| {
        let process = process_of(suite, SHOP_NAMESPACE, &pod, &node, "envoy")?;
        suite.cluster.inside(&node).output(["kill", "-9", &process])?;
        Ok(String::new())
    })
}

/// The gateway's Pod is deleted: it drains, and its successor on the same node takes over.
pub(super) fn gateway_deleted(suite: &mut Suite) -> Outcome<String> {
    let (pod, _) = suite.gateway_pod(SHOP_GATEWAY)?;
    let outcome = during(suite, |suite, _| {
        suite.kubectl.output(["delete", "pod", &pod, "-n", SHOP_NAMESPACE, "--wait=false"])?;
        Ok(String::new())
    })?;
    let selector = format!("--field-selector=reason=FailedPreStopHook,involvedObject.name={pod}");
    let undrained = suite.get(SHOP_NAMESPACE, &["events", &selector])?;
    match undrained["items"].as_array().and_then(|events| events.first()) {
        Some(event) => Err(Failure(format!("the gateway did not drain: {}", event["message"]))),
        None => Ok(outcome),
    }
}

/// Runs a trial with the drain that an EdgeGateway has by default; the suite's manifests have a short
/// one.
fn with_default_drain(
    suite: &mut Suite,
    trial: impl FnOnce(&mut Suite) -> Outcome<String>,
) -> Outcome<String> {
    let drain = |suite: &Suite, seconds: u32| {
        let patch = serde_json::json!({ "spec": { "drain": { "seconds": seconds } } });
        suite.patch_gateway(SHOP_GATEWAY, &patch)?;
        let deployment = format!("deployment/packrat-gateway-{SHOP_GATEWAY}");
        suite.rolled_out(&deployment, SHOP_NAMESPACE)?;
        until(Duration::from_secs(120), "one gateway is left", || suite.gateway_pod(SHOP_GATEWAY))
    };
    drain(suite, 60)?;
    let outcome = trial(suite);
    drain(suite, 10)?;
    outcome
}

/// The gateway's Pod is deleted, with the default drain: it still assists the download. No window
/// of five seconds but one is slower than 0.8 times the windows of an undisturbed download.
pub(super) fn goodput_while_draining(suite: &mut Suite) -> Outcome<String> {
    with_default_drain(suite, |suite| {
        let to = suite.node_port(SHOP_GATEWAY, NODE_PORT)?;
        suite.judged(|suite| {
            let undisturbed = suite.download(&suite.request(LARGE_FILE, &to))?;
            undisturbed.expect(&suite.checksum(LARGE_FILE)?)?;
            report(&undisturbed, "")?;
            let (pod, _) = suite.gateway_pod(SHOP_GATEWAY)?;
            let mut download = suite.start_download(&suite.request(LARGE_FILE, &to))?;
            download.wait_for(BYTES_BEFORE)?;
            suite.kubectl.output(["delete", "pod", &pod, "-n", SHOP_NAMESPACE, "--wait=false"])?;
            let transfer = finish(suite, download)?;
            let text = report(&transfer, "")?;
            Ok(compared(&undisturbed, &transfer, &text))
        })
    })
}

/// Fails if more than one window of five seconds is slower than 0.8 times the windows of an
/// undisturbed download.
pub(super) fn compared(undisturbed: &Transfer, transfer: &Transfer, said: &str) -> Outcome<String> {
    let (usual, mut windows) = (undisturbed.windows(), transfer.windows());
    let mean = usual.iter().sum::<f64>() / usual.len().max(1) as f64;
    windows.sort_by(f64::total_cmp);
    let second_worst = *windows.get(1).ok_or_else(|| Failure::new("the download was too short"))?;
    if usual.is_empty() || second_worst < 0.8 * mean {
        return Err(Failure(format!(
            "{second_worst:.1} Mbit/s in one window of five seconds, {mean:.1} undisturbed; assistance: {}; bytes by seconds: {:?}",
            transfer.assistance(),
            transfer.seconds
        )));
    }
    Ok(format!("{said}; worst window but one {second_worst:.1} Mbit/s, {mean:.1} undisturbed"))
}

/// Assistance is switched off: the port stays, the download continues, and a new one is let in.
pub(super) fn switched_off(suite: &mut Suite) -> Outcome<String> {
    let annotation = "packrat.dev/config.assist";
    let to = suite.node_port(SHOP_GATEWAY, NODE_PORT)?;
    let mut download = suite.start_download(&suite.request(SMALL_FILE, &to))?;
    download.wait_for(1_000_000)?;
    suite.annotate_service(&format!("{annotation}=off"))?;
    let condition = "--for=jsonpath={.status.conditions[?(@.type==\"packrat.dev/Assisted\")].reason}=SwitchedOff";
    let said = suite.kubectl.output([
        "wait",
        "service/web",
        "-n",
        SHOP_NAMESPACE,
        condition,
        "--timeout=30s",
    ]);
    let plain = suite.download(&suite.request(SMALLEST_FILE, &to));
    let finished = download.finish();
    suite.annotate_service(&format!("{annotation}-"))?;
    said?;
    let (plain, finished) = (plain?, finished?);
    plain.expect(&suite.checksum(SMALLEST_FILE)?)?;
    finished.expect(&suite.checksum(SMALL_FILE)?)?;
    // Also one without a single repair would have been assisted.
    if plain.repaired().is_some() {
        return Err(Failure(format!("it was assisted all the same: {}", plain.assistance())));
    }
    until(Duration::from_secs(60), "assistance is back", || {
        let again = suite.download(&suite.request(SMALLEST_FILE, &to))?;
        again.repaired().map(drop).ok_or_else(|| Failure::new("it is still off"))
    })?;
    Ok(format!(
        "the running download: {:.1} Mbit/s, stalled {} ms; a new one meanwhile: {:.1} Mbit/s, not assisted",
        finished.goodput(),
        finished.stall.as_millis(),
        plain.goodput()
    ))
}

/// The gateway's node loses its power for a moment.
pub(super) fn node_lost(suite: &mut Suite) -> Outcome<String> {
    let (_, node) = suite.gateway_pod(SHOP_GATEWAY)?;
    let outcome = during(suite, |suite, _| {
        for on in [false, true] {
            match suite.cluster.power(&node, on) {
                Some(done) => done?,
                None => {
                    return Ok(
                        "not tried: the power of this cluster's nodes cannot be cut".to_owned()
                    );
                }
            }
        }
        Ok(String::new())
    });
    suite.gateway_node(SHOP_GATEWAY)?;
    outcome
}

/// The gateway's node forgets all its flows, and with them the address translations.
pub(super) fn flows_forgotten(suite: &mut Suite) -> Outcome<String> {
    during(suite, |suite, _| {
        let own = std::env::current_exe()?.to_string_lossy().into_owned();
        let node = suite.gateway_node(SHOP_GATEWAY)?;
        suite.cluster.node(&node).output([own.as_str(), "forget-flows"])?;
        Ok(String::new())
    })
}

/// The operator's Pod is deleted without notice.
pub(super) fn operator_killed(suite: &mut Suite) -> Outcome<String> {
    let outcome = during(suite, |suite, _| {
        let arguments =
            ["delete", "pod", "-n", HELM_RELEASE[0], "-l", "app.kubernetes.io/component=operator"];
        suite.kubectl.output(arguments.into_iter().chain(["--grace-period=0", "--force"]))?;
        Ok(String::new())
    });
    let deployment = format!("deployment/{}-operator", HELM_RELEASE[1]);
    suite.rolled_out(&deployment, HELM_RELEASE[0])?;
    outcome
}

/// The chart is upgraded: other settings, two operators instead of one.
pub(super) fn chart_upgraded(suite: &mut Suite) -> Outcome<String> {
    let outcome = during(suite, |suite, _| {
        suite.install_chart(&["replicas=2", "podAnnotations.e2e=upgraded"])?;
        Ok("one operator, then two others".to_owned())
    });
    suite.install_chart(&[])?;
    outcome
}

/// The number of servers grows and shrinks again; the first ones stay.
pub(super) fn servers_scaled(suite: &mut Suite) -> Outcome<String> {
    let outcome = during(suite, |suite, _| {
        // A server that ends takes its connections along, so the one with this connection must
        // stay.
        let cost = "controller.kubernetes.io/pod-deletion-cost=1000";
        suite.kubectl.output([
            "annotate",
            "pods",
            "-l",
            "app=web",
            "-n",
            SHOP_NAMESPACE,
            "--overwrite",
            cost,
        ])?;
        for replicas in ["--replicas=4", "--replicas=6", "--replicas=2"] {
            suite.kubectl.output(["scale", "deployment/web", "-n", SHOP_NAMESPACE, replicas])?;
            suite.rolled_out("deployment/web", SHOP_NAMESPACE)?;
        }
        Ok("2 to 6 to 2 servers".to_owned())
    });
    suite.kubectl.output(["scale", "deployment/web", "-n", SHOP_NAMESPACE, "--replicas=2"])?;
    suite.rolled_out("deployment/web", SHOP_NAMESPACE)?;
    outcome
}

/// Envoy gets a new configuration a hundred times.
pub(super) fn reconfigured(suite: &mut Suite) -> Outcome<String> {
    let annotation = "packrat.dev/config.repair-budget-percent";
    let outcome = during(suite, |suite, _| {
        for time in 0..100 {
            let setting = format!("{annotation}={}", 24 + time % 2);
            suite.annotate_service(&setting)?;
        }
        Ok("100 changes".to_owned())
    });
    suite.annotate_service(&format!("{annotation}-"))?;
    outcome
}

/// The cache of a session is cut to a tenth.
pub(super) fn cache_cut(suite: &mut Suite) -> Outcome<String> {
    let annotation = "packrat.dev/config.cache-bytes-per-session";
    let outcome = during(suite, |suite, _| {
        let setting = format!("{annotation}=100Ki");
        suite.annotate_service(&setting)?;
        Ok("1Mi to 100Ki".to_owned())
    });
    suite.annotate_service(&format!("{annotation}-"))?;
    outcome
}

/// The API server is unreachable for a minute: a download in flight and a new one both finish.
pub(super) fn api_server_gone(suite: &mut Suite) -> Outcome<String> {
    let control_plane = suite.cluster.inside(suite.cluster.control_plane());
    let signal = |name: &str| {
        let script = format!("kill -{name} $(pgrep -f '^[^ ]*kube-apiserver')");
        control_plane.output(["sh", "-c", &script]).map(drop)
    };
    let started = Instant::now();
    let outcome = during(suite, |_, _| signal("STOP").map(|()| String::new()));
    let second = suite.download(&suite.request(LARGE_FILE, &suite.last_gateway));
    thread::sleep(Duration::from_secs(60).saturating_sub(started.elapsed()));
    signal("CONT")?;
    until(Duration::from_secs(60), "the API server answers", || {
        suite.kubectl.output(["get", "nodes"])
    })?;
    // Kubernetes declares nodes lost a few seconds later, when their kubelets could not report, and
    // ready again. The next claim must not meet that.
    thread::sleep(Duration::from_secs(20));
    suite.kubectl.output(["wait", "nodes", "--all", "--for=condition=Ready", "--timeout=120s"])?;
    suite.rolled_out("deployment/web", SHOP_NAMESPACE)?;
    let second = second?;
    second.expect(&suite.checksum(LARGE_FILE)?)?;
    Ok(format!("{}; a new one meanwhile: {:.1} Mbit/s", outcome?, second.goodput()))
}

/// 10,000 datagrams of garbage per second reach the gateway's port for five seconds.
pub(super) fn garbage(suite: &mut Suite) -> Outcome<String> {
    during(suite, |suite, to| {
        let own = std::env::current_exe()?.to_string_lossy().into_owned();
        let (pod, node) = suite.gateway_pod(SHOP_GATEWAY)?;
        let before = restarts(suite, &pod)?;
        // From inside the cluster's network, because the last mile would be full of garbage.
        let said = suite.cluster.node(&node).output([own.as_str(), "garbage", to, "10000", "5"])?;
        until(Duration::from_secs(60), "the gateway is ready", || suite.gateway_pod(SHOP_GATEWAY))?;
        if restarts(suite, &pod)? != before {
            return Err(Failure::new("the gateway was restarted"));
        }
        Ok(format!("{} sent", said.trim()))
    })
}

fn restarts(suite: &Suite, pod: &str) -> Outcome<i64> {
    let pod = suite.get(SHOP_NAMESPACE, &["pod", pod])?;
    Ok(pod["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap_or(0))
}

/// Sends random datagrams of all lengths for some seconds; returns their number.
pub(crate) fn send_garbage(to: &str, per_second: u32, seconds: u64) -> Outcome<u64> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(to)?;
    let (started, mut sent, mut state) = (Instant::now(), 0_u64, 0x9e37_79b9_7f4a_7c15_u64);
    let mut datagram = [0; 1200];
    while started.elapsed() < Duration::from_secs(seconds) {
        let due = (started.elapsed().as_secs_f64() * f64::from(per_second)) as u64;
        while sent < due {
            for chunk in datagram.chunks_exact_mut(8) {
                // xorshift64: any bytes do.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                chunk.copy_from_slice(&state.to_le_bytes());
            }
            let length = 1 + (state % 1200) as usize;
            // A refused datagram has arrived.
            let _ = socket.send(&datagram[..length]);
            sent += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(sent)
}
