//! Two unmodified WebRTC peers (str0m), a gateway between them, and a last mile that loses packets:
//! without Packrat's client, and with it.
//!
//! ```text
//! cargo run --release -p packrat-media --example webrtc -- [SECONDS [LOSS]]
//! ```
//!
//! `peer.rs` has an application's additions to its own peer: [`packrat_media::RtpAssist`] between
//! the socket and the stack.

mod peer;
mod session;

use std::error::Error;
use std::time::Duration;

use session::{Frames, Settings};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().as_deref().unwrap_or("10").parse()?;
    let loss: f64 = arguments.next().as_deref().unwrap_or("0.05").parse()?;
    str0m::crypto::from_feature_flags().install_process_default();
    println!(
        "WebRTC: video 3.4 Mbit/s, audio 64 kbit/s; far segment 40 ms, last mile 10 ms and {loss} lost, each way"
    );
    for assisted in [false, true] {
        let settings = Settings {
            assisted,
            loss,
            far_delay: Duration::from_millis(40),
            near_delay: Duration::from_millis(10),
            duration: Duration::from_secs_f64(seconds),
        };
        let report = session::run(settings).await?;
        println!("\n{}", if assisted { "with Packrat's client" } else { "as it is" });
        println!(
            "  RTP packets        {} of {} arrived as they were sent",
            report.arrived, report.packets
        );
        if !report.is_on_time {
            println!(
                "  this machine is too busy: the emulated path was late, and the figures show it"
            );
        }
        println!("  lost on last mile  {} datagrams of all kinds", report.lost);
        println!("  asked for (NACK)   {}", report.asked);
        println!("  sent again (RTX)   {}", report.retransmissions);
        frames("video", &report.video);
        frames("audio", &report.audio);
        if let Some(assistance) = report.assistance {
            println!("  eACKs              {}, {} bytes", assistance.eacks, assistance.eack_bytes);
            println!("  waited for repair  {} packets", report.waited);
        }
    }
    Ok(())
}

fn frames(name: &str, frames: &Frames) {
    let (whole, sent) = (frames.numbers.len(), frames.sent);
    let milliseconds = |share| frames.latency(share).as_secs_f64() * 1e3;
    println!(
        "  {name} frames       {whole} of {sent} whole, {} corrupt; latency {:.0} ms, p99 {:.0} ms, longest {:.0} ms",
        frames.corrupt,
        milliseconds(0.5),
        milliseconds(0.99),
        milliseconds(1.0)
    );
}
