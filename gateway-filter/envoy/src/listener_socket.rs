//! Finding the socket of Envoy's listener: the filter's interface has no descriptor and no way to
//! send many datagrams.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use packrat_dataplane::socket::local_address;

/// A duplicate of a socket of this process that is bound to `listener` and is not one of `ours`.
/// With several workers there are several such sockets; each can send for all, `worker` only
/// spreads the work.
pub(crate) fn duplicate(
    listener: SocketAddr,
    worker: usize,
    ours: &HashSet<RawFd>,
) -> io::Result<OwnedFd> {
    let mut candidates = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let descriptor = entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok());
        let Some(descriptor) = descriptor.filter(|descriptor| !ours.contains(descriptor)) else {
            continue;
        };
        if is_bound_to(descriptor, listener) {
            candidates.push(descriptor);
        }
    }
    candidates.sort_unstable();
    // Another thread of Envoy may close a descriptor at any time and reuse its number, so the
    // duplicate is the one to examine.
    let first = worker % candidates.len().max(1);
    for &descriptor in candidates.iter().cycle().skip(first).take(candidates.len()) {
        // SAFETY: only borrowed for the call that duplicates it; when it was closed meanwhile, that
        // call fails.
        let Ok(duplicate) = (unsafe { BorrowedFd::borrow_raw(descriptor) }).try_clone_to_owned()
        else {
            continue;
        };
        if is_datagram_socket(duplicate.as_fd())
            && local_address(duplicate.as_fd()) == Some(listener)
        {
            return Ok(duplicate);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        "no socket of this process is bound to the address; is /proc mounted?",
    ))
}

fn is_bound_to(descriptor: RawFd, listener: SocketAddr) -> bool {
    // SAFETY: only borrowed for calls that fail when it is closed or no socket.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    is_datagram_socket(descriptor) && local_address(descriptor) == Some(listener)
}

fn is_datagram_socket(descriptor: BorrowedFd<'_>) -> bool {
    let (mut kind, mut size) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: `kind` has `size` bytes.
    let result = unsafe {
        libc::getsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&descriptor),
            libc::SOL_SOCKET,
            libc::SO_TYPE,
            (&raw mut kind).cast(),
            &raw mut size,
        )
    };
    result == 0 && kind == libc::SOCK_DGRAM
}
