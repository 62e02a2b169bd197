//! Sending many datagrams with one system call, put together for segmentation offload (GSO) if they
//! allow it.

mod fan_out;
mod singles;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use packrat_wire::number::{NUMBER_LENGTH, NumberHeader};
use socket2::SockAddr;

use super::control_message::{self, ControlBuffer, Outgoing};
use super::ecn::Ecn;
use super::options::Family;

/// Most segments of one GSO send (UDP_MAX_SEGMENTS of older kernels).
const MAXIMUM_SEGMENTS: usize = 64;
/// Most bytes of one send: the largest UDP payload over IPv4.
const MAXIMUM_BYTES: usize = 65_507;
/// Most messages of one `sendmmsg` call.
const MAXIMUM_MESSAGES: usize = 64;
/// Longest time that a full socket buffer may hold up a thread before datagrams are dropped.
const FULL_BUFFER_WAIT_MILLISECONDS: libc::c_int = 1;

/// Datagrams of the same size (the last may be shorter), one after the other in memory: they can
/// leave with one system call.
#[derive(Debug, Clone, Copy)]
pub struct GsoBatch<'a> {
    /// The datagrams.
    pub data: &'a [u8],
    /// Bytes of each datagram but the last.
    pub segment_size: usize,
    /// ECN mark of the datagrams.
    pub ecn: Ecn,
    /// The number in front of each of them; empty: they go as they are.
    pub numbers: &'a [NumberHeader],
}

impl<'a> GsoBatch<'a> {
    /// Datagrams as they are.
    pub const fn plain(data: &'a [u8], segment_size: usize, ecn: Ecn) -> Self {
        Self { data, segment_size, ecn, numbers: &[] }
    }

    /// Batch of one datagram.
    pub const fn single(data: &'a [u8], ecn: Ecn) -> Self {
        Self::plain(data, data.len(), ecn)
    }

    /// The datagrams with their boundaries; an empty batch is one datagram without payload.
    pub fn datagrams(self) -> impl Iterator<Item = &'a [u8]> {
        let empty = self.data.is_empty().then_some(self.data);
        empty.into_iter().chain(self.data.chunks(self.segment_size.max(1)))
    }

    /// The number of datagrams in all of `batches`.
    pub fn count(batches: &[Self]) -> u64 {
        batches.iter().map(|batch| batch.segments() as u64).sum()
    }

    pub(crate) fn segments(&self) -> usize {
        self.data.len().div_ceil(self.segment_size.max(1)).max(1)
    }

    /// Datagrams of this size that one send takes with a number in front of each.
    pub(crate) fn most_numbered(&self) -> usize {
        (MAXIMUM_BYTES / (self.segment_size + NUMBER_LENGTH)).clamp(1, MAXIMUM_SEGMENTS)
    }

    fn is_numbered(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// Bytes that are sent: the datagrams, and the numbers in front.
    pub(crate) fn bytes(&self) -> usize {
        self.data.len() + self.numbers.len() * NUMBER_LENGTH
    }

    /// Bytes of each sent datagram but the last.
    fn sent_segment_size(&self) -> usize {
        self.segment_size + if self.is_numbered() { NUMBER_LENGTH } else { 0 }
    }

    /// Slices of memory that it is sent from.
    fn vectors(&self) -> usize {
        if self.is_numbered() { 2 * self.segments() } else { 1 }
    }

    /// Adds these slices.
    fn add_vectors(&self, vectors: &mut Vec<libc::iovec>) {
        if self.is_numbered() {
            for (number, datagram) in self.numbers.iter().zip(self.datagrams()) {
                vectors.extend([vector(number), vector(datagram)]);
            }
        } else {
            vectors.push(vector(self.data));
        }
    }

    /// Batches of one datagram each.
    fn singles(self) -> impl Iterator<Item = Self> {
        self.datagrams().enumerate().map(move |(index, datagram)| Self {
            numbers: self.numbers.get(index..=index).unwrap_or_default(),
            ..Self::single(datagram, self.ecn)
        })
    }

    fn ends_full(&self) -> bool {
        !self.data.is_empty() && self.data.len().is_multiple_of(self.segment_size.max(1))
    }
}

/// The treatment of datagrams when the buffer of a socket is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Drop the datagrams, as a full queue does.
    Drop,
    /// Wait a millisecond for room, once per call; only for threads without other tasks.
    Wait,
}

/// The way to a receiver.
#[derive(Debug, Clone, Copy)]
pub struct Destination {
    /// The receiver, or `None` on a connected socket.
    pub address: Option<SocketAddr>,
    /// The source address, for sockets bound to a wildcard address.
    pub source: Option<IpAddr>,
    /// The family of the socket.
    pub family: Family,
    /// True if the packets leave as IPv4.
    pub leaves_as_v4: bool,
    /// The treatment of datagrams when the socket's buffer is full.
    pub when_full: WhenFull,
}

impl Destination {
    /// The receiver as the socket names it.
    fn name(&self) -> Option<SockAddr> {
        self.address.map(|address| SockAddr::from(self.family.address(address)))
    }
}

/// A socket's use of segmentation offload; switched off when the kernel or the device
/// refuses.
#[derive(Debug)]
pub struct Offload(AtomicBool);

impl Default for Offload {
    fn default() -> Self {
        Self(AtomicBool::new(true))
    }
}

impl Offload {
    /// True if it is on.
    pub fn is_enabled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Switches it off for good.
    pub fn disable(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The fate of the datagrams of one call.
#[derive(Debug, Default)]
pub struct SendReport {
    /// Datagrams handed to the kernel.
    pub datagrams: u64,
    /// Payload bytes of the datagrams.
    pub bytes: u64,
    /// Datagrams that were not sent; datagrams that are too large are not counted here.
    pub dropped: u64,
    /// Datagrams that exceed the MTU of the outgoing link.
    pub too_large: u64,
    /// ICMP errors of earlier datagrams that the socket reported.
    pub icmp_errors: u64,
    /// The shortest datagram that the link did not carry with the number in front. It was sent
    /// without.
    pub number_refused: Option<usize>,
    /// True if segmentation offload was refused and is off from now on.
    pub offload_refused: bool,
    /// The last error that cost a datagram.
    pub error: Option<io::Error>,
}

impl SendReport {
    fn sent(&mut self, batch: GsoBatch<'_>) {
        self.datagrams += batch.segments() as u64;
        self.bytes += batch.bytes() as u64;
    }

    fn failed(&mut self, datagrams: usize, error: io::Error) {
        if error.raw_os_error() == Some(libc::EMSGSIZE) {
            self.too_large += datagrams as u64;
        } else {
            self.dropped += datagrams as u64;
        }
        self.error = Some(error);
    }
}

/// Memory for building `sendmmsg` calls; reused. Holds no data between calls.
#[derive(Debug, Default)]
pub struct Sender {
    /// Batches in each message of the call.
    groups: Vec<Range<usize>>,
    call: Call,
    /// Takes the datagrams, instead of the kernel.
    #[cfg(feature = "virtual-time")]
    outlet: Option<super::outlet::Outlet>,
}

/// The arguments of the system call, for as many messages as there are.
#[derive(Default)]
struct Call {
    vectors: Vec<libc::iovec>,
    controls: Vec<ControlBuffer>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers in `vectors` and `headers` are written anew before each system call, and not
// read afterwards.
unsafe impl Send for Call {}

impl std::fmt::Debug for Call {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Call(..)")
    }
}

impl Sender {
    /// A sender to an outlet instead of the kernel.
    #[cfg(feature = "virtual-time")]
    pub(crate) fn to(outlet: &super::outlet::Outlet) -> Self {
        Self { outlet: Some(outlet.clone()), ..Self::default() }
    }

    /// Sends batches in order. Every datagram ends up in exactly one number of the report.
    pub fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        offload: &Offload,
        destination: &Destination,
        batches: &[GsoBatch<'_>],
    ) -> SendReport {
        let mut report = SendReport::default();
        #[cfg(feature = "virtual-time")]
        if let Some(outlet) = &self.outlet {
            batches.iter().for_each(|batch| report.sent(*batch));
            outlet.take(socket, destination.address, batches);
            return report;
        }
        if !offload.is_enabled() {
            send_one_by_one(socket, destination, batches, &mut self.call, &mut report);
            return report;
        }
        self.groups.clear();
        group(batches, &mut self.groups);
        let groups = std::mem::take(&mut self.groups);
        for groups in groups.chunks(MAXIMUM_MESSAGES) {
            send_groups(socket, offload, destination, batches, groups, &mut self.call, &mut report);
        }
        self.groups = groups;
        report
    }

    /// Sends one datagram without a mark on a connected socket: the short path for single
    /// datagrams.
    pub fn send_connected(&self, socket: BorrowedFd<'_>, datagram: &[u8]) -> SendReport {
        #[cfg(feature = "virtual-time")]
        if let Some(outlet) = &self.outlet {
            let batch = GsoBatch::single(datagram, Ecn::NOT_CAPABLE);
            let mut report = SendReport::default();
            report.sent(batch);
            outlet.take(socket, None, &[batch]);
            return report;
        }
        send_connected(socket, datagram)
    }
}

/// Puts neighbouring batches together: all segments of a GSO send have the same size, only the last
/// may be shorter.
fn group(batches: &[GsoBatch<'_>], groups: &mut Vec<Range<usize>>) {
    let mut start = 0;
    while let Some(first) = batches.get(start) {
        let (mut end, mut bytes, mut segments) = (start + 1, first.bytes(), first.segments());
        let mut open = first.ends_full();
        while open
            && let Some(next) = batches.get(end)
            && next.ecn == first.ecn
            && next.is_numbered() == first.is_numbered()
            && !next.data.is_empty()
            && (next.segment_size == first.segment_size
                || (next.segments() == 1 && next.data.len() <= first.segment_size))
            && bytes + next.bytes() <= MAXIMUM_BYTES
            && segments + next.segments() <= MAXIMUM_SEGMENTS
        {
            bytes += next.bytes();
            segments += next.segments();
            open = next.data.len().is_multiple_of(first.segment_size);
            end += 1;
        }
        groups.push(start..end);
        start = end;
    }
}

impl Call {
    /// A header for each of these neighbouring groups. The headers point into the call itself,
    /// `batches` and `name`: they are of use as long as none of these changes.
    fn fill(
        &mut self,
        destination: &Destination,
        name: Option<&SockAddr>,
        batches: &[GsoBatch<'_>],
        groups: &[Range<usize>],
    ) -> &mut Self {
        let first = groups.first().map_or(0, |group| group.start);
        let last = groups.last().map_or(0, |group| group.end);
        let Self { vectors, controls, headers } = self;
        vectors.clear();
        for batch in batches.get(first..last).unwrap_or_default() {
            batch.add_vectors(vectors);
        }
        controls.resize(controls.len().max(groups.len()), ControlBuffer::new());
        headers.clear();
        let mut before = 0;
        for (range, control) in groups.iter().zip(controls) {
            let members = batches.get(range.clone()).unwrap_or_default();
            let Some(lead) = members.first() else { continue };
            let several = members.len() > 1 || lead.segments() > 1;
            let segment_size =
                if several { u16::try_from(lead.sent_segment_size()).ok() } else { None };
            let vectors_of_group: usize = members.iter().map(GsoBatch::vectors).sum();
            let of_group = vectors.get(before..before + vectors_of_group).unwrap_or_default();
            before += vectors_of_group;
            let mut message = message(destination, *lead, segment_size, of_group, control);
            set_name(&mut message.msg_hdr, name);
            headers.push(message);
        }
        self
    }
}

/// A message of the contents of `vectors`, without its receiver's name; `lead` is the first of the
/// group. The header points into `vectors` and `control`.
fn message(
    destination: &Destination,
    lead: GsoBatch<'_>,
    segment_size: Option<u16>,
    vectors: &[libc::iovec],
    control: &mut ControlBuffer,
) -> libc::mmsghdr {
    // SAFETY: mmsghdr is plain data for which all-zero bytes are valid.
    let mut message = unsafe { std::mem::zeroed::<libc::mmsghdr>() };
    let outgoing = Outgoing {
        segment_size,
        ecn: lead.ecn,
        source: destination.source,
        leaves_as_v4: destination.leaves_as_v4,
        v6_socket: destination.family == Family::V6,
    };
    let used = control_message::write(control, &outgoing);
    let header = &mut message.msg_hdr;
    header.msg_iov = vectors.as_ptr().cast_mut();
    header.msg_iovlen = vectors.len() as _;
    if used > 0 {
        header.msg_control = control.as_mut_ptr();
        header.msg_controllen = used as _;
    }
    message
}

fn vector(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

fn set_name(header: &mut libc::msghdr, name: Option<&SockAddr>) {
    if let Some(name) = name {
        header.msg_name = name.as_ptr().cast_mut().cast();
        header.msg_namelen = name.len();
    }
}

/// Hands the messages from number `first` on to the kernel, without waiting for room. Returns how many
/// it has taken: at least one.
///
/// # Safety
/// All that the headers point to must live until the call is over. The kernel only reads it.
unsafe fn send_messages(
    socket: BorrowedFd<'_>,
    headers: &mut [libc::mmsghdr],
    first: usize,
) -> io::Result<usize> {
    let headers = headers.get_mut(first..).unwrap_or_default();
    // SAFETY: a slice of headers with its length; the caller answers for what they point to.
    let taken = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            headers.len() as libc::c_uint,
            libc::MSG_DONTWAIT as _,
        )
    };
    match usize::try_from(taken) {
        Ok(taken @ 1..) => Ok(taken),
        _ => Err(io::Error::last_os_error()),
    }
}

fn send_groups(
    socket: BorrowedFd<'_>,
    offload: &Offload,
    destination: &Destination,
    batches: &[GsoBatch<'_>],
    groups: &[Range<usize>],
    call: &mut Call,
    report: &mut SendReport,
) {
    let address = destination.name();
    let Call { headers, .. } = call.fill(destination, address.as_ref(), batches, groups);
    let mut done = 0;
    let (mut waited, mut retried) = (false, false);
    while done < groups.len() {
        // SAFETY: the headers were filled above; names, vectors, data and controls outlive the call.
        let error = match unsafe { send_messages(socket, headers, done) } {
            Ok(sent) => {
                for batch in groups
                    .iter()
                    .skip(done)
                    .take(sent)
                    .flat_map(|range| batches.get(range.clone()))
                    .flatten()
                {
                    report.sent(*batch);
                }
                done += sent;
                retried = false;
                continue;
            }
            Err(error) => error,
        };
        let members =
            groups.get(done).and_then(|range| batches.get(range.clone())).unwrap_or_default();
        let datagrams: usize = members.iter().map(GsoBatch::segments).sum();
        match error.raw_os_error() {
            Some(libc::EINTR) => continue,
            Some(libc::EAGAIN) if destination.when_full == WhenFull::Wait && !waited => {
                waited = true;
                wait_writable(socket);
                continue;
            }
            Some(code) if is_icmp_error(code) && destination.address.is_none() && !retried => {
                // The error belongs to an earlier datagram; this one was not sent yet.
                report.icmp_errors += 1;
                retried = true;
                continue;
            }
            // Either this datagram is too large, or a router reported that of an earlier one: the
            // second try shows which.
            Some(libc::EMSGSIZE) if datagrams == 1 && destination.address.is_none() && !retried => {
                retried = true;
                continue;
            }
            _ => send_refused(socket, offload, destination, members, error, report),
        }
        done += 1;
        retried = false;
    }
}

fn wait_writable(socket: BorrowedFd<'_>) {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one valid pollfd. The result does not matter: the send that follows finds out.
    unsafe { libc::poll(&raw mut poll, 1, FULL_BUFFER_WAIT_MILLISECONDS) };
}

/// Errors that a connected socket reports about an earlier datagram.
pub(crate) const fn is_icmp_error(code: i32) -> bool {
    matches!(
        code,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENOPROTOOPT
            | libc::EPROTO
    )
}

fn send_connected(socket: BorrowedFd<'_>, datagram: &[u8]) -> SendReport {
    let mut report = SendReport::default();
    for attempt in 0..3 {
        // SAFETY: pointer and length come from a slice that outlives the call.
        let result = unsafe {
            libc::send(
                socket.as_raw_fd(),
                datagram.as_ptr().cast(),
                datagram.len(),
                libc::MSG_DONTWAIT,
            )
        };
        if result >= 0 {
            report.sent(GsoBatch::single(datagram, Ecn::NOT_CAPABLE));
            return report;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) if attempt < 2 => {}
            // Either this datagram is too large, or a router reported that of an earlier one: the
            // next try shows which.
            Some(libc::EMSGSIZE) if attempt < 1 => {}
            Some(code) if is_icmp_error(code) && attempt < 2 => report.icmp_errors += 1,
            _ => {
                report.failed(1, error);
                return report;
            }
        }
    }
    report
}

/// Sends the datagrams of a refused message one by one, or a numbered one without its number;
/// reports them as failed if the error has another reason.
fn send_refused(
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
fn send_one_by_one(
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

#[cfg(test)]
mod tests;
