//! The same datagrams to many receivers, with one system call for dozens of them.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use socket2::SockAddr;

use super::{
    Call, Destination, GsoBatch, MAXIMUM_MESSAGES, Offload, SendReport, Sender, group, send_groups,
    send_messages, set_name,
};

impl Sender {
    /// Sends batches, in order, to each destination. `report_of` is called with the outcome,
    /// destination by destination, in no certain order; an unreachable destination does not affect
    /// the others.
    pub fn send_to_each(
        &mut self,
        socket: BorrowedFd<'_>,
        offload: &Offload,
        destinations: &[Destination],
        batches: &[GsoBatch<'_>],
        mut report_of: impl FnMut(&Destination, SendReport),
    ) {
        self.groups.clear();
        group(batches, &mut self.groups);
        let at_once = MAXIMUM_MESSAGES.checked_div(self.groups.len()).unwrap_or_default();
        if at_once < 2 || !offload.is_enabled() {
            for destination in destinations {
                report_of(destination, self.send(socket, offload, destination, batches));
            }
            return;
        }
        let groups = std::mem::take(&mut self.groups);
        // All parts of a destination but the address are the same within a call.
        let alike = |one: &Destination, other: &Destination| {
            (one.source, one.family, one.leaves_as_v4)
                == (other.source, other.family, other.leaves_as_v4)
        };
        for destinations in destinations.chunk_by(alike).flat_map(|alike| alike.chunks(at_once)) {
            send_chunk(
                socket,
                offload,
                destinations,
                batches,
                &groups,
                &mut self.call,
                &mut report_of,
            );
        }
        self.groups = groups;
    }
}

/// The report of groups that have left as a whole.
#[inline]
fn report_of_sent(batches: &[GsoBatch<'_>], groups: &[Range<usize>]) -> SendReport {
    let mut report = SendReport::default();
    for batch in groups.iter().filter_map(|range| batches.get(range.clone())).flatten() {
        report.sent(*batch);
    }
    report
}

fn send_chunk(
    socket: BorrowedFd<'_>,
    offload: &Offload,
    destinations: &[Destination],
    batches: &[GsoBatch<'_>],
    groups: &[Range<usize>],
    call: &mut Call,
    report_of: &mut impl FnMut(&Destination, SendReport),
) {
    let Some(like) = destinations.first() else { return };
    let names: Vec<Option<SockAddr>> = destinations.iter().map(Destination::name).collect();
    // The messages of one destination; the others have the same but for the name.
    let Call { headers, .. } = call.fill(like, None, batches, groups);
    for _ in 1..destinations.len() {
        headers.extend_from_within(..groups.len());
    }
    for (headers, name) in headers.chunks_mut(groups.len()).zip(&names) {
        headers.iter_mut().for_each(|message| set_name(&mut message.msg_hdr, name.as_ref()));
    }

    let (mut done, mut reported) = (0, 0);
    while done < headers.len() {
        // SAFETY: all headers were filled above; names, vectors, data and controls outlive the call.
        match unsafe { send_messages(socket, headers, done) } {
            Ok(sent) => done += sent,
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(_) => {
                // The rest of this destination is sent alone: then each error can be identified.
                let (place, group) = (done / groups.len(), done % groups.len());
                let (sent, rest) = groups.split_at(group);
                let mut report = report_of_sent(batches, sent);
                if let Some(destination) = destinations.get(place) {
                    send_groups(
                        socket,
                        offload,
                        destination,
                        batches,
                        rest,
                        &mut Call::default(),
                        &mut report,
                    );
                    for before in destinations.get(reported..place).unwrap_or_default() {
                        report_of(before, report_of_sent(batches, groups));
                    }
                    report_of(destination, report);
                }
                reported = place + 1;
                done = reported * groups.len();
            }
        }
    }
    for destination in destinations.get(reported..).unwrap_or_default() {
        report_of(destination, report_of_sent(batches, groups));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Ecn, Family, bind_reuse_port};
    use super::super::WhenFull;
    use super::*;
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn receivers_get_all_in_order_despite_unreachable_ones() {
        let sender = bind_reuse_port("127.0.0.1:0".parse().unwrap()).unwrap();
        let receivers: Vec<UdpSocket> =
            (0..150).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let mut addresses: Vec<SocketAddr> =
            receivers.iter().map(|receiver| receiver.local_addr().unwrap()).collect();
        // No datagram can be sent to port 0.
        for place in [0, 70, 152] {
            addresses.insert(place, ([127, 0, 0, 1], 0).into());
        }
        let destinations: Vec<Destination> = addresses
            .into_iter()
            .map(|address| Destination {
                address: Some(address),
                source: None,
                family: Family::V4,
                leaves_as_v4: true,
                when_full: WhenFull::Drop,
            })
            .collect();
        let (long, short) = ([7u8; 2500], [8u8; 30]);
        // Three datagrams put together, and one with another mark, so that each receiver takes two
        // messages.
        let batches = [
            GsoBatch::plain(&long, 1000, Ecn::NOT_CAPABLE),
            GsoBatch::single(&short, Ecn::from_traffic_class(1)),
        ];
        let (mut whole, mut failed) = (0, 0);
        Sender::default().send_to_each(
            sender.as_fd(),
            &Offload::default(),
            &destinations,
            &batches,
            |_, report| match report.error {
                None => {
                    assert_eq!((report.datagrams, report.bytes, report.dropped), (4, 2530, 0));
                    whole += 1;
                }
                Some(_) => {
                    assert_eq!((report.datagrams, report.dropped + report.too_large), (0, 4));
                    failed += 1;
                }
            },
        );
        assert_eq!((whole, failed), (150, 3));
        for receiver in &receivers {
            receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut buffer = [0; 4000];
            let lengths = [(); 4].map(|()| receiver.recv(&mut buffer).unwrap());
            assert_eq!(lengths, [1000, 1000, 500, 30]);
        }
    }
}
