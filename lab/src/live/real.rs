//! A live stream in real time: sender and receiver on sockets of the loopback interface, the data
//! plane between them, and the emulated path between those. The numbers contain the host's own
//! lateness; the result reports whether the path's lateness is small.

use std::error::Error;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use packrat_dataplane::log::Silent;
use packrat_dataplane::metrics::definitions;
use packrat_dataplane::socket::{bind_reuse_port, local_address};
use packrat_dataplane::{Dataplane, Options, Route, RouteConfig};
use packrat_emulation::path::{DirectionReport, PathConfig, UdpPath};
use packrat_media::udp::{UdpReceiver, UdpSender};
use packrat_media::{MediaKey, Sender, SenderConfig};
use tokio::sync::mpsc;

use super::gateway::GatewayTotals;
use super::media::{
    ARRIVAL_TIME, Arm, MediaResult, MediaTrial, Observations, STREAM_BEGIN, STREAM_SOURCE,
    StreamTraffic, Traffic,
};

/// The longest wait for the receiver's first datagram.
const FIRST_DATAGRAM_PATIENCE: Duration = Duration::from_secs(60);

impl MediaTrial {
    /// Runs the trial in real time. The gateway forwards in every arm; the data plane always has
    /// early copies, so that the arms without them cannot be run.
    ///
    /// # Errors
    /// Sockets or threads are missing, or no packet arrives.
    pub async fn run_in_real_time(&self) -> Result<MediaResult, Box<dyn Error + Send + Sync>> {
        let scenario = match self.arm {
            Arm::Ideal => self.scenario.clone().with_loss(0.0),
            Arm::NoEarlyCopies | Arm::RepairOnly => {
                return Err(
                    "the data plane has early copies always: these arms are for virtual time"
                        .into(),
                );
            }
            _ => self.scenario.clone(),
        };
        let links = scenario.constant_links(self.seed);
        let assistance = self.assistance();
        let config = self.stream.receiver();
        let (key, again) = (MediaKey::new([7; 32]), MediaKey::new([7; 32]));
        let sender = SenderConfig { source: STREAM_SOURCE, repeats: config.repeats };
        let sender = Sender::new(sender, key, [1; 16]);
        let sender = UdpSender::bind(([127, 0, 0, 1], 0).into(), sender).await?;
        let far = UdpPath::start(PathConfig {
            server: sender.local_address()?,
            upward: links.far_up,
            downward: links.far_down,
        })?;
        let dataplane = Dataplane::start(Options { workers: 1 }, Box::new(Silent))?;
        let mut route = RouteConfig::new("live", [far.address()])?;
        route.cache_bytes_per_session = self.gateway.cache_bytes_per_flow as u64;
        let route = dataplane.configure(route)?;
        let socket = bind_reuse_port(([127, 0, 0, 1], 0).into())?;
        let listen = local_address(socket.as_fd()).ok_or("the gateway has no address")?;
        let _attachment = dataplane.listen(&route, listen, 0, socket)?;
        let near = UdpPath::start(PathConfig {
            server: listen,
            upward: links.last_mile_up,
            downward: links.last_mile_down,
        })?;
        let assisted = assistance.as_ref();
        let mut receiver =
            UdpReceiver::connect(near.address(), STREAM_SOURCE, config, again, assisted).await?;
        let Transfer { sent, available, retransmissions } =
            self.transfer(sender, &mut receiver).await?;
        let (far, near) = (far.report(), near.report());
        let traffic = |report: &DirectionReport| Traffic::of(&report.link);
        let observations = Observations {
            sent,
            available,
            links,
            traffic: StreamTraffic {
                client: traffic(&near.upward),
                client_to_server: traffic(&far.upward),
                server: traffic(&far.downward),
                last_mile: traffic(&near.downward),
            },
            retransmissions,
            counts: receiver.take_statistics().accumulated,
            gateway: totals(&route, receiver.assistance().unwrap_or_default().eacks),
            cache_series: Vec::new(),
        };
        let result = self.evaluate(&scenario, observations);
        Ok(MediaResult { on_time: far.is_on_time() && near.is_on_time(), ..result })
    }

    /// Sends the whole stream, and receives it.
    async fn transfer(
        &self,
        mut sender: UdpSender,
        receiver: &mut UdpReceiver,
    ) -> Result<Transfer, Box<dyn Error + Send + Sync>> {
        let origin = Instant::now();
        let micros = move || u64::try_from(origin.elapsed().as_micros()).unwrap_or(u64::MAX);
        let ((sizes, rhythm), duration) = (self.stream.burst(), self.duration);
        let (end, mut ended) = mpsc::channel::<()>(1);
        let sending = tokio::spawn(async move {
            let _end = end;
            sender.wait_for_receiver(FIRST_DATAGRAM_PATIENCE).await?;
            sender.serve(Duration::from_micros(STREAM_BEGIN.as_micros())).await?;
            let (mut sent, mut next) = (Vec::new(), Instant::now());
            let last = next + duration;
            while next < last {
                for size in &sizes {
                    let unit = vec![sent.len() as u8; *size];
                    sent.push(micros());
                    sender.send(&unit).await?;
                }
                next += rhythm;
                sender.serve(next.saturating_duration_since(Instant::now())).await?;
            }
            sender.serve(ARRIVAL_TIME).await?;
            Ok::<_, std::io::Error>((sent, sender.sender().retransmissions()))
        });
        let mut arrived = Vec::new();
        loop {
            tokio::select! {
                unit = receiver.next() => {
                    let unit = unit?;
                    arrived.push((unit.number, unit.available.as_micros()));
                }
                _ = ended.recv() => break,
            }
        }
        let (sent, retransmissions) = sending.await??;
        let mut available = vec![None; sent.len()];
        for (number, at) in arrived {
            let place = usize::try_from(number).ok().and_then(|number| available.get_mut(number));
            if let Some(place) = place {
                *place = Some(at);
            }
        }
        Ok(Transfer { sent, available, retransmissions })
    }
}

/// A stream that has been sent.
struct Transfer {
    /// Times of sending, and of availability, by unit, in microseconds.
    sent: Vec<u64>,
    available: Vec<Option<u64>>,
    retransmissions: u64,
}

/// The gateway's work, from the metrics of its route, and the client's eACKs.
fn totals(route: &Route, eacks: u64) -> GatewayTotals {
    let metric = |name: &str| metric(route, name);
    let resets = definitions().iter().map(|definition| definition.series());
    let resets = resets.filter(|series| series.starts_with("packrat_resets_total"));
    GatewayTotals {
        repaired: metric("packrat_repairs_total"),
        early_copies: metric("packrat_early_copies_total"),
        eacks,
        decode_failures: metric("packrat_eacks_total{result=\"failed\"}"),
        resets: resets.map(|series| metric(&series)).sum(),
        cache_mean: f64::NAN,
        cache_max: metric("packrat_cache_high_water_bytes"),
    }
}

fn metric(route: &Route, name: &str) -> u64 {
    let index = definitions().iter().position(|definition| definition.series() == name);
    index.and_then(|index| route.metrics().values().nth(index)).unwrap_or_default()
}
