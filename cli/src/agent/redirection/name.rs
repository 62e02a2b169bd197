//! Names that keep processes out of each other's way.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::geteuid;

/// A name that one process at a time has, in this network namespace, until it is dropped.
pub(super) enum Name {
    /// The name is ours.
    Own(UnixListener),
    /// Another process of this user, or of root, has it.
    Taken,
    /// A process that could not redirect anything has it.
    Usurped,
}

impl Name {
    pub(super) fn take(name: &str) -> std::io::Result<Self> {
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        match UnixListener::bind_addr(&address) {
            Ok(own) => Ok(Self::Own(own)),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                Ok(if is_of_a_stranger(name) { Self::Usurped } else { Self::Taken })
            }
            Err(error) => Err(error),
        }
    }
}

/// True if the process that has a name has fewer rights than this one.
fn is_of_a_stranger(name: &str) -> bool {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let owner = || {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        sockopt::socket_peercred(&socket)
    };
    owner().is_ok_and(|owner: rustix::net::UCred| !owner.uid.is_root() && owner.uid != geteuid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_once_until_it_is_given_back() {
        let name = format!("packrat-test-{}", std::process::id());
        let own = Name::take(&name).unwrap();
        assert!(matches!(own, Name::Own(_)));
        for _ in 0..300 {
            assert!(matches!(Name::take(&name).unwrap(), Name::Taken));
        }
        drop(own);
        // Other tests start programs at the same time: a child has a copy of the socket until it
        // runs its program.
        assert!((0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            matches!(Name::take(&name).unwrap(), Name::Own(_))
        }));
    }
}
