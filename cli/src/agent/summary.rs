//! The last line of a command that redirects datagrams.

use packrat_agent::Status;

/// A line about repairs, and about losses here.
pub(super) fn summary(status: &Status) -> String {
    let counters = status.total();
    let refused: u64 = status.services.iter().map(|service| service.refused_datagrams).sum();
    let lost = match refused {
        0 => String::new(),
        _ => {
            format!("; {refused} datagrams refused, as there were as many sockets as there may be")
        }
    };
    format!(
        "{} sessions with gateways; {} datagrams missing: {} repaired in time, {} late, {} given up{lost}",
        counters.sessions,
        counters.holes,
        counters.repaired_in_time,
        counters.repaired_late,
        counters.given_up
    )
}
