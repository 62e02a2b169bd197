//! Sockets that share an address (SO_REUSEPORT), and the program by which the kernel chooses the
//! socket of a datagram.
//!
//! The program is classic BPF (`socket(7)`, SO_ATTACH_REUSEPORT_CBPF), which needs no privilege: it
//! returns the place of a socket among all sockets of the address, in the order in which they were
//! bound. A place that does not exist means that the kernel chooses by the hash of both addresses,
//! as it does without a program.

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

/// Most sockets that one program spreads clients over.
pub(crate) const MOST_READERS: usize = 64;
/// Bytes that probes consist of: no protocol beside QUIC begins with them (RFC 9443, section 2).
pub(crate) const PROBE_BYTES: RangeInclusive<u8> = 4..=15;
/// Place of no socket.
pub(crate) const NO_PLACE: u32 = u32::MAX;
/// Offset at which programs find the network header (SKF_NET_OFF).
const NETWORK_HEADER: u32 = 0xfff0_0000;
/// Multiplier of Fibonacci hashing.
const HASH_MULTIPLIER: u32 = 0x9e37_79b1;

/// The places that datagrams go to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// Datagrams of one byte from this source port go to this place.
    pub(crate) probe: Option<(u16, u32)>,
    /// All others: to one of these, by the client's address and port. Without any the kernel
    /// chooses.
    pub(crate) readers: Vec<u32>,
}

const fn instruction(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

const fn if_equal(k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt, jf, k }
}

const fn give(place: u32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, place)
}

impl Places {
    /// The program. A datagram that it can't read goes to the first socket of the address.
    fn program(&self) -> Vec<libc::sock_filter> {
        let load = |size, at| instruction(libc::BPF_LD | size | libc::BPF_ABS, NETWORK_HEADER + at);
        let store = |slot| instruction(libc::BPF_ST, slot);
        let mut program = vec![
            // The version: then the last four bytes of the source address, and the source port.
            load(libc::BPF_B, 0),
            instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 4),
            if_equal(4, 0, 4),
            load(libc::BPF_W, 12),
            store(0),
            load(libc::BPF_H, 20),
            instruction(libc::BPF_JMP | libc::BPF_JA, 3),
            load(libc::BPF_W, 20),
            store(0),
            load(libc::BPF_H, 40),
            store(1),
        ];
        if let Some((port, place)) = self.probe {
            program.extend([
                if_equal(port.into(), 0, 3),
                instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0),
                if_equal(1, 0, 1),
                give(place),
            ]);
        }
        match self.readers.as_slice() {
            [] => program.push(give(NO_PLACE)),
            [place] => program.push(give(*place)),
            readers => {
                let readers = readers.get(..MOST_READERS).unwrap_or(readers);
                program.extend([
                    instruction(libc::BPF_LD | libc::BPF_MEM, 0),
                    instruction(libc::BPF_LDX | libc::BPF_MEM, 1),
                    instruction(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0),
                    instruction(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, HASH_MULTIPLIER),
                    instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
                    instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, readers.len() as u32),
                ]);
                for (number, place) in readers.iter().enumerate() {
                    program.extend([if_equal(number as u32, 0, 1), give(*place)]);
                }
                program.push(give(NO_PLACE));
            }
        }
        program
    }
}

/// Puts a program in force for all sockets of the address that `socket` is bound to.
///
/// # Errors
/// When the kernel knows no such programs.
pub(crate) fn put_in_force(socket: BorrowedFd<'_>, places: &Places) -> io::Result<()> {
    let mut program = places.program();
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, whose instructions live for the whole call; `len` is
    // their number.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Opens a socket on the address that the shell's socket is bound to.
///
/// # Errors
/// When that one does not share its address, or belongs to another user.
pub(crate) fn bind_beside(listener: SocketAddr, theirs: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let theirs = SockRef::from(&theirs);
    let domain = theirs.domain()?;
    let socket = Socket::new(domain, Type::DGRAM.cloexec().nonblocking(), Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(theirs.only_v6()?)?;
    }
    socket.bind(&SockAddr::from(listener))?;
    Ok(OwnedFd::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    /// Which of the sockets a datagram from `client` arrives at.
    fn receiver(sockets: &[UdpSocket], client: &UdpSocket, bytes: usize, to: SocketAddr) -> usize {
        client.send_to(&vec![7; bytes], to).unwrap();
        let begun = std::time::Instant::now();
        loop {
            if let Some(place) =
                sockets.iter().position(|socket| socket.recv(&mut [0; 100]).is_ok())
            {
                return place;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "nobody has received it");
        }
    }

    fn group(at: &str, members: usize) -> (Vec<UdpSocket>, SocketAddr) {
        let first = crate::socket::bind_reuse_port(at.parse().unwrap()).unwrap();
        let address = crate::socket::local_address(first.as_fd()).unwrap();
        let beside: Vec<_> =
            (1..members).map(|_| bind_beside(address, first.as_fd()).unwrap()).collect();
        (std::iter::once(first).chain(beside).map(UdpSocket::from).collect(), address)
    }

    #[test]
    fn datagrams_follow_the_program_and_clients_keep_their_sockets() {
        for (at, from) in
            [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0"), ("[::]:0", "127.0.0.1:0")]
        {
            if UdpSocket::bind(from).is_err() || UdpSocket::bind(at).is_err() {
                println!("SKIPPED: no IPv6 here");
                continue;
            }
            let (sockets, address) = group(at, 5);
            let to = SocketAddr::new(from.parse::<SocketAddr>().unwrap().ip(), address.port());
            let clients: Vec<_> = (0..64).map(|_| UdpSocket::bind(from).unwrap()).collect();
            for readers in [vec![3], vec![3, 1, 4], vec![2, 99]] {
                let prober = clients.first().unwrap();
                let probe = Some((prober.local_addr().unwrap().port(), 2));
                put_in_force(sockets[0].as_fd(), &Places { probe, readers: readers.clone() })
                    .unwrap();
                assert_eq!(receiver(&sockets, prober, 1, to), 2);
                let mut seen = std::collections::HashSet::new();
                for client in &clients {
                    let places: Vec<_> =
                        [2, 60, 90].map(|bytes| receiver(&sockets, client, bytes, to)).into();
                    assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
                    seen.insert(places[0]);
                }
                // A place that does not exist is the kernel's choice.
                assert!(
                    readers.contains(&99)
                        || seen.iter().all(|place| readers.contains(&(*place as u32)))
                );
                assert!(seen.len() >= readers.len(), "{seen:?}");
            }
        }
    }
}
