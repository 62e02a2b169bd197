//! Several gateways and servers, and clients that move from one gateway to another.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use super::balancer::Balancer;
use super::exposure::with;
use crate::command::{Failure, Outcome, until};
use crate::download::{Download, Request};
use crate::suite::{SHOP_NAMESPACE, SMALLEST_FILE, Suite};

/// The gateways of `manifests/gateway-fleet.yaml`.
const FLEET_GATEWAY: &str = "fleet";
/// Number of clients.
const CLIENT_COUNT: usize = 100;
/// Number of servers.
const SERVER_COUNT: usize = 10;
/// Bytes per second of a client: a download of 1 MB outlasts the moves, and all of them take
/// less than half of the far segment.
const CLIENT_RATE: &str = "9k";
/// Clients that connect at the same time.
const PARALLEL_HANDSHAKES: usize = 5;
/// Interval at which the NAT gives all clients other ports.
const MOVE_INTERVAL: Duration = Duration::from_secs(5);
/// Duration of the moves.
const MOVING_TIME: Duration = Duration::from_secs(60);
/// Times after the first move at which the number of gateways changes, and the new number.
const SCALING_STEPS: [(Duration, usize); 2] =
    [(Duration::from_secs(12), 2), (Duration::from_secs(37), 4)];
/// Time between two looks of the balancer at the gateways. Each costs the machine some commands.
const BALANCE_INTERVAL: Duration = Duration::from_secs(1);

/// A hundred downloads, of ten servers through four gateways; all clients' ports change every five
/// seconds for a minute, while the gateways become two and four again. All of them finish, intact.
/// It takes four minutes, and so it is made when it is named.
pub(super) fn moving_clients(suite: &mut Suite) -> Outcome<String> {
    let servers = |suite: &Suite, count: usize| {
        let replicas = format!("--replicas={count}");
        suite.kubectl.output(["scale", "deployment/web", "-n", SHOP_NAMESPACE, &replicas])?;
        suite.rolled_out("deployment/web", SHOP_NAMESPACE)
    };
    servers(suite, SERVER_COUNT)?;
    let outcome = with(suite, "gateway-fleet.yaml", moving);
    balance_by(suite, BalanceBy::AddressAndPort)?;
    servers(suite, 2)?;
    suite.last_mile.rebind(None)?;
    outcome
}

/// The part of a client's address that a balancer's choice follows from, numbered like the kernel's
/// `fib_multipath_hash_policy`.
enum BalanceBy {
    Address = 0,
    AddressAndPort = 1,
}

fn balance_by(suite: &Suite, by: BalanceBy) -> Outcome {
    let script = format!("echo {} >/proc/sys/net/ipv4/fib_multipath_hash_policy", by as u8);
    suite.cluster.router().output(["sh", "-c", &script]).map(drop)
}

fn moving(suite: &mut Suite) -> Outcome<String> {
    // The balancer before the cluster, which is the router, also goes by the client's address.
    balance_by(suite, BalanceBy::Address)?;
    let Some(balancer) = Balancer::before(suite, FLEET_GATEWAY)? else {
        return Ok("not tried: this cluster has no load balancer".to_owned());
    };
    let first = suite.second_client_address().ok_or_else(|| Failure::new("no addresses"))?;
    // Each client has an address from the beginning, as far away ones have.
    suite.last_mile.rebind_each(first)?;
    let mut request = suite.request(SMALLEST_FILE, &format!("{}:443", balancer.address));
    request.options = vec!["--limit-rate".to_owned(), CLIENT_RATE.to_owned()];
    request.connect_limit = Duration::from_secs(120);
    request.limit = Duration::from_secs(600);
    let mut downloads = start_downloads(suite, &request)?;
    let moves = move_clients(suite, &balancer, first)?;
    let mut under_way = 0;
    for download in &mut downloads {
        under_way += usize::from(!download.ended()?);
    }
    // (a gateway may still be on its way)
    until(Duration::from_secs(60), "a way to all gateways", || balancer.follow(suite))?;
    let checksum = suite.checksum(SMALLEST_FILE)?;
    let (mut failures, mut assisted, mut repaired) = (BTreeMap::<String, usize>::new(), 0, 0);
    let (mut longest, mut stalls) = (Duration::ZERO, Vec::new());
    for download in downloads {
        let transfer = download.finish()?;
        if let Err(failure) = transfer.expect(&checksum) {
            *failures.entry(failure.to_string()).or_default() += 1;
        }
        assisted += usize::from(transfer.repaired().is_some());
        repaired += transfer.repaired().unwrap_or(0);
        longest = longest.max(transfer.time);
        stalls.push(transfer.stall.as_millis());
    }
    stalls.sort_unstable();
    if !failures.is_empty() {
        let broken: usize = failures.values().sum();
        return Err(Failure(format!(
            "{broken} of {CLIENT_COUNT} broke, {under_way} were under way at the last move: {failures:?}; {}",
            passed_on(suite)?
        )));
    }
    if under_way < CLIENT_COUNT / 2 {
        return Err(Failure(format!("only {under_way} were under way until the last move")));
    }
    Ok(format!(
        "{CLIENT_COUNT} times 1 MB, 9 KiB/s each, of {SERVER_COUNT} servers in {:.0} s, {moves} moves of all, 4 to 2 to 4 gateways; {under_way} under way at \
         the last move, {assisted} assisted at the end, {repaired} datagrams repaired; longest stall of a download: {} ms in the \
         median, {} ms at most; {}",
        longest.as_secs_f64(),
        stalls[stalls.len() / 2],
        stalls[stalls.len() - 1],
        passed_on(suite)?,
    ))
}

/// Starts the downloads of all clients.
fn start_downloads(suite: &Suite, request: &Request) -> Outcome<Vec<Download>> {
    // Moving connections are tested here, not handshakes: few at a time.
    let mut downloads: Vec<Download> = Vec::new();
    while downloads.len() < CLIENT_COUNT {
        let (group, first) =
            (PARALLEL_HANDSHAKES.min(CLIENT_COUNT - downloads.len()), downloads.len());
        for _ in 0..group {
            downloads.push(suite.start_download(request)?);
        }
        for download in &mut downloads[first..] {
            download.wait_for(1)?;
        }
    }
    Ok(downloads)
}

/// Moves all clients again and again, while the number of gateways changes. Returns the number of
/// moves.
fn move_clients(suite: &mut Suite, balancer: &Balancer, first: Ipv4Addr) -> Outcome<u32> {
    let (started, mut moves, mut scales) = (Instant::now(), 0_u32, SCALING_STEPS.iter().peekable());
    while started.elapsed() < MOVING_TIME {
        if started.elapsed() >= MOVE_INTERVAL * moves {
            suite.last_mile.rebind_each(first)?;
            moves += 1;
        }
        if let Some((_, count)) = scales.next_if(|(at, _)| started.elapsed() >= *at) {
            let patch = serde_json::json!({ "spec": { "workload": { "replicas": count } } });
            suite.patch_gateway(FLEET_GATEWAY, &patch)?;
        }
        balancer.follow(suite)?;
        thread::sleep(BALANCE_INTERVAL);
    }
    Ok(moves)
}

/// Clients that have come to the gateways that run now from others.
fn passed_on(suite: &Suite) -> Outcome<String> {
    let pods = suite.get(
        SHOP_NAMESPACE,
        &["pods", "-l", &format!("packrat.dev/edge-gateway={FLEET_GATEWAY}")],
    )?;
    let names: Vec<&str> = pods["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|pod| pod["metadata"]["name"].as_str())
        .collect();
    let sum = |metric: &str| -> Outcome<f64> {
        names.iter().map(|name| suite.metric(name, &format!("packrat_{metric}_total"))).sum()
    };
    Ok(format!(
        "gateways that are there at the end: {} sessions relayed to another gateway, {} with its ticket; {} datagrams \
         waited for a client that had moved, {} in vain",
        sum("sessions_relayed")?,
        sum("sessions_taken_over")?,
        sum("datagrams_waited")?,
        sum("datagrams_waited_in_vain")?,
    ))
}
