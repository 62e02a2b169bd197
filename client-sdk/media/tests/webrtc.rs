//! A real WebRTC session between two unmodified peers: with Packrat's client between the receiver's
//! socket and its stack, no packet is missing and very few are requested again. The session is the
//! example `webrtc`.

use std::time::Duration;

#[path = "../examples/webrtc/peer.rs"]
mod peer;
#[allow(dead_code)] // the example shows latencies
#[path = "../examples/webrtc/session.rs"]
mod session;

use packrat_path::Trials;
use session::{Frames, Settings, run};

fn settings(assisted: bool) -> Settings {
    Settings {
        assisted,
        loss: 0.06,
        far_delay: Duration::from_millis(30),
        near_delay: Duration::from_millis(5),
        duration: Duration::from_secs(3),
    }
}

/// All frames but a few came: the loss of the last ones is not revealed by newer packets.
fn is_whole(frames: &Frames) -> bool {
    frames.numbers.len() + 4 >= frames.sent as usize
}

#[tokio::test]
async fn media_is_whole_and_its_sender_is_hardly_asked() {
    str0m::crypto::from_feature_flags().install_process_default();
    let mut trials = Trials::of("frames that come whole by WebRTC");
    while trials.go_on() {
        let (plain, assisted) = tokio::join!(run(settings(false)), run(settings(true)));
        let (plain, assisted) = (plain.unwrap(), assisted.unwrap());
        for frames in [&plain.video, &plain.audio, &assisted.video, &assisted.audio] {
            let is_in_order = frames.numbers.is_sorted_by(|one, next| one < next);
            assert!(frames.corrupt == 0 && is_in_order, "{frames:?}");
        }
        assert!(assisted.assistance.is_some_and(|stats| stats.eacks > 0), "{assisted:?}");
        if !trials.may_judge(plain.is_on_time && assisted.is_on_time) {
            continue;
        }
        // The same gateway forwards both; the one without a client asks its sender for lost
        // packets, and continues without lost audio.
        assert!(plain.lost >= 30 && plain.asked >= 20 && plain.retransmissions >= 20, "{plain:?}");
        assert!(plain.audio.numbers.len() + 4 < plain.audio.sent as usize, "{plain:?}");
        assert!(assisted.lost >= 30 && assisted.waited > 0, "{assisted:?}");
        assert!(is_whole(&assisted.video) && is_whole(&assisted.audio), "{assisted:?}");
        assert!(assisted.asked * 5 <= plain.asked, "{} of {}", assisted.asked, plain.asked);
        assert!(assisted.retransmissions * 5 <= plain.retransmissions, "{assisted:?}");
        assert!(assisted.arrived * 100 >= assisted.packets * 99, "{assisted:?}");
    }
}
