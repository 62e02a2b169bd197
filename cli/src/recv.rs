//! `packrat recv`: a subscriber to a gateway's live stream.
//!
//! The datagrams come out as they were sent, in order and on time: to a player's port, a file, or
//! standard output. The payload is not decrypted, so SRTP and other sealed formats work as well as
//! plain RTP.

use clap::{Args, ValueEnum};
use packrat_media::udp::UdpReceiver;
use packrat_media::{Access, Numbers, ReceiverConfig, RefusalReason, Statistics, Token};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::net::{UdpSocket, lookup_host};
use url::Url;

use packrat_token_client::gateway_key;

use crate::assist_token;

/// Options of `packrat recv`.
#[derive(Debug, Args)]
pub(crate) struct RecvOptions {
    /// The gateway's stream: udp://HOST:PORT
    url: Url,
    /// Longest delay of a packet in milliseconds: the time that repairs have
    #[arg(long, default_value_t = 200)]
    latency: u64,
    /// Numbering of the packets
    #[arg(long, value_enum, default_value_t = Numbering::Rtp)]
    numbers: Numbering,
    /// The packets come by multicast to this group; the gateway repairs
    #[arg(long, value_name = "ADDR")]
    group: Option<SocketAddr>,
    /// Send each packet to this address of a player
    #[arg(long, value_name = "ADDR", conflicts_with = "output")]
    to: Option<SocketAddr>,
    /// Write the packets to this file, one after the other, instead of to standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The gateway's public key, 64 hexadecimal digits; another gateway is refused
    #[arg(long, value_name = "KEY", value_parser = gateway_key)]
    gateway_key: Option<[u8; 32]>,
    /// An assist token, as the gateway's token endpoint gives it out (the field `token`)
    #[arg(long, value_name = "TEXT", value_parser = assist_token::read)]
    token: Option<Token>,
    /// End after this many seconds
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Print statistics to standard error once a second
    #[arg(long)]
    statistics: bool,
}

/// The source of packet numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Numbering {
    /// By RTP headers, which SRTP leaves in the clear: in order, each at its time
    Rtp,
    /// Not that one could see: as they arrive, repaired ones late
    None,
}

/// The destination of packets.
enum Sink {
    Player(UdpSocket),
    Writer(Box<dyn Write>),
}

/// Runs the command; its exit code.
pub(crate) fn run(options: &RecvOptions) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime
        .map_err(|error| format!("cannot start: {error}"))
        .and_then(|runtime| runtime.block_on(receive(options)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn receive(options: &RecvOptions) -> Result<(), String> {
    let gateway = resolve(&options.url).await?;
    let numbers = match options.numbers {
        Numbering::Rtp => Numbers::Rtp,
        Numbering::None => Numbers::Unknown,
    };
    let config = ReceiverConfig {
        latency: Duration::from_millis(options.latency),
        ..ReceiverConfig::default()
    };
    let token = options.token.clone().unwrap_or_default();
    let client = Access::default().with_gateway_key(options.gateway_key).with_token(token);
    let mut sink = sink(options).await?;
    let mut receiver = UdpReceiver::subscribe(gateway, options.group, numbers, config, client)
        .await
        .map_err(|error| format!("cannot subscribe at {gateway}: {error}"))?;
    let end = options.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut told = Instant::now();
    loop {
        let tick = tokio::time::sleep(Duration::from_millis(200));
        tokio::select! {
            unit = receiver.next() => {
                let unit = unit.map_err(|error| format!("the stream of {gateway} broke off: {error}"))?;
                match put(&mut sink, &unit.bytes).await {
                    Ok(()) => {}
                    // A reader that has closed the pipe, like `head`, wants no more.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
                    Err(error) => return Err(format!("cannot pass a packet on: {error}")),
                }
            }
            () = tick => {}
            _ = tokio::signal::ctrl_c() => break,
        }
        if options.statistics && told.elapsed() >= Duration::from_secs(1) {
            told = Instant::now();
            tell!("{}", line(&receiver.take_statistics()));
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
    }
    if let Sink::Writer(writer) = &mut sink {
        writer.flush().map_err(|error| format!("cannot write the last packets: {error}"))?;
    }
    let statistics = receiver.take_statistics();
    let assistance = receiver.assistance().unwrap_or_default();
    receiver.close().await.map_err(|error| format!("cannot say goodbye to {gateway}: {error}"))?;
    if options.statistics {
        tell!("{}", line(&statistics));
    }
    if let Some(refusal) = assistance.refusal.filter(|_| assistance.sessions == 0) {
        return Err(format!("{gateway} refuses: {}", meaning(refusal)));
    }
    if assistance.sessions == 0 {
        return Err(format!(
            "no gateway at {gateway} has such a stream; start packrat-gateway --stream there"
        ));
    }
    Ok(())
}

/// The meaning of a refusal here, and the user's next step.
fn meaning(refusal: RefusalReason) -> &'static str {
    match refusal {
        RefusalReason::Token => "it demands a token for this stream; give one with --token",
        RefusalReason::Full => {
            "it has no room for another subscriber, or none for this address; try again later"
        }
        RefusalReason::Disabled => "it has no stream there, or is going away",
        RefusalReason::Version => {
            "it speaks another version of the protocol; update the older of the two"
        }
        _ => "the handshake did not come to an end; try again",
    }
}

async fn resolve(url: &Url) -> Result<SocketAddr, String> {
    let (host, port) = match (url.scheme(), url.host_str(), url.port()) {
        ("udp", Some(host), Some(port)) => (host, port),
        _ => return Err(format!("{url} is not of the form udp://HOST:PORT")),
    };
    // Brackets belong to the URL, not to the address.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut found =
        lookup_host((host, port)).await.map_err(|error| format!("cannot find {host}: {error}"))?;
    found.next().ok_or_else(|| format!("{host} has no address"))
}

async fn sink(options: &RecvOptions) -> Result<Sink, String> {
    if let Some(player) = options.to {
        let local: SocketAddr =
            if player.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
        let connected = async {
            let socket = UdpSocket::bind(local).await?;
            socket.connect(player).await?;
            Ok::<_, io::Error>(socket)
        };
        return connected
            .await
            .map(Sink::Player)
            .map_err(|error| format!("cannot reach {player}: {error}"));
    }
    let writer: Box<dyn Write> = match &options.output {
        Some(path) => Box::new(io::BufWriter::new(
            std::fs::File::create(path)
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?,
        )),
        None => Box::new(io::stdout()),
    };
    Ok(Sink::Writer(writer))
}

async fn put(sink: &mut Sink, packet: &[u8]) -> io::Result<()> {
    match sink {
        // A missing listener is no error: the player may be started later.
        Sink::Player(socket) => match socket.send(packet).await {
            Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => Err(error),
            _ => Ok(()),
        },
        Sink::Writer(writer) => writer.write_all(packet),
    }
}

/// A line of statistics for people.
fn line(statistics: &Statistics) -> String {
    let (now, all) = (statistics.interval, statistics.accumulated);
    format!(
        "{:.0} kbit/s, {} packets ({} lost, {} repaired, {} dropped), {:.0} ms buffered; in all {} packets, {} lost, {} repaired, {} dropped, {} duplicates",
        statistics.receive_rate / 1e3,
        now.packets,
        now.lost,
        now.recovered_by_gateway,
        now.dropped,
        statistics.buffered.as_secs_f64() * 1e3,
        all.packets,
        all.lost,
        all.recovered_by_gateway,
        all.dropped,
        all.duplicates,
    )
}
