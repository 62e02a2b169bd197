//! The example `live`, as a newcomer runs it: bytes in at the sender, a gateway and a last mile
//! that loses packets, the same bytes out.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use packrat_dataplane::log::Silent;
use packrat_dataplane::socket::{bind_reuse_port, local_address};
use packrat_dataplane::{Dataplane, Options, RouteConfig};
use packrat_emulation::path::{LinkConfig, LossModel, PathConfig, UdpPath};
use packrat_media::Statistics;
use packrat_path::Trials;
use tokio::sync::oneshot;

#[path = "../examples/live/receive.rs"]
mod receive;
#[path = "../examples/live/send.rs"]
mod send;

const SECRET: [u8; 32] = [5; 32];
const LATENCY: Duration = Duration::from_millis(1500);

fn input() -> Vec<u8> {
    (0..900_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// The end of a transmission: its output, the statistics of both ends, and whether the path was on
/// time.
struct Ended {
    output: Vec<u8>,
    sent: send::Sent,
    received: Statistics,
    lines_with_a_rate: usize,
    is_on_time: bool,
}

async fn transmit(assisted: bool) -> Ended {
    let (ready, at) = oneshot::channel();
    let listen: SocketAddr = ([127, 0, 0, 1], 0).into();
    let settings = send::Settings { listen, secret: SECRET, rate: Some(3_000_000) };
    let sending = tokio::spawn(async move {
        let input = input();
        send::run(settings, &input[..], |at| ready.send(at).unwrap()).await.unwrap()
    });
    let dataplane = Dataplane::start(Options { workers: 1 }, Box::new(Silent)).unwrap();
    let route =
        dataplane.configure(RouteConfig::new("live", [at.await.unwrap()]).unwrap()).unwrap();
    let socket = bind_reuse_port(listen).unwrap();
    let gateway = local_address(socket.as_fd()).unwrap();
    let _attachment = dataplane.listen(&route, gateway, 0, socket).unwrap();
    let link = LinkConfig::new(Duration::from_millis(5), 0).with_seed(6);
    let lossy = link.with_loss(LossModel::Independent { rate: 0.08 });
    let path =
        UdpPath::start(PathConfig { server: gateway, upward: link, downward: lossy }).unwrap();
    let mut output = Vec::new();
    let settings =
        receive::Settings { peer: path.address(), secret: SECRET, latency: LATENCY, assisted };
    let (mut lines, mut lines_with_a_rate) = (0, 0);
    let received = receive::run(settings, &mut output, |line| {
        assert!(line.contains("pktRcvLoss"), "{line}");
        lines += 1;
        lines_with_a_rate += usize::from(!line.contains(" 0.00 Mbit/s (mbpsRecvRate)"));
    });
    let received = received.await.unwrap();
    assert!(lines >= 2, "{lines}: a line each second");
    let is_on_time = path.report().is_on_time();
    Ended { output, sent: sending.await.unwrap(), received, lines_with_a_rate, is_on_time }
}

#[tokio::test]
async fn what_goes_in_comes_out() {
    let mut trials = Trials::of("a live stream that its sender hardly repeats");
    while trials.go_on() {
        let (plain, assisted) = tokio::join!(transmit(false), transmit(true));
        let (sent, plain_sent) = (&assisted.sent, &plain.sent);
        assert!(sent.packets == plain_sent.packets && sent.packets >= 680, "{sent:?}");
        for ended in [&plain, &assisted] {
            // Whatever was not too late is there.
            let dropped = ended.received.accumulated.dropped;
            assert!(dropped > 0 || ended.output == input(), "{:?}", ended.received);
        }
        let (plain_counts, counts) = (plain.received.accumulated, assisted.received.accumulated);
        assert_eq!(plain_counts.recovered_by_gateway, 0, "{plain_counts:?}");
        if !trials.may_judge(plain.is_on_time && assisted.is_on_time) {
            continue;
        }
        assert_eq!((plain_counts.dropped, counts.dropped), (0, 0), "{plain_counts:?} {counts:?}");
        assert!(plain.lines_with_a_rate >= 1 && assisted.lines_with_a_rate >= 1);
        assert!(plain_counts.recovered_end_to_end >= 30, "{plain_counts:?}");
        assert!(counts.recovered_by_gateway >= 30, "{counts:?}");
        // The first packets may be lost before there is a session.
        assert!(
            sent.retransmissions * 4 <= plain_sent.retransmissions,
            "{sent:?}, else {plain_sent:?}"
        );
    }
}
