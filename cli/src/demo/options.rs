//! Options of the demo.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

/// Options of `packrat demo`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DemoOptions {
    /// The gateway: Packrat's filter in a real Envoy, or the same data plane in a process of its
    /// own
    #[arg(long, value_enum, default_value_t = GatewayKind::Envoy)]
    pub(crate) gateway: GatewayKind,
    /// The unmodified HTTP/3 server that sends
    #[arg(long, value_enum, default_value_t = ServerKind::Caddy)]
    pub(crate) server: ServerKind,
    #[command(flatten)]
    pub(crate) program: ClientOptions,
    #[command(flatten)]
    pub(crate) policy: PolicyOptions,
    #[command(flatten)]
    pub(crate) network: NetworkOptions,
    /// Size of the download, for example 25MB or 512KB
    #[arg(long, value_name = "SIZE", default_value = "25MB")]
    pub(crate) size: Size,
    /// Decides the data and what the last mile loses
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Make another download with Packrat by a client whose address and port change after this many
    /// seconds (packrat-moved)
    #[arg(long, value_name = "SECONDS", value_parser = moment)]
    pub(crate) rebind_after: Option<Duration>,
    /// Make another download with Packrat while 200,000 random datagrams and 50,000 forged
    /// handshakes reach the gateway (packrat-flooded); in proportion for downloads of another size
    /// than 25 MB
    #[arg(long)]
    pub(crate) flood: bool,
    /// Upload instead of downloading, as `packrat put` does: the client's datagrams are repaired
    #[arg(long, conflicts_with = "client")]
    pub(crate) upload: bool,
    /// Which downloads to run
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = ArmName::DEFAULT)]
    pub(crate) arms: Vec<ArmName>,
    /// Write the results as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Seconds after which the download without help is stopped; its goodput counts the bytes
    /// received by then
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    pub(crate) patience: u64,
    /// Keep certificates, configurations, logs, qlogs and captures of the server's datagrams in
    /// this folder instead of a temporary one
    #[arg(long, value_name = "FOLDER")]
    pub(crate) keep: Option<PathBuf>,
    /// Folder in which `make demo` installed Envoy and the web servers
    #[arg(long, value_name = "FOLDER", default_value = ".packrat")]
    pub(crate) parts: PathBuf,
}

/// Options of the client.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClientOptions {
    /// The client that downloads; clients other than packrat do not know it, and use an agent when
    /// they are assisted
    #[arg(long, value_enum, default_value_t = ClientKind::Packrat)]
    pub(crate) client: ClientKind,
    /// Pages that chromium loads, datagrams that echo sends, frames that webrtc and
    /// browser-webrtc receive [default: 10, 1800, 600]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) repeats: Option<u32>,
    /// Longest time that received data waits in the agent while the gateway repairs a loss before
    /// it, in milliseconds; 0: no wait
    #[arg(long, value_name = "MS")]
    pub(crate) maximum_hold: Option<u64>,
}

/// Options of the gateway's route.
#[derive(Debug, Clone, Args)]
pub(crate) struct PolicyOptions {
    /// The operator's word for the server's congestion control; without it one of eight sessions is a
    /// trial that finds out whether the server tolerates losses, and does not repair five of them
    #[arg(long, value_enum, default_value_t = SenderKind::Any)]
    pub(crate) sender: SenderKind,
    /// The gateway sends what sparse flows bring (echo, webrtc's audio, handshakes) twice to clients without a
    /// session: to the client that has no help
    #[arg(long)]
    pub(crate) sparse_copies: bool,
}

/// Options of the network.
#[derive(Debug, Clone, Args)]
pub(crate) struct NetworkOptions {
    /// The networks, one after the other: delays and rates of the far segment and of the last mile,
    /// and how much the last mile loses
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = ProfileName::DEFAULT)]
    pub(crate) profile: Vec<ProfileName>,
    /// Share of datagrams that the last mile loses, instead of the profile's (0.04 is 4 %)
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) loss: Option<f64>,
    /// Mean number of datagrams that are lost in a row; 1 loses each independently
    #[arg(long, value_name = "DATAGRAMS", default_value_t = 1.0, value_parser = burst)]
    pub(crate) burst: f64,
    /// Which way the last mile loses
    #[arg(long, value_enum, default_value_t = LossDirection::Both)]
    pub(crate) loss_direction: LossDirection,
    /// The queue in front of each link, one bandwidth-delay product of the whole path long
    #[arg(long, value_enum, default_value_t = QueueKind::DropTail)]
    pub(crate) queue: QueueKind,
}

impl DemoOptions {
    /// The downloads, in the order in which they run.
    pub(crate) fn arms_to_run(&self) -> Vec<ArmName> {
        let mut arms: Vec<_> = ArmName::DEFAULT
            .into_iter()
            .chain(ArmName::ALTERNATIVES)
            .filter(|name| self.arms.contains(name))
            .collect();
        if self.rebind_after.is_some() {
            arms.push(ArmName::PackratMoved);
        }
        if self.flood {
            arms.push(ArmName::PackratFlooded);
        }
        arms
    }
}

/// The program that runs the gateway's data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum GatewayKind {
    /// Envoy, with the filter as a dynamic module.
    Envoy,
    /// The command `packrat-gateway`.
    Standalone,
}

/// The server that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ServerKind {
    /// Caddy (quic-go, Reno).
    Caddy,
    /// aioquic (Reno).
    Aioquic,
    /// ngtcp2 (BBRv2), Debian's package; tools/install-alternatives installs it.
    Ngtcp2,
}

/// The client that downloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ClientKind {
    /// `packrat get` (s2n-quic).
    Packrat,
    /// libcurl (ngtcp2), unmodified.
    Curl,
    /// curl, through the agent's SOCKS listener when it is assisted.
    CurlSocks,
    /// aioquic, unmodified.
    Aioquic,
    /// quic-go, unmodified.
    QuicGo,
    /// Chromium, headless: a page of 30 objects, several times, and then the file.
    Chromium,
    /// TCP inside a WireGuard tunnel (wireguard-go), from a web server at its other end (root).
    Wireguard,
    /// 60 datagrams a second, each of which its server answers at once, as a game's.
    Echo,
    /// A WebRTC peer (aiortc) that receives video from another one.
    Webrtc,
    /// A page of Chromium that receives another page's video from a media server (pion), through
    /// the agent's TURN server
    BrowserWebrtc,
}

/// The operator's word for a server's congestion control, as in the gateway's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SenderKind {
    /// Not known: the gateway finds out itself.
    Any,
    /// CUBIC, NewReno.
    LossBased,
    /// BBRv2, BBRv3.
    Bbr,
    /// BBRv1.
    Bbr1,
}

/// A network: three from the literature, and one without a far segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProfileName {
    /// Far 30 ms, 20 Mbit/s; last mile 2 ms, 50 Mbit/s, 4 % loss
    Wifi,
    /// Far 30 ms, 20 Mbit/s; last mile 10 ms, 50 Mbit/s, 10 % loss
    Cellular,
    /// Far 50 ms, 20 Mbit/s; last mile 30 ms, 50 Mbit/s, 10 % loss
    Satellite,
    /// Far 1 ms, 500 Mbit/s (the server beside the gateway); last mile 15 ms, 50 Mbit/s, 1 % loss
    Ingress,
}

impl ProfileName {
    /// The networks of a demo by default, in this order.
    pub(crate) const DEFAULT: [Self; 2] = [Self::Wifi, Self::Ingress];
}

/// The direction in which the last mile loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LossDirection {
    /// Data and acknowledgements alike
    Both,
    /// Only towards the client
    Down,
}

/// The queue in front of each link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum QueueKind {
    /// Drops datagrams that do not fit
    DropTail,
    /// Adaptive random early detection
    Red,
}

/// A download of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ArmName {
    /// No loss on the last mile: the ceiling
    Lossless,
    /// With loss, without assistance
    EndToEnd,
    /// With loss and assistance
    Packrat,
    /// With loss and assistance, and the client's address and port change (with --rebind-after)
    PackratMoved,
    /// With loss and assistance, and an attacker floods the gateway (with --flood)
    PackratFlooded,
    /// With loss, from a server with BBR instead (ngtcp2)
    Bbr,
    /// BBR server, with assistance
    PackratBbr,
    /// HTTP/3 ends in Envoy at the gateway's place, which has the server's key; on the last mile its
    /// default congestion control, BBRv1
    Terminated,
    /// Ended at the gateway, with BBRv2
    TerminatedBbr2,
    /// Ended at the gateway, with CUBIC
    TerminatedCubic,
    /// A tunnel to the gateway's place: Hysteria 2 with BBR
    Hysteria,
    /// Hysteria with the last mile's rate, at which it sends whatever is lost
    HysteriaRate,
    /// A tunnel to the gateway's place: kcptun's KCP, with forward error correction
    Kcp,
}

/// A tunnel with repair of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tunnel {
    /// The program's name for its protocol.
    pub(crate) protocol: &'static str,
    /// True if it sends at the last mile's rate.
    pub(crate) at_rate: bool,
    /// True if it shows a certificate.
    pub(crate) over_tls: bool,
}

impl Tunnel {
    /// Hysteria 2, with BBR.
    const HYSTERIA: Self = Self { protocol: "hysteria", at_rate: false, over_tls: true };
    /// Hysteria 2, at a rate.
    const HYSTERIA_RATE: Self = Self { at_rate: true, ..Self::HYSTERIA };
    /// KCP with forward error correction.
    const KCP: Self = Self { protocol: "kcp", at_rate: false, over_tls: false };
}

impl ArmName {
    /// The arms that run by default, in this order.
    pub(crate) const DEFAULT: [Self; 3] = [Self::Lossless, Self::EndToEnd, Self::Packrat];

    /// The arms of what a user might have instead, in this order.
    pub(crate) const ALTERNATIVES: [Self; 8] = [
        Self::Bbr,
        Self::PackratBbr,
        Self::Terminated,
        Self::TerminatedBbr2,
        Self::TerminatedCubic,
        Self::Hysteria,
        Self::HysteriaRate,
        Self::Kcp,
    ];

    /// True if the client looks for a gateway.
    pub(crate) fn is_assisted(self) -> bool {
        matches!(self, Self::Packrat | Self::PackratMoved | Self::PackratFlooded | Self::PackratBbr)
    }

    /// The server of this arm, of the kind asked for unless the arm is about another one.
    pub(crate) fn server(self, asked: ServerKind) -> ServerKind {
        match self {
            Self::Bbr | Self::PackratBbr => ServerKind::Ngtcp2,
            _ => asked,
        }
    }

    /// The tunnel through which the client downloads.
    pub(crate) fn tunnel(self) -> Option<Tunnel> {
        match self {
            Self::Hysteria => Some(Tunnel::HYSTERIA),
            Self::HysteriaRate => Some(Tunnel::HYSTERIA_RATE),
            Self::Kcp => Some(Tunnel::KCP),
            _ => None,
        }
    }

    /// True if it is slow for a reason, so that it need not end.
    pub(crate) fn may_be_stopped(self) -> bool {
        self == Self::EndToEnd || Self::ALTERNATIVES.contains(&self)
    }
}

macro_rules! displayed_as_on_the_command_line {
    ($($kind:ty),*) => {
        $(impl std::fmt::Display for $kind {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let value = self.to_possible_value();
                formatter.pad(value.as_ref().map_or("", |value| value.get_name()))
            }
        })*
    };
}
displayed_as_on_the_command_line!(
    GatewayKind,
    ServerKind,
    ClientKind,
    ProfileName,
    LossDirection,
    QueueKind,
    SenderKind,
    ArmName
);

/// A number of bytes, written with a decimal unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// Bytes of the largest download: it is kept in a file, and a demo must end.
const LARGEST_BYTES: u64 = 10_000_000_000;

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let factor = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" => 1_000,
            "m" | "mb" => 1_000_000,
            "g" | "gb" => 1_000_000_000,
            _ => return Err(format!("unknown unit {unit:?}: use B, KB, MB or GB")),
        };
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
        match bytes {
            Some(bytes) if (1..=LARGEST_BYTES).contains(&bytes) => Ok(Self(bytes)),
            _ => Err("give a size from 1 byte to 10 GB, for example 25MB".to_owned()),
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=0.9).contains(&share) => Ok(share),
        _ => Err("give a share from 0 to 0.9, for example 0.04 for 4 %".to_owned()),
    }
}

fn moment(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>().map(Duration::try_from_secs_f64) {
        Ok(Ok(moment)) if moment <= Duration::from_secs(600) => Ok(moment),
        _ => Err("give a number of seconds up to 600, for example 1.5".to_owned()),
    }
}

fn burst(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(datagrams) if (1.0..=1000.0).contains(&datagrams) => Ok(datagrams),
        _ => Err("give a mean number of datagrams from 1 to 1000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_decimal_units() {
        assert_eq!("25MB".parse(), Ok(Size(25_000_000)));
        assert_eq!("512 kb".parse(), Ok(Size(512_000)));
        assert_eq!("7".parse(), Ok(Size(7)));
        assert_eq!("2g".parse(), Ok(Size(2_000_000_000)));
        for wrong in ["", "MB", "0", "1.5MB", "3 parsecs", "-1", "99999999999999999999", "11GB"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn loss_is_a_share_and_not_a_percentage() {
        assert_eq!(share("0.04"), Ok(0.04));
        assert!(share("4").is_err());
        assert!(share("NaN").is_err());
        assert!(burst("0.5").is_err());
    }
}
