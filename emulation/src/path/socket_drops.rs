//! Datagrams that the kernel dropped at the path's own sockets.
//!
//! Such a loss is invisible to the link's counters and invalidates a measurement.

use std::fs;

/// Sum of the drop counters of all UDP sockets that are bound to one of `ports`, as `/proc/net/udp`
/// shows them.
///
/// Zero if there is no such file.
pub(crate) fn socket_drops(ports: &[u16]) -> u64 {
    ["/proc/net/udp", "/proc/net/udp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .map(|table| table.lines().skip(1).filter_map(|line| drops_of(line, ports)).sum::<u64>())
        .sum()
}

/// The last column of a line whose local port is among `ports`.
fn drops_of(line: &str, ports: &[u16]) -> Option<u64> {
    let mut columns = line.split_ascii_whitespace();
    let (_, port) = columns.nth(1)?.rsplit_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    ports.contains(&port).then(|| columns.next_back()?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_table() {
        let line = "  412: 0100007F:1F90 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 \
                    52344 2 0000000000000000 17";
        assert_eq!(drops_of(line, &[8080]), Some(17));
        assert_eq!(drops_of(line, &[8081]), None);
        assert_eq!(drops_of("  sl  local_address", &[8080]), None);
    }
}
