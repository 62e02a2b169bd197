//! A few seconds in real time: the same parts on sockets, and the same picture.

use std::time::Duration;

use packrat_emulation::scenario::Scenario;
use packrat_lab::live::{Arm, MediaTrial, Stream};

#[tokio::test]
async fn video_in_real_time_is_repaired_by_the_gateway_and_not_by_its_sender() {
    let trial = |arm| {
        let mut trial = MediaTrial::new(Scenario::load("cellular").unwrap(), Stream::Video, arm, 1);
        trial.duration = Duration::from_secs(4);
        trial
    };
    let (alone, assisted) = (trial(Arm::EndToEnd), trial(Arm::Packrat));
    let (alone, assisted) = tokio::join!(alone.run_in_real_time(), assisted.run_in_real_time());
    let (alone, assisted) = (alone.unwrap(), assisted.unwrap());
    assert!(alone.units == assisted.units && alone.units >= 1700, "{alone:?}");
    assert!(alone.retransmissions >= 50 && alone.repaired == 0, "{alone:?}");
    // The hold may end early on a host that is busy with other things.
    assert!(assisted.repaired >= 50, "{assisted:?}");
    assert!(assisted.retransmissions * 4 <= alone.retransmissions, "{assisted:?}, else {alone:?}");
    assert_eq!(assisted.resets, 0);
    assert!(trial(Arm::RepairOnly).run_in_real_time().await.is_err(), "for virtual time only");
}
