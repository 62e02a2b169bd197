//! Waiting for sockets, timers and other threads: epoll and eventfd.

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Events taken per call.
const EVENT_ROOM: usize = 256;

/// An epoll instance. Every source has a number that the owner chooses.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
    wake: OwnedFd,
    /// True if the owner is going to look at its inbox anyway, so that it need not be woken.
    awake: AtomicBool,
    /// The descriptors of all sources.
    sources: Mutex<HashMap<u64, RawFd>>,
}

/// The number of [`Poller::wake`]; sources must not use it.
const WAKE_NUMBER: u64 = u64::MAX;

/// Lets the timers of this thread be late by a microsecond only, instead of the usual fifty.
pub(crate) fn use_precise_timers() {
    // SAFETY: a number as argument, no pointers. A kernel that does not know the call only costs
    // precision.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000 as libc::c_ulong) };
}

/// True if a system call is unknown to the kernel, or to a seccomp profile that is older than the
/// call: such profiles answer with EPERM, which no kernel gives for waiting.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a system call has just returned this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers are involved.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: no pointers are involved.
        let wake = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        let poller = Self { epoll, wake, awake: AtomicBool::new(true), sources: Mutex::default() };
        poller.add(poller.wake.as_fd(), WAKE_NUMBER)?;
        Ok(poller)
    }

    /// Reports `source` under `number` while it is readable or has an error.
    pub(crate) fn add(&self, source: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number };
        self.control(libc::EPOLL_CTL_ADD, source.as_raw_fd(), &raw mut event)?;
        self.sources().insert(number, source.as_raw_fd());
        Ok(())
    }

    /// Reports a source that was added under `number`, or does not for a while.
    pub(crate) fn watch(
        &self,
        source: BorrowedFd<'_>,
        number: u64,
        is_watched: bool,
    ) -> io::Result<()> {
        let events = if is_watched { libc::EPOLLIN as u32 } else { 0 };
        let mut event = libc::epoll_event { events, u64: number };
        self.control(libc::EPOLL_CTL_MOD, source.as_raw_fd(), &raw mut event)
    }

    /// Stops reporting `source`, which was added under `number`.
    pub(crate) fn remove(&self, source: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        self.sources().remove(&number);
        self.control(libc::EPOLL_CTL_DEL, source.as_raw_fd(), std::ptr::null_mut())
    }

    /// Stops reporting a source that has no owner any more; has no effect if its descriptor belongs
    /// to another source by now.
    pub(crate) fn forget(&self, number: u64) -> io::Result<()> {
        let mut sources = self.sources();
        match sources.remove(&number) {
            Some(descriptor) if !sources.values().any(|&other| other == descriptor) => {
                self.control(libc::EPOLL_CTL_DEL, descriptor, std::ptr::null_mut())
            }
            _ => Ok(()),
        }
    }

    fn sources(&self) -> MutexGuard<'_, HashMap<u64, RawFd>> {
        self.sources.lock()
    }

    fn control(
        &self,
        operation: libc::c_int,
        source: RawFd,
        event: *mut libc::epoll_event,
    ) -> io::Result<()> {
        // SAFETY: `event` points at a valid event, or is null for removal, when the kernel ignores
        // it.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, source, event) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Lets the owner look at its inbox soon; from any thread. Put the message there first.
    pub(crate) fn wake(&self) {
        if !self.awake.swap(true, Ordering::SeqCst) {
            let one = 1u64.to_ne_bytes();
            // SAFETY: eight valid bytes. The write fails only when the counter is full, and then it
            // is readable anyway.
            unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    /// For kernels before 5.11, which know no finer limit, and for sandboxes that forbid what they
    /// do not know.
    fn wait_in_milliseconds(
        &self,
        timeout: Option<Duration>,
        events: &mut [libc::epoll_event; EVENT_ROOM],
    ) -> libc::c_long {
        let limit = timeout.map_or(-1, |timeout| {
            libc::c_int::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(libc::c_int::MAX)
        });
        // SAFETY: `events` has room for EVENT_ROOM events.
        let result = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                events.as_mut_ptr(),
                EVENT_ROOM as libc::c_int,
                limit,
            )
        };
        result.into()
    }

    /// Lets the other threads of a test run until a source is ready, as all of them share one
    /// thread of the system. No time passes while it waits.
    #[cfg(feature = "shuttle")]
    fn let_others_run(&self, timeout: Option<Duration>) -> Option<Duration> {
        if timeout != Some(Duration::ZERO) {
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENT_ROOM];
            while self.wait_in_milliseconds(Some(Duration::ZERO), &mut events) == 0 {
                shuttle::thread::yield_now();
            }
        }
        timeout
    }

    /// Waits until a source is ready, another thread wakes it, or the time is over (`None`: no
    /// limit). Fills in the numbers of the ready sources. `inbox_is_empty` is called after other
    /// threads were notified that they have to wake.
    pub(crate) fn wait(
        &self,
        timeout: Option<Duration>,
        ready: &mut Vec<u64>,
        inbox_is_empty: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        ready.clear();
        self.awake.store(false, Ordering::SeqCst);
        let timeout = if inbox_is_empty() { timeout } else { Some(Duration::ZERO) };
        #[cfg(feature = "shuttle")]
        let timeout = self.let_others_run(timeout);
        let limit = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENT_ROOM];
        // SAFETY: `events` has room for EVENT_ROOM events; the time limit is null or a valid timespec;
        // no signal mask.
        let result = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                events.as_mut_ptr(),
                EVENT_ROOM as libc::c_int,
                limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        let unsupported = result < 0 && is_unsupported(&io::Error::last_os_error());
        let result =
            if unsupported { self.wait_in_milliseconds(timeout, &mut events) } else { result };
        self.awake.store(true, Ordering::SeqCst);
        let count = match usize::try_from(result) {
            Ok(count) => count,
            Err(_) => {
                let error = io::Error::last_os_error();
                return if error.kind() == io::ErrorKind::Interrupted {
                    Ok(())
                } else {
                    Err(error)
                };
            }
        };
        for event in events.iter().take(count) {
            let number = event.u64;
            if number == WAKE_NUMBER {
                let mut counter = [0u8; 8];
                // SAFETY: eight writable bytes; the descriptor does not block.
                unsafe {
                    libc::read(self.wake.as_raw_fd(), counter.as_mut_ptr().cast(), counter.len())
                };
            } else {
                ready.push(number);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Instant;

    #[test]
    fn both_ways_of_waiting_report_sources_and_respect_the_limit() {
        let poller = Poller::new().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        poller.add(socket.as_fd(), 42).unwrap();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENT_ROOM];
        let mut ready = Vec::new();
        let start = Instant::now();
        poller.wait(Some(Duration::from_micros(1500)), &mut ready, || true).unwrap();
        assert!(ready.is_empty() && start.elapsed() >= Duration::from_micros(1500));
        assert_eq!(poller.wait_in_milliseconds(Some(Duration::from_micros(1)), &mut events), 0);
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        poller.wait(None, &mut ready, || true).unwrap();
        assert_eq!(ready, [42]);
        assert_eq!(poller.wait_in_milliseconds(None, &mut events), 1);
        poller.remove(socket.as_fd(), 42).unwrap();
        poller.wait(Some(Duration::ZERO), &mut ready, || true).unwrap();
        assert!(ready.is_empty());
        // The number alone is also enough to remove a source.
        poller.add(socket.as_fd(), 43).unwrap();
        poller.wait(None, &mut ready, || true).unwrap();
        assert_eq!(ready, [43]);
        poller.forget(43).unwrap();
        poller.wait(Some(Duration::ZERO), &mut ready, || true).unwrap();
        assert!(ready.is_empty());
        poller.forget(43).unwrap();
    }

    #[test]
    fn another_thread_wakes_the_owner_and_a_full_inbox_keeps_it_up() {
        let poller = Poller::new().unwrap();
        let mut ready = Vec::new();
        // No thread has to write a byte while the owner is awake: it sees its inbox before it
        // sleeps.
        poller.wake();
        poller.wait(None, &mut ready, || false).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Until the owner sleeps, or is about to.
                while poller.awake.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                poller.wake();
            });
            poller.wait(None, &mut ready, || true).unwrap();
        });
        assert!(ready.is_empty());
    }

    /// Has the kernel answer a system call with EPERM for the calling thread and its children, as
    /// old seccomp profiles do.
    fn forbid(call: libc::c_long) {
        let statement =
            |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let (load, jump, give) = (
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::BPF_RET | libc::BPF_K,
        );
        let mut program = [
            statement(load, 0),
            libc::sock_filter { jf: 1, ..statement(jump, call as u32) },
            statement(give, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            statement(give, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
        // SAFETY: numbers, and a program that lives until the call has copied it.
        let results = unsafe {
            (
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
            )
        };
        assert_eq!(results, (0, 0), "{}", io::Error::last_os_error());
    }

    #[test]
    fn a_sandbox_without_the_finer_wait_gets_the_coarser_one() {
        std::thread::spawn(|| {
            forbid(libc::SYS_epoll_pwait2);
            let poller = Poller::new().unwrap();
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            poller.add(socket.as_fd(), 42).unwrap();
            socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
            let mut ready = Vec::new();
            poller.wait(None, &mut ready, || true).unwrap();
            assert_eq!(ready, [42]);
        })
        .join()
        .unwrap();
    }
}
