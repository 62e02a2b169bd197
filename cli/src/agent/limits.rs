//! How much a forwarding process may open.

use packrat_agent::Limits;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Every flow needs a descriptor.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    // With fewer there are fewer flows.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Descriptors that a forwarding process has besides its flows'.
pub(crate) const OTHER_DESCRIPTORS: u64 = 64;

/// The limits of a command's agent: as many flows as `wished`, and as there are descriptors, one
/// for each. `others`: descriptors for other things.
pub(crate) fn limits(command: &str, wished: Option<u32>, others: u64) -> Limits {
    let defaults = Limits::default();
    let wished = wished.map_or(defaults.flows, |flows| flows as usize);
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // If there are few, the other things have a quarter.
    let possible = descriptors - others.min(descriptors / 4);
    let possible = usize::try_from(possible).unwrap_or(usize::MAX);
    let flows = possible.clamp(1, wished);
    if flows < wished {
        tell!(
            "packrat {command}: {descriptors} descriptors are enough for {flows} sockets of programs or hosts, not for \
             {wished}: raise the limit (ulimit -n)"
        );
    }
    // Another machine cannot keep all others out.
    Limits { flows, source_flows: (flows / 4).max(1), ..defaults }
}
