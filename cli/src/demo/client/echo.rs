//! The client of an echo: 60 datagrams a second, as a game sends them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::super::both_ends::echo_datagram;
use super::super::error::DemoError;
use super::super::report::TimesReport;
use super::job::Outcome;
use super::program::Line;

/// Time between two datagrams.
const DATAGRAM_INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / 60);
/// Silence after the last datagram, after which no answer comes any more.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Sends `repeats` datagrams and counts the answers, by the number in front of each.
pub(super) async fn run(
    server: SocketAddr,
    repeats: u32,
    answers: Option<&AtomicU64>,
    progress: impl Fn(u64),
) -> Result<Outcome, DemoError> {
    let failed = |error: std::io::Error| DemoError::Transfer(format!("echo: {error}"));
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
    socket.connect(server).await.map_err(failed)?;
    let begun = Instant::now();
    let mut sent: Vec<Instant> = Vec::new();
    let mut times: Vec<Option<Duration>> = vec![None; repeats as usize];
    let (mut wrong, mut bytes) = (0, 0);
    let mut ticks = interval(DATAGRAM_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut buffer = [0; 2048];
    loop {
        let is_over = sent.len() == repeats as usize;
        let length = tokio::select! {
            _ = ticks.tick(), if !is_over => {
                let datagram = echo_datagram(sent.len() as u64);
                sent.push(Instant::now());
                socket.send(&datagram).await.map_err(failed)?;
                continue;
            }
            received = timeout(LAST_ANSWERS, socket.recv(&mut buffer)) => match received {
                Ok(received) => received.map_err(failed)?,
                Err(_) if is_over => break,
                Err(_) => continue,
            },
        };
        let now = Instant::now();
        let Some((answer, number)) = buffer.get(..length).zip(buffer.first_chunk()) else {
            continue;
        };
        let number = u64::from_be_bytes(*number);
        let question =
            usize::try_from(number).ok().and_then(|at| sent.get(at).map(|time| (at, *time)));
        match question.filter(|_| answer == echo_datagram(number)) {
            Some((at, asked)) => {
                // The first answer counts.
                if let Some(time @ None) = times.get_mut(at) {
                    *time = Some(now - asked);
                    bytes += length as u64;
                    progress(bytes);
                }
            }
            None => wrong += 1,
        }
    }
    let line = Line { bytes, seconds: begun.elapsed().as_secs_f64(), ..Line::default() };
    let answered = answers.map(|answers| answers.load(Ordering::Relaxed));
    let times = times.iter().flatten().map(|time| time.as_secs_f64() * 1e3).collect();
    let times = TimesReport::new("echoes", repeats.into(), answered, wrong, times);
    Ok(Outcome { report: line.report(server), verified: Some(wrong == 0), times: Some(times) })
}
