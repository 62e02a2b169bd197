//! Sending again, in another form, what the kernel has refused.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use super::{Call, Destination, GsoBatch, MAXIMUM_MESSAGES, Offload, SendReport, send_groups};

/// Sends the datagrams of a refused message one by one, or a numbered one without its number;
/// reports them as failed if the error has another reason.
pub(super) fn send_refused(
    socket: BorrowedFd<'_>,
    offload: &Offload,
    destination: &Destination,
    members: &[GsoBatch<'_>],
    error: io::Error,
    report: &mut SendReport,
) {
    let datagrams: usize = members.iter().map(GsoBatch::segments).sum();
    match error.raw_os_error() {
        Some(code) if datagrams > 1 && is_offload_refusal(code) => {
            if matches!(code, libc::EIO | libc::EOPNOTSUPP | libc::ENOPROTOOPT) {
                offload.disable();
                report.offload_refused = true;
            }
            send_one_by_one(socket, destination, members, &mut Call::default(), report);
        }
        Some(libc::EMSGSIZE)
            if let [numbered] = members
                && numbered.is_numbered() =>
        {
            let length = numbered.data.len();
            report.number_refused = report.number_refused.map(|it| it.min(length)).or(Some(length));
            let plain = GsoBatch { numbers: &[], ..*numbered };
            send_one_by_one(socket, destination, &[plain], &mut Call::default(), report);
        }
        _ => report.failed(datagrams, error),
    }
}

/// The path without segmentation offload.
pub(super) fn send_one_by_one(
    socket: BorrowedFd<'_>,
    destination: &Destination,
    batches: &[GsoBatch<'_>],
    call: &mut Call,
    report: &mut SendReport,
) {
    // An offload that is "on" for groups of one datagram never asks for segmentation.
    let never_segments = Offload::default();
    let singles: Vec<GsoBatch<'_>> = batches.iter().flat_map(|batch| batch.singles()).collect();
    let groups: Vec<Range<usize>> = (0..singles.len()).map(|index| index..index + 1).collect();
    for groups in groups.chunks(MAXIMUM_MESSAGES) {
        send_groups(socket, &never_segments, destination, &singles, groups, call, report);
    }
}

/// Errors with which the kernel refuses a GSO send; EINVAL and EMSGSIZE also mean a segment above
/// the MTU.
const fn is_offload_refusal(code: i32) -> bool {
    matches!(code, libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP | libc::ENOPROTOOPT)
}
