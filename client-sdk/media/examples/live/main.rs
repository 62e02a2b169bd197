//! A live stream from one program to another, as `srt-live-transmit` does it: a fixed latency,
//! repairs within it, statistics each second.
//!
//! ```text
//! ffmpeg -re -i film.mp4 -f mpegts - | live send 127.0.0.1:6000
//! packrat-gateway --listen 127.0.0.1:5000 --endpoint 127.0.0.1:6000
//! live receive 127.0.0.1:5000 --secret HEX --latency 200 | ffplay -
//! ```
//!
//! The sender needs no knowledge of the gateway, and the receiver finds it by itself. Without a
//! gateway (`live receive 127.0.0.1:6000 …`, or with `--alone`) the receiver asks the sender for
//! lost packets. `--rate BITS` paces input that has no pace of its own, such as a file.

mod receive;
mod send;

use std::error::Error;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use tokio::fs::File;

const USAGE: &str = "live send ADDRESS [--secret HEX] [--rate BITS]\n\
                     live receive ADDRESS --secret HEX [--latency MILLISECONDS] [--alone]";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (mode, address) = (words.next(), words.next());
    let (Some(mode), Some(address)) = (mode, address) else { return Err(USAGE.into()) };
    let address: SocketAddr = address.parse()?;
    let (mut secret, mut rate, mut latency, mut alone) =
        (None, None, Duration::from_millis(200), false);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(USAGE);
        match word.as_str() {
            "--secret" => secret = Some(secret_of(&value()?)?),
            "--rate" => rate = Some(value()?.parse()?),
            "--latency" => latency = Duration::from_millis(value()?.parse()?),
            "--alone" => alone = true,
            _ => return Err(USAGE.into()),
        }
    }
    match (mode.as_str(), secret) {
        ("send", secret) => {
            let secret = match secret {
                Some(secret) => secret,
                None => fresh_secret()?,
            };
            let settings = send::Settings { listen: address, secret, rate };
            let sent = send::run(settings, file(std::io::stdin())?, |at| {
                eprintln!("sending at {at}: live receive {at} --secret {}", text_of(&secret));
            })
            .await?;
            eprintln!("{} packets, {} sent again", sent.packets, sent.retransmissions);
        }
        ("receive", Some(secret)) => {
            let settings = receive::Settings { peer: address, secret, latency, assisted: !alone };
            let received =
                receive::run(settings, &mut file(std::io::stdout())?, |line| eprintln!("{line}"))
                    .await?;
            eprintln!("{}", receive::line(&received.accumulated, &received));
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

/// A standard stream as a file.
fn file(stream: impl AsFd) -> std::io::Result<File> {
    let stream = stream.as_fd().try_clone_to_owned()?;
    Ok(File::from_std(stream.into()))
}

fn fresh_secret() -> Result<[u8; 32], Box<dyn Error>> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)?;
    Ok(secret)
}

fn text_of(secret: &[u8; 32]) -> String {
    packrat_wire::hexadecimal::encode(secret)
}

fn secret_of(text: &str) -> Result<[u8; 32], Box<dyn Error>> {
    packrat_wire::hexadecimal::decode_key(text.as_bytes())
        .ok_or_else(|| "a secret has 64 hexadecimal digits".into())
}
