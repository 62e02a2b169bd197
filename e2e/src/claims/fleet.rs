//! Several gateways and servers, and clients that move from one gateway to another.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use super::exposure::with;
use crate::command::{Failure, Outcome, until};
use crate::download::Download;
use crate::suite::{SHOP, SMALL, Suite};

/// The gateways of `manifests/gateway-fleet.yaml`.
const FLEET: &str = "fleet";
const CLIENTS: usize = 100;
const SERVERS: usize = 10;
/// The NAT gives all clients other ports this often...
const EVERY: Duration = Duration::from_secs(5);
/// ...for this long.
const MOVING: Duration = Duration::from_secs(60);
/// Meanwhile the number of gateways changes.
const SCALES: [(Duration, usize); 2] = [(Duration::from_secs(12), 2), (Duration::from_secs(37), 4)];

/// A hundred downloads, of ten servers through four gateways; all clients' ports change every five
/// seconds for a minute, while the gateways become two and four again. All of them finish, intact.
pub(super) fn moving_clients(suite: &mut Suite) -> Outcome<String> {
    let servers = |suite: &Suite, count: usize| {
        let replicas = format!("--replicas={count}");
        suite.kubectl.output(["scale", "deployment/web", "-n", SHOP, &replicas])?;
        suite.rolled_out("deployment/web", SHOP)
    };
    servers(suite, SERVERS)?;
    let outcome = with(suite, "gateway-fleet.yaml", moving);
    servers(suite, 2)?;
    outcome
}

fn moving(suite: &mut Suite) -> Outcome<String> {
    suite.gateway_is(FLEET, "Programmed")?;
    let deployment = format!("deployment/packrat-gateway-{FLEET}");
    suite.rolled_out(&deployment, SHOP)?;
    let service = format!("{SHOP}/{}", suite.service_of(FLEET)?);
    let balance =
        |suite: &Suite| suite.cluster.balance(&service).unwrap_or_else(|| Ok(String::new()));
    let address =
        until(Duration::from_secs(60), "a way to the balancer's address", || balance(suite))?;
    if address.is_empty() {
        return Ok("not tried: this cluster has no load balancer".to_owned());
    }
    suite.gateway_is(FLEET, "Ready")?;
    let mut request = suite.request(SMALL, &format!("{address}:443"));
    request.connect_limit = Duration::from_secs(120);
    request.limit = Duration::from_secs(600);
    let mut downloads: Vec<Download> =
        (0..CLIENTS).map(|_| suite.start_download(&request)).collect::<Outcome<_>>()?;
    // What is tried are connections that move, not handshakes.
    for download in &mut downloads {
        download.wait_for(1)?;
    }
    let (started, mut moves, mut scales) = (Instant::now(), 0_u32, SCALES.iter().peekable());
    while started.elapsed() < MOVING {
        if started.elapsed() >= EVERY * moves {
            suite.last_mile.rebind(None)?;
            moves += 1;
        }
        if let Some((_, count)) = scales.next_if(|(at, _)| started.elapsed() >= *at) {
            let patch = serde_json::json!({ "spec": { "workload": { "replicas": count } } });
            suite.patch_gateway(FLEET, &patch)?;
        }
        // A cloud's balancer follows the endpoints; this one needs a call.
        balance(suite)?;
        thread::sleep(Duration::from_millis(500));
    }
    let mut under_way = 0;
    for download in &mut downloads {
        under_way += usize::from(!download.ended()?);
    }
    let checksum = suite.checksum(SMALL)?;
    let (mut failures, mut repaired, mut longest, mut stall) =
        (BTreeMap::<String, usize>::new(), 0, Duration::ZERO, Duration::ZERO);
    for download in downloads {
        let transfer = download.finish()?;
        if let Err(failure) = transfer.expect(&checksum) {
            *failures.entry(failure.to_string()).or_default() += 1;
        }
        repaired += transfer.repaired().unwrap_or(0);
        longest = longest.max(transfer.time);
        stall = stall.max(transfer.stall);
    }
    if !failures.is_empty() {
        let broken: usize = failures.values().sum();
        return Err(Failure(format!("{broken} of {CLIENTS} broke: {failures:?}")));
    }
    if under_way < CLIENTS / 2 {
        return Err(Failure(format!("only {under_way} were under way until the last move")));
    }
    Ok(format!(
        "{CLIENTS} times 4 MB of {SERVERS} servers in {:.0} s, {moves} moves, 4 to 2 to 4 gateways; {under_way} under way at the last \
         move; longest stall {} ms, {repaired} datagrams repaired",
        longest.as_secs_f64(),
        stall.as_millis()
    ))
}
