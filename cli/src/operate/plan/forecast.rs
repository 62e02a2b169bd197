//! The expected effect of assistance, from what is known of a path.

use clap::ValueEnum;
use packrat_figures::response::Sender;

use super::super::output::{milliseconds, percent};

/// Payload bytes of a datagram that rates are computed with.
const DATAGRAM_BYTES: f64 = 1350.0;
/// Time in seconds that clients wait for a repair beside three round trips, and the longest wait by
/// default.
const PATIENCE_MARGIN: f64 = 0.1;
const PATIENCE_MAXIMUM: f64 = 1.0;
/// Below this loss there is nothing to repair.
const NO_LOSS: f64 = 1e-4;
/// A gain from here on is worth a gateway.
const WORTH_IT: f64 = 1.1;

/// A sender's congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Reaction {
    /// NewReno
    Reno,
    /// CUBIC: most QUIC servers
    Cubic,
    /// BBR
    Bbr,
}

/// The two segments and the sender.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Paths {
    /// Round trip of the last mile in seconds.
    pub(super) last_mile: f64,
    pub(super) last_mile_loss: f64,
    /// Round trip of the far segment in seconds.
    pub(super) far: f64,
    pub(super) far_loss: f64,
    pub(super) sender: Reaction,
    /// Capacity in bits per second.
    pub(super) bits: f64,
    /// Repairs as a share of the forwarded bytes.
    pub(super) budget: f64,
}

/// Expected effect of assistance.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    /// Share of the last mile's losses that repairs fill in time.
    pub(super) hidden: f64,
    /// Bits per second without a gateway.
    pub(super) without: f64,
    /// Bits per second with one.
    pub(super) with: f64,
    pub(super) pays: bool,
    pub(super) why: String,
}

impl Plan {
    pub(super) fn of(paths: &Paths) -> Self {
        let hidden = hidden(paths);
        let survives = (1.0 - paths.far_loss) * (1.0 - paths.last_mile_loss);
        let (loss_without, round_trip) = (1.0 - survives, paths.far + paths.last_mile);
        let loss_with =
            1.0 - (1.0 - paths.far_loss) * (1.0 - paths.last_mile_loss * (1.0 - hidden));
        let rate = |loss: f64| {
            let sender = match paths.sender {
                Reaction::Reno => Sender::Reno,
                Reaction::Cubic => Sender::Cubic,
                Reaction::Bbr => Sender::Bbr,
            };
            let limited = sender.datagrams_per_second(round_trip, loss).unwrap_or(f64::INFINITY);
            (limited * DATAGRAM_BYTES * 8.0).min(paths.bits) * (1.0 - loss)
        };
        let (without, with) = (rate(loss_without), rate(loss_with));
        let gain = with / without;
        let pays = gain >= WORTH_IT;
        let why = reason(paths, hidden, pays);
        Self { hidden, without, with, pays, why }
    }
}

/// The reason why assistance pays, or does not.
fn reason(paths: &Paths, hidden: f64, pays: bool) -> String {
    if paths.last_mile_loss < NO_LOSS {
        "the last mile loses next to nothing: there is nothing to hide".to_owned()
    } else if pays {
        format!(
            "the sender would take each loss of the last mile for congestion and wait {} for its repair; the gateway repairs {} of them within {}",
            milliseconds(paths.far + paths.last_mile),
            percent(hidden),
            milliseconds(paths.last_mile * 1.5),
        )
    } else if paths.sender == Reaction::Bbr {
        format!(
            "a BBR sender does not slow down at this loss; what is saved is {} of its datagrams that it need not send twice, and a wait of {} for each",
            percent(paths.last_mile_loss * hidden),
            milliseconds(paths.far),
        )
    } else if hidden < 0.5 {
        "repairs come too late or exceed the budget: most losses stay visible".to_owned()
    } else if paths.far_loss > paths.last_mile_loss {
        "most of the loss is on the far segment, before the gateway: only the sender can repair that"
            .to_owned()
    } else {
        "the path's rate is the limit, not its loss: at this round trip a sender recovers by itself"
            .to_owned()
    }
}

/// The share of losses that repairs fill before the client gives them up.
fn hidden(paths: &Paths) -> f64 {
    let loss = paths.last_mile_loss;
    if loss <= 0.0 {
        return 1.0;
    }
    let patience = (3.0 * paths.last_mile + PATIENCE_MARGIN).min(PATIENCE_MAXIMUM);
    // The hole is known half a round trip after the loss, and the repair there another half later;
    // then once a round trip.
    let attempts = ((patience - 0.01) / paths.last_mile.max(1e-4)).floor();
    if attempts < 1.0 {
        return 0.0;
    }
    // Copies make up for what time does not allow; each transmission is lost as any other.
    let arrives = 1.0 - loss.powf(attempts.max(2.0));
    let wanted = loss / (1.0 - loss);
    arrives * (paths.budget / wanted).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIFI: Paths = Paths {
        last_mile: 0.004,
        last_mile_loss: 0.04,
        far: 0.06,
        far_loss: 0.0,
        sender: Reaction::Cubic,
        bits: 20e6,
        budget: 0.25,
    };

    #[test]
    fn the_demos_path_pays_as_the_demo_shows() {
        // The demo measures 1.26 Mbit/s end to end and 18.7 with Packrat.
        let plan = Plan::of(&WIFI);
        assert!(plan.pays, "{plan:?}");
        assert!(
            (0.5e6..2e6).contains(&plan.without) && (18e6..=20e6).contains(&plan.with),
            "{plan:?}"
        );
    }

    #[test]
    fn it_says_why_it_does_not_pay() {
        let why = |paths: Paths| {
            let plan = Plan::of(&paths);
            assert!(!plan.pays, "{plan:?}");
            plan.why
        };
        assert!(why(Paths { last_mile_loss: 0.0, ..WIFI }).contains("nothing to hide"));
        assert!(why(Paths { sender: Reaction::Bbr, ..WIFI }).contains("BBR"));
        assert!(why(Paths { far_loss: 0.3, ..WIFI }).contains("far segment"));
        assert!(why(Paths { last_mile: 1.0, ..WIFI }).contains("too late"));
        assert!(
            why(Paths { far: 0.001, last_mile: 0.001, last_mile_loss: 0.001, ..WIFI })
                .contains("limit")
        );
    }

    #[test]
    fn a_budget_that_is_too_small_hides_less() {
        let small = Plan::of(&Paths { budget: 0.01, ..WIFI });
        assert!(small.hidden < 0.3 && small.with < Plan::of(&WIFI).with, "{small:?}");
    }
}
