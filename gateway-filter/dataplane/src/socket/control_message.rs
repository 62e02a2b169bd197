//! Ancillary data of datagrams (`cmsg(3)`): segment size, ECN mark, local address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ecn::Ecn;

/// Bytes for the ancillary data of one message; enough for all kinds below at once, on IPv4 and
/// IPv6.
const ANCILLARY_BYTES: usize = 128;

/// Room for the ancillary data of one message, aligned for `cmsghdr`.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct ControlBuffer {
    bytes: [u8; ANCILLARY_BYTES],
}

impl ControlBuffer {
    pub(super) const CAPACITY: usize = ANCILLARY_BYTES;

    pub(super) const fn new() -> Self {
        Self { bytes: [0; ANCILLARY_BYTES] }
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }
}

/// The ancillary data of a received message.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Received {
    /// Size of the datagrams that the kernel put together, or `None` for a single one.
    pub(super) segment_size: Option<usize>,
    pub(super) ecn: Ecn,
    pub(super) local: Option<IpAddr>,
}

/// A type that any bytes of its size are a value of: the numbers and addresses of the kernel.
trait Plain: Copy {}

impl Plain for u8 {}
impl Plain for libc::c_int {}
impl Plain for libc::in_pktinfo {}
impl Plain for libc::in6_pktinfo {}

/// The data of one ancillary message.
struct Payload<'a> {
    /// Level and type.
    kind: (libc::c_int, libc::c_int),
    bytes: &'a [u8],
}

impl Payload<'_> {
    /// # Safety
    /// A complete cmsghdr lies at `message`, aligned, and all bytes of its length are
    /// valid.
    #[allow(clippy::unnecessary_cast)] // the length is a shorter number with other C libraries
    unsafe fn of(message: *const libc::cmsghdr) -> Self {
        // SAFETY: the caller vouches for the header. CMSG_LEN is arithmetic only, and the data of
        // a message begins at CMSG_DATA.
        unsafe {
            let kind = ((*message).cmsg_level, (*message).cmsg_type);
            let header = libc::CMSG_LEN(0) as usize;
            let length = ((*message).cmsg_len as usize).saturating_sub(header);
            Self { kind, bytes: std::slice::from_raw_parts(libc::CMSG_DATA(message), length) }
        }
    }

    /// The value at the beginning; `None` when the message is too short for it.
    fn read<T: Plain>(&self) -> Option<T> {
        let bytes = self.bytes.get(..size_of::<T>())?;
        // SAFETY: all bytes of the type are there, and any bytes are a value of the type.
        Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
    }
}

/// Reads the ancillary data of a message that the kernel has just filled in.
///
/// # Safety
/// `header` must have been filled by recvmsg or recvmmsg, and its control buffer must still be
/// valid.
pub(super) unsafe fn parse(header: &libc::msghdr) -> Received {
    let mut received = Received::default();
    // SAFETY: the caller vouches for the header; CMSG_FIRSTHDR and CMSG_NXTHDR stay inside its
    // control buffer.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !message.is_null() {
        // SAFETY: not null, so a complete cmsghdr lies inside the control buffer, which is aligned
        // for it.
        let payload = unsafe { Payload::of(message) };
        match payload.kind {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let size = payload.read::<libc::c_int>();
                received.segment_size =
                    size.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0);
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                // One byte when received.
                if let Some(class) = payload.read::<u8>() {
                    received.ecn = Ecn::from_traffic_class(class);
                }
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                if let Some(class) = payload.read::<libc::c_int>() {
                    received.ecn = Ecn::from_traffic_class((class & 0xff) as u8);
                }
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                if let Some(info) = payload.read::<libc::in_pktinfo>() {
                    let address = Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes());
                    received.local = Some(address.into());
                }
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                if let Some(info) = payload.read::<libc::in6_pktinfo>() {
                    let address = IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr));
                    received.local = Some(address.to_canonical());
                }
            }
            _ => {}
        }
        // SAFETY: as for CMSG_FIRSTHDR.
        message = unsafe { libc::CMSG_NXTHDR(header, message) };
    }
    received
}

/// The ancillary data of a message to be sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outgoing {
    pub(super) segment_size: Option<u16>,
    pub(super) ecn: Ecn,
    /// Source address; needed on a socket that is bound to a wildcard address.
    pub(super) source: Option<IpAddr>,
    /// True if the packet leaves as IPv4 (also from a dual-stack socket), which decides the place
    /// of the mark.
    pub(super) leaves_as_v4: bool,
    /// True if the socket is an IPv6 one, which decides how the source is written.
    pub(super) v6_socket: bool,
}

/// Writes the ancillary data; returns the bytes used.
pub(super) fn write(buffer: &mut ControlBuffer, outgoing: &Outgoing) -> usize {
    let mut writer = Writer { buffer, used: 0 };
    if let Some(size) = outgoing.segment_size {
        writer.push(libc::SOL_UDP, libc::UDP_SEGMENT, size);
    }
    if outgoing.ecn != Ecn::NOT_CAPABLE {
        let class = libc::c_int::from(outgoing.ecn.traffic_class());
        if outgoing.leaves_as_v4 {
            writer.push(libc::IPPROTO_IP, libc::IP_TOS, class);
        } else {
            writer.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class);
        }
    }
    match outgoing.source {
        Some(IpAddr::V4(ip)) if !outgoing.v6_socket => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            writer.push(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        Some(ip) if outgoing.v6_socket => {
            let address = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: address.octets() },
                ipi6_ifindex: 0,
            };
            writer.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
        _ => {}
    }
    writer.used
}

struct Writer<'a> {
    buffer: &'a mut ControlBuffer,
    used: usize,
}

impl Writer<'_> {
    /// Appends one message; leaves it out when there is no room, which [`ANCILLARY_BYTES`] rules out.
    fn push<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: T) {
        let size = size_of::<T>() as libc::c_uint;
        // SAFETY: CMSG_SPACE and CMSG_LEN are arithmetic only.
        let (space, length) = unsafe { (libc::CMSG_SPACE(size) as usize, libc::CMSG_LEN(size)) };
        if self.used + space > ANCILLARY_BYTES {
            debug_assert!(false, "ancillary data exceeds its buffer");
            return;
        }
        // SAFETY: `used + space` is inside the buffer; every earlier message took CMSG_SPACE bytes,
        // so that this one is aligned for cmsghdr as the buffer is.
        unsafe {
            let message = self.buffer.bytes.as_mut_ptr().add(self.used).cast::<libc::cmsghdr>();
            (*message).cmsg_level = level;
            (*message).cmsg_type = kind;
            (*message).cmsg_len = length as _;
            libc::CMSG_DATA(message).cast::<T>().write_unaligned(value);
        }
        self.used += space;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mark that [`parse`] finds in one message whose header gives this length in bytes.
    fn parse_traffic_class(length: usize) -> Ecn {
        let mut buffer = ControlBuffer::new();
        let outgoing = Outgoing { ecn: Ecn::from_traffic_class(3), ..Outgoing::default() };
        let used = write(&mut buffer, &outgoing);
        // SAFETY: zeros are a valid msghdr; the message that was written lies at the beginning of
        // the buffer.
        let header = unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_control = buffer.as_mut_ptr();
            header.msg_controllen = used as _;
            (*libc::CMSG_FIRSTHDR(&raw const header)).cmsg_len =
                libc::CMSG_LEN(length as libc::c_uint) as _;
            header
        };
        // SAFETY: as written above.
        unsafe { parse(&header) }.ecn
    }

    #[test]
    fn a_message_shorter_than_its_kind_is_skipped() {
        assert_eq!(parse_traffic_class(4), Ecn::from_traffic_class(3));
        for length in 0..4 {
            assert_eq!(parse_traffic_class(length), Ecn::NOT_CAPABLE, "{length} bytes");
        }
    }
}
