//! The generator: sends datagrams at a rate, or as fast as the path delivers them.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use packrat_dataplane::socket::{Destination, Ecn, Family, GsoBatch, Offload, Sender, WhenFull};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::datagram::{self, Header, Purpose};
use super::progress::Progress;

/// Most bytes in flight when datagrams are sent as fast as the path delivers them.
const WINDOW_BYTES: usize = 2 << 20;
/// Longest time without feedback; after it, all bytes in flight count as lost.
const FEEDBACK_PATIENCE: Duration = Duration::from_millis(20);
/// The longest delay that the generator makes up for.
const LARGEST_DEBT: Duration = Duration::from_millis(20);

/// Size, batching, rate and duration of the datagrams of one phase of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pattern {
    /// The number of the phase.
    pub(crate) phase: u8,
    /// Bytes of a datagram.
    pub(crate) size: usize,
    /// Datagrams of one send call; more than one by segmentation offload.
    pub(crate) batch: usize,
    /// Datagrams per second, all receivers together; 0: as fast as the path delivers them.
    pub(crate) rate: f64,
    /// Duration of the phase.
    pub(crate) duration: Duration,
}

/// Maximum number of datagrams between two feedback messages.
pub(crate) fn feedback_interval(size: usize) -> u64 {
    (WINDOW_BYTES / size / 8).clamp(1, 512) as u64
}

/// A receiver, as the generator sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    pub(crate) next: u64,
    /// The highest number that it has reported.
    pub(crate) acknowledged: u64,
}

/// The generator's source of arrival counts.
pub(crate) enum Feedback<'a> {
    /// Reports of each receiver; the function reads the reports that have arrived.
    Reports(&'a mut dyn FnMut(&mut [Receiver])),
    /// A single count for all receivers: with many receivers, each has too few datagrams in flight
    /// for reports of its own.
    Progress(&'a Progress),
}

/// Sends to the receivers in turn. Returns the number of datagrams sent.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    connected: bool,
    pattern: &Pattern,
    receivers: &mut [Receiver],
    feedback: &mut Feedback<'_>,
) -> u64 {
    let Pattern { phase, size, batch, rate, duration } = *pattern;
    let mut buffer = vec![0x5a; size * batch];
    let (mut sender, offload) = (Sender::default(), Offload::default());
    let window = (WINDOW_BYTES / size).clamp(2 * batch, 4096) as u64;
    let begun = Instant::now();
    let mut due = begun;
    let mut turn = 0;
    let mut sent = 0;
    let mut settled = match feedback {
        Feedback::Progress(progress) => progress.received().cast_signed(),
        Feedback::Reports(_) => 0,
    };
    while begun.elapsed() < duration && !receivers.is_empty() {
        let index = turn % receivers.len();
        turn += 1;
        if rate > 0.0 {
            pause_until(&mut due, Duration::from_secs_f64(batch as f64 / rate));
        } else {
            match feedback {
                Feedback::Reports(read) => wait_for_window(socket, receivers, index, window, read),
                Feedback::Progress(progress) => {
                    wait_for_progress(progress, sent, &mut settled, window);
                }
            }
        }
        let receiver = &mut receivers[index];
        let now = datagram::now();
        for bytes in buffer.chunks_exact_mut(size) {
            let number = receiver.next;
            datagram::write(bytes, Header { purpose: Purpose::Data, phase, number, sent: now });
            receiver.next += 1;
        }
        let destination = destination(receiver.address, connected);
        let datagrams = GsoBatch::plain(&buffer, size, Ecn::NOT_CAPABLE);
        sent += sender.send(socket, &offload, &destination, &[datagrams]).datagrams;
    }
    // Datagrams in flight arrive before the next phase, or the end mark.
    std::thread::sleep(Duration::from_millis(50));
    sent
}

/// Sends the end mark.
pub(crate) fn end(socket: BorrowedFd<'_>, connected: bool, receivers: &[Receiver]) {
    let (mut sender, offload) = (Sender::default(), Offload::default());
    for receiver in receivers {
        let mut end = [0; datagram::SHORTEST_BYTES];
        datagram::write(&mut end, Header::message(Purpose::End, receiver.next));
        let last = GsoBatch::single(&end, Ecn::NOT_CAPABLE);
        sender.send(socket, &offload, &destination(receiver.address, connected), &[last]);
    }
}

fn destination(address: SocketAddr, connected: bool) -> Destination {
    Destination {
        address: (!connected).then_some(address),
        source: None,
        family: Family::of(&address),
        leaves_as_v4: address.is_ipv4(),
        when_full: WhenFull::Wait,
    }
}

/// Sleeps until the next batch is due. Starts a new schedule after a long delay.
fn pause_until(due: &mut Instant, interval: Duration) {
    let now = Instant::now();
    *due = (*due + interval).max(now.checked_sub(LARGEST_DEBT).unwrap_or(now));
    if let Some(pause) = due.checked_duration_since(now) {
        std::thread::sleep(pause);
    }
}

fn wait_for_window(
    socket: BorrowedFd<'_>,
    receivers: &mut [Receiver],
    index: usize,
    window: u64,
    feedback: &mut dyn FnMut(&mut [Receiver]),
) {
    let begun = Instant::now();
    loop {
        let receiver = &mut receivers[index];
        if receiver.next < receiver.acknowledged + window {
            return;
        }
        if begun.elapsed() > FEEDBACK_PATIENCE {
            receiver.acknowledged = receiver.next;
            return;
        }
        wait_readable(socket, Duration::from_millis(2));
        feedback(receivers);
    }
}

/// Waits until less than `window` of the datagrams `sent` are in flight. `settled`: datagrams
/// received without those sent, when nothing was in flight for the last time.
fn wait_for_progress(progress: &Progress, sent: u64, settled: &mut i64, window: u64) {
    let begun = Instant::now();
    loop {
        let received = progress.received().cast_signed();
        if sent.cast_signed() + *settled < received + window.cast_signed() {
            return;
        }
        if begun.elapsed() > FEEDBACK_PATIENCE {
            *settled = received - sent.cast_signed();
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Waits until the socket is readable, at most for `limit`.
pub(crate) fn wait_readable(socket: BorrowedFd<'_>, limit: Duration) {
    let socket = socket.as_fd();
    let mut sources = [PollFd::new(&socket, PollFlags::IN)];
    let limit = Timespec::try_from(limit).ok();
    // A signal that interrupts the wait is no error.
    let _ = rustix::event::poll(&mut sources, limit.as_ref());
}
