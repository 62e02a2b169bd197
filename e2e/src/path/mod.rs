//! A router that delays and loses: the emulated path of `packrat-lab` between two interfaces of a
//! network namespace.
//!
//! It opens a TUN device, and routing rules send the path's packets there. The packets come back
//! out of the device at the time that the model sets, and the kernel forwards them unchanged:
//! addresses, ports, ECN marks stay.
//!
//! Commands come in lines on the standard input, so that a test can change the weather; the end of
//! the input ends the program:
//!
//! ```text
//! loss RATE BURST       another loss in both directions: mean rate (0 to 1), mean burst length
//! rebind [ADDRESS]      the NAT before the clients forgets its mappings, and has this address
//! rebind each ADDRESS   the same, and each client has an address of its own, from this one on
//! report                counters (also of Packrat's control datagrams in either direction), as a line of JSON on the standard output
//! ```

mod nat;
mod packet;

use std::io::{self, BufRead, Write};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use packrat_emulation::path::{Direction, LinkConfig, LossModel};
use serde_json::json;
use tun_rs::{DeviceBuilder, SyncDevice};

use nat::{Nat, OutsideAddress};
use packet::{source_address, udp_payload};
use packrat_wire::is_control;

/// Largest IP packet.
const LARGEST_PACKET: usize = 65_535;

/// Parameters of the path, the same in either direction.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Name of the TUN device to open
    #[arg(long)]
    device: String,
    /// Packets whose source is in this network travel upward, all others downward
    #[arg(long, value_name = "ADDRESS/LENGTH", value_parser = network)]
    clients: Network,
    /// One-way delay
    #[arg(long, value_name = "MS", default_value = "0")]
    delay: u64,
    /// Transmission rate; 0 is unlimited
    #[arg(long, value_name = "MBPS", default_value = "0")]
    rate: u64,
    /// Mean loss, 0 to 1
    #[arg(long, default_value = "0")]
    loss: f64,
    /// Mean length of a burst of losses
    #[arg(long, default_value = "1")]
    burst: f64,
    /// Decides everything random
    #[arg(long, default_value = "1")]
    seed: u64,
}

/// An IPv4 network.
#[derive(Debug, Clone, Copy)]
struct Network {
    address: u32,
    mask: u32,
}

impl Network {
    fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & self.mask == self.address
    }
}

fn network(text: &str) -> Result<Network, String> {
    let expected = || format!("expected a network like 10.99.1.0/24, not {text:?}");
    let (address, length) = text.split_once('/').ok_or_else(expected)?;
    let address: Ipv4Addr = address.parse().map_err(|_| expected())?;
    let length: u32 = length.parse().map_err(|_| expected())?;
    let mask = u32::MAX.checked_shl(32_u32.checked_sub(length).ok_or_else(expected)?).unwrap_or(0);
    Ok(Network { address: u32::from(address) & mask, mask })
}

/// Runs until the standard input ends.
///
/// # Errors
/// When the device cannot be opened.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    let device = Arc::new(DeviceBuilder::new().name(&options.device).mtu(1500).build_sync()?);
    let link = LinkConfig::new(Duration::from_millis(options.delay), options.rate * 1_000_000)
        .with_loss(LossModel::new(options.loss, options.burst))
        .with_seed(options.seed);
    let origin = Instant::now();
    let upward = Direction::new(link, origin);
    let downward = Direction::new(link.with_seed(options.seed ^ 0x646f_776e), origin);
    let nat = Arc::new(Mutex::new(Nat::default()));

    for direction in [&upward, &downward] {
        let (direction, device) = (Arc::clone(direction), Arc::clone(&device));
        thread::spawn(move || {
            direction.release(|packet| {
                // A packet that cannot be written back is lost, as on any path.
                let _ = device.send(&packet.payload);
            });
        });
    }
    let control = Arc::new(AtomicU64::new(0));
    {
        let (device, nat, control) = (Arc::clone(&device), Arc::clone(&nat), Arc::clone(&control));
        let (up, down, clients) = (Arc::clone(&upward), Arc::clone(&downward), options.clients);
        thread::spawn(move || receive(&device, clients, &nat, &control, &up, &down));
    }
    say(&json!({ "ready": options.device }));
    for line in io::stdin().lock().lines() {
        obey(&line?, &upward, &downward, &nat, &control);
    }
    Ok(())
}

fn receive(
    device: &SyncDevice,
    clients: Network,
    nat: &Mutex<Nat>,
    control: &AtomicU64,
    upward: &Direction<()>,
    downward: &Direction<()>,
) {
    let mut buffer = vec![0; LARGEST_PACKET];
    loop {
        let length = match device.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                // Without the device nothing can pass, and the test must not wait for the path.
                eprintln!("the device is gone: {error}");
                std::process::exit(1);
            }
        };
        let packet = &mut buffer[..length];
        let Some(source) = source_address(packet) else { continue };
        if udp_payload(packet).is_some_and(is_control) {
            control.fetch_add(1, Ordering::Relaxed);
        }
        let mut nat = nat.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.contains(source) {
            nat.outwards(packet);
            upward.offer(packet, ());
        } else if nat.inwards(packet) {
            downward.offer(packet, ());
        }
    }
}

fn obey(
    line: &str,
    upward: &Direction<()>,
    downward: &Direction<()>,
    nat: &Mutex<Nat>,
    control: &AtomicU64,
) {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["loss", rate, burst] => {
            let (Ok(rate), Ok(burst)) = (rate.parse(), burst.parse()) else {
                say(&json!({ "error": format!("not numbers: {line}") }));
                return;
            };
            let loss = LossModel::new(rate, burst);
            upward.set_loss(loss, 1);
            downward.set_loss(loss, 2);
            say(&json!({ "done": line }));
        }
        ["rebind", address @ ..] => {
            let outside = match address {
                ["each", first] => first.parse().map(OutsideAddress::Each),
                [one] => one.parse().map(OutsideAddress::One),
                _ => Ok(OutsideAddress::Own),
            };
            let Ok(outside) = outside else {
                say(&json!({ "error": format!("no address: {line}") }));
                return;
            };
            nat.lock().unwrap_or_else(PoisonError::into_inner).rebind(outside);
            say(&json!({ "done": line }));
        }
        ["report"] => {
            let (up, up_lateness, _) = upward.counters();
            let (down, down_lateness, _) = downward.counters();
            let control = control.load(Ordering::Relaxed);
            say(&json!({
                "upward": up, "downward": down, "lateness": [up_lateness, down_lateness], "control_datagrams": control
            }));
        }
        _ => say(&json!({ "error": format!("unknown command: {line}") })),
    }
}

fn say(value: &serde_json::Value) {
    // A reader that is gone also ends the input.
    let _ = writeln!(io::stdout(), "{value}");
}
