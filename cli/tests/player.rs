//! A real player behind `packrat recv`: FFmpeg sends, a gateway repairs what the last mile loses,
//! FFmpeg receives, and each frame is the one that was sent. Skips with a line if there is no
//! FFmpeg.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use packrat_emulation::path::{LinkConfig, LossModel, PathConfig, UdpPath};
use packrat_path::Trials;
use packrat_real_envoy::free_port;
use stream_gateway::{PATIENCE, StreamGateway, program};

use crate::stream_gateway;

/// Seconds of film that are sent.
const SENT: &str = "7";
/// Seconds of film that are received and compared.
const RECEIVED: &str = "4";
const PICTURES: &str = "testsrc=size=320x240:rate=25";

fn ffmpeg() -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error"]).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Command that encodes the same pictures to the same bytes each time.
fn film(in_time: bool) -> Command {
    let mut command = ffmpeg();
    command.args(if in_time { &["-re"][..] } else { &[] });
    command.args(["-f", "lavfi", "-i", PICTURES, "-t", SENT, "-c:v", "mpeg4", "-threads", "1"]);
    command.args(["-b:v", "800k", "-g", "25", "-bitexact"]);
    command
}

/// The hashes of the encoded frames in a file that FFmpeg has written.
fn frames(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| Some(line.split(',').nth(5)?.trim().to_owned())).collect()
}

/// Ends with the test in any case.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A free port whose successor is also free, as RTP needs.
fn ports() -> u16 {
    loop {
        let port = free_port();
        if port.is_multiple_of(2) && free_port() == port + 1 {
            return port;
        }
    }
}

/// True if a program has this UDP port.
fn is_taken(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/udp").unwrap();
    let end = format!(":{port:04X}");
    table.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&end)))
}

#[test]
fn ffmpeg_plays_every_frame_of_a_stream_with_last_mile_losses() {
    if !ffmpeg().arg("-version").status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: there is no FFmpeg here (Debian: apt-get install ffmpeg)");
        return;
    }
    let mut trials = Trials::of("frames that a player gets");
    while trials.go_on() {
        let (places, count, is_on_time) = play();
        // In order, and none is another one.
        assert!(places.is_sorted_by(|one, next| one < next), "{places:?}");
        if !trials.may_judge(is_on_time) {
            continue;
        }
        assert!(count >= 75 && places.len() + 3 >= count, "{} of {count}", places.len());
        let span = places[places.len() - 1] - places[0] + 1;
        assert!(places.len() + 3 >= span, "{} of {span} frames: {places:?}", places.len());
    }
}

/// Sends a film to a player. Returns the places in the film of the intact frames, the number of all
/// frames that came, and whether the last mile was on time.
fn play() -> (Vec<usize>, usize, bool) {
    let folder = tempfile::tempdir().unwrap();
    let [session, sent, received] =
        ["session.sdp", "sent.md5", "received.md5"].map(|name| folder.path().join(name));
    let gateway = StreamGateway::start(&mut Command::new(program()), "127.0.0.1:0", &[]);
    let link = LinkConfig::new(Duration::from_millis(5), 0).with_seed(3);
    let lossy = link.with_loss(LossModel::Independent { rate: 0.08 });
    let last_mile =
        UdpPath::start(PathConfig { server: gateway.listen, upward: link, downward: lossy })
            .unwrap();
    let port = ports();
    let description = format!(
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=film\nc=IN IP4 127.0.0.1\nt=0 0\nm=video {port} RTP/AVP 96\na=rtpmap:96 MP4V-ES/90000\n"
    );
    std::fs::write(&session, description).unwrap();
    let receiver = Command::new(env!("CARGO_BIN_EXE_packrat"))
        .args([
            "recv",
            &format!("udp://{}", last_mile.address()),
            "--latency",
            "2000",
            "--seconds",
            "120",
        ])
        .args(["--to", &format!("127.0.0.1:{port}")])
        .stderr(Stdio::null())
        .spawn();
    let _receiver = Running(receiver.unwrap());
    gateway.wait_for_subscribers(1);
    let player = ffmpeg()
        .args(["-protocol_whitelist", "file,udp,rtp", "-i"])
        .arg(&session)
        .args(["-t", RECEIVED, "-c", "copy", "-f", "framemd5"])
        .arg(&received)
        .spawn();
    let mut player = Running(player.unwrap());
    // It must listen before the first frame.
    let start = Instant::now();
    while !is_taken(port) {
        assert!(start.elapsed() < PATIENCE, "FFmpeg does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let sender = film(true).args(["-f", "rtp", &format!("rtp://{}", gateway.stream)]).spawn();
    let _sender = Running(sender.unwrap());
    assert!(film(false).args(["-f", "framemd5"]).arg(&sent).status().unwrap().success());
    let start = Instant::now();
    while player.0.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < PATIENCE, "FFmpeg does not end: nothing comes");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (sent, received) = (frames(&sent), frames(&received));
    let places: Vec<usize> =
        received.iter().filter_map(|frame| sent.iter().position(|one| one == frame)).collect();
    assert!(gateway.metric("packrat_stream_repairs_arrived_total") >= 5);
    let report = last_mile.report();
    assert!(report.downward.link.lost >= 10);
    (places, received.len(), report.is_on_time())
}
