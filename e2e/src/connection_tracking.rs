//! Makes a network namespace forget all its flows, as `conntrack --flush` does, including their
//! address translation.

use std::io::{Error, Read, Result, Write};

use socket2::{Domain, Protocol, Socket, Type};

/// `AF_NETLINK`.
const NETLINK_FAMILY: i32 = 16;
/// `NETLINK_NETFILTER`.
const NETFILTER_PROTOCOL: i32 = 12;
/// `NFNL_SUBSYS_CTNETLINK`, and its `IPCTNL_MSG_CT_DELETE`, which without attributes means
/// everything.
const DELETE_TYPE: u16 = 1 << 8 | 2;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const REQUEST_FLAGS: u16 = 1 | 4;
/// `NLMSG_ERROR`: type of the answer, also when all is well.
const ANSWER_TYPE: u16 = 2;
/// Bytes of `nlmsghdr` and of `nfgenmsg`.
const MESSAGE_BYTES: u32 = 16 + 4;

/// Forgets all flows of this network namespace.
///
/// # Errors
/// The kernel refuses. This needs root.
pub(crate) fn flush() -> Result<()> {
    let mut socket = Socket::new(
        Domain::from(NETLINK_FAMILY),
        Type::RAW,
        Some(Protocol::from(NETFILTER_PROTOCOL)),
    )?;
    let mut request = Vec::new();
    request.extend_from_slice(&MESSAGE_BYTES.to_ne_bytes());
    request.extend_from_slice(&DELETE_TYPE.to_ne_bytes());
    request.extend_from_slice(&REQUEST_FLAGS.to_ne_bytes());
    // Sequence number, sender; then any family, version 0, no resource.
    request.extend_from_slice(&[0; 4 + 4 + 4]);
    socket.write_all(&request)?;
    let mut answer = [0; 256];
    let length = socket.read(&mut answer)?;
    let (header, rest) = answer[..length].split_at(length.min(16));
    let kind = header.get(4..6).and_then(|bytes| Some(u16::from_ne_bytes(bytes.try_into().ok()?)));
    let code = rest.get(..4).and_then(|bytes| Some(i32::from_ne_bytes(bytes.try_into().ok()?)));
    match (kind, code) {
        (Some(ANSWER_TYPE), Some(0)) => Ok(()),
        (Some(ANSWER_TYPE), Some(code)) => Err(Error::from_raw_os_error(-code)),
        _ => Err(Error::other("the kernel gave an answer that is none")),
    }
}
