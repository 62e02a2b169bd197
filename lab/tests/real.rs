//! A few seconds in real time: the same parts on sockets, and the same picture.

use std::time::Duration;

use packrat_emulation::scenario::Scenario;
use packrat_lab::live::{Arm, MediaTrial, Stream};
use packrat_path::Trials;

#[tokio::test]
async fn real_time_video_is_repaired_by_the_gateway_not_the_sender() {
    let trial = |arm| {
        let mut trial = MediaTrial::new(Scenario::load("cellular").unwrap(), Stream::Video, arm, 1);
        trial.duration = Duration::from_secs(4);
        trial
    };
    let mut trials = Trials::of("video in real time");
    while trials.go_on() {
        let (alone, assisted) = (trial(Arm::EndToEnd), trial(Arm::Packrat));
        let (alone, assisted) = tokio::join!(alone.run_in_real_time(), assisted.run_in_real_time());
        let (alone, assisted) = (alone.unwrap(), assisted.unwrap());
        assert!(alone.units == assisted.units && alone.units >= 1700, "{alone:?}");
        assert_eq!(
            (alone.gateway.repaired, alone.gateway.resets, assisted.gateway.resets),
            (0, 0, 0)
        );
        if trials.may_judge(alone.on_time && assisted.on_time) {
            assert!(
                alone.retransmissions >= 50 && assisted.gateway.repaired >= 50,
                "{alone:?} {assisted:?}"
            );
            let (few, many) = (assisted.retransmissions, alone.retransmissions);
            assert!(few * 4 <= many, "{assisted:?}, else {alone:?}");
        }
    }
    assert!(trial(Arm::RepairOnly).run_in_real_time().await.is_err(), "for virtual time only");
}
