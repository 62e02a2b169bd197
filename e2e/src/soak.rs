//! Random faults for a long time, after which nothing may be left over: memory, descriptors,
//! sessions, cached bytes.

use std::time::{Duration, Instant};

use crate::claims::{HARMLESS_FAULTS, let_gateway_be_set, process_of};
use crate::command::{Failure, Outcome, until};
use crate::suite::{SHOP_GATEWAY, SHOP_NAMESPACE, Suite};

/// Permitted growth of resident memory in kilobytes: allocators keep some of it.
const MEMORY_GROWTH: u64 = 48 * 1024;
/// Permitted growth of the number of descriptors.
const DESCRIPTOR_GROWTH: u64 = 8;
/// Time after which idle sessions end in the gateway's default configuration, and a margin.
const IDLE_TIME: Duration = Duration::from_secs(180);

/// The resources that a gateway uses.
#[derive(Debug, Clone, Copy)]
struct Usage {
    resident_kilobytes: u64,
    descriptors: u64,
}

/// Faults in an order that follows from `seed`, for `time`; returns a summary, or everything that
/// went wrong.
///
/// # Errors
/// A download did not survive its fault, or something is left over at the end.
pub(crate) fn soak(suite: &mut Suite, time: Duration, seed: u64) -> Outcome<String> {
    let_gateway_be_set(suite)?;
    wait_until_idle(suite)?;
    let before = usage(suite)?;
    let (started, mut state, mut done) = (Instant::now(), seed | 1, Vec::new());
    while started.elapsed() < time {
        // xorshift64: the order must only follow from the seed.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let fault = &HARMLESS_FAULTS[(state % HARMLESS_FAULTS.len() as u64) as usize];
        let text = (fault.run)(suite).map_err(|error| {
            Failure(format!(
                "seed {seed}, fault {} after {} others: {}: {error}",
                fault.name,
                done.len(),
                fault.name
            ))
        })?;
        println!("  {:4.0} s {}: {text}", started.elapsed().as_secs_f64(), fault.name);
        done.push(fault.name);
    }
    wait_until_idle(suite)?;
    let after = usage(suite)?;
    let text = format!(
        "seed {seed}: {} faults; resident memory {} to {} kB, descriptors {} to {}, no sessions, no cached bytes",
        done.len(),
        before.resident_kilobytes,
        after.resident_kilobytes,
        before.descriptors,
        after.descriptors,
    );
    let grown = after.resident_kilobytes > before.resident_kilobytes + MEMORY_GROWTH
        || after.descriptors > before.descriptors + DESCRIPTOR_GROWTH;
    if grown { Err(Failure(text)) } else { Ok(text) }
}

/// Waits until the gateway has no session and no cached byte.
fn wait_until_idle(suite: &Suite) -> Outcome {
    until(IDLE_TIME, "no session and no cached byte are left", || {
        for name in ["packrat_sessions", "packrat_sessions_assisted", "packrat_cache_bytes"] {
            let value = metric(suite, name)?;
            if value != 0.0 {
                return Err(Failure(format!("{name} is {value}")));
            }
        }
        Ok(())
    })
}

/// Sum over all labels of a metric of the gateway.
fn metric(suite: &Suite, name: &str) -> Outcome<f64> {
    let (pod, _) = suite.gateway_pod(SHOP_GATEWAY)?;
    suite.metric(&pod, name)
}

fn usage(suite: &Suite) -> Outcome<Usage> {
    let (pod, node) = suite.gateway_pod(SHOP_GATEWAY)?;
    let process = process_of(suite, SHOP_NAMESPACE, &pod, &node, "envoy")?;
    let script = format!(
        "sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/{process}/status; ls /proc/{process}/fd | wc -l"
    );
    let text = suite.cluster.inside(&node).output(["sh", "-c", &script])?;
    let mut numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(resident_kilobytes), Some(descriptors)) => {
            Ok(Usage { resident_kilobytes, descriptors })
        }
        _ => Err(Failure(format!("unexpected: {text}"))),
    }
}
