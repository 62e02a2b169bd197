//! A real WebRTC session between two unmodified peers: with Packrat's client between the receiver's
//! socket and its stack, nothing is missing and hardly anything is asked for again. The session is
//! that of the example `webrtc`.

use std::time::Duration;

#[path = "../examples/webrtc/peer.rs"]
mod peer;
#[allow(dead_code)] // the example shows latencies
#[path = "../examples/webrtc/session.rs"]
mod session;

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

/// All frames but the last two, whose loss nothing newer would show, came whole and in order. A
/// host that is busy with other things may be too late for some.
fn is_intact(frames: &Frames) -> bool {
    let in_order = frames.numbers.is_sorted_by(|one, next| one < next);
    frames.corrupt == 0 && in_order && frames.numbers.len() + 4 >= frames.sent as usize
}

#[tokio::test]
async fn media_is_whole_and_its_sender_is_hardly_asked() {
    str0m::crypto::from_feature_flags().install_process_default();
    let (plain, assisted) = tokio::join!(run(settings(false)), run(settings(true)));
    let (plain, assisted) = (plain.unwrap(), assisted.unwrap());
    // The same gateway forwards both; the one without a client asks its sender for what is lost,
    // and does without lost audio.
    assert!(plain.lost >= 30 && plain.asked >= 20 && plain.retransmissions >= 20, "{plain:?}");
    assert!(plain.audio.numbers.len() + 4 < plain.audio.sent as usize, "{plain:?}");
    assert!(assisted.lost >= 30, "{assisted:?}");
    assert!(is_intact(&assisted.video) && is_intact(&assisted.audio), "{assisted:?}");
    assert!(assisted.asked * 5 <= plain.asked, "{} of {}", assisted.asked, plain.asked);
    assert!(assisted.retransmissions * 5 <= plain.retransmissions, "{assisted:?}");
    assert!(assisted.arrived * 100 >= assisted.packets * 99, "{assisted:?}");
    assert!(
        assisted.waited > 0 && assisted.assistance.is_some_and(|stats| stats.eacks > 0),
        "{assisted:?}"
    );
}
