//! The expected effect of assistance on a path, looked up in downloads that were measured.

use clap::ValueEnum;
use packrat_figures::plan::{Advice, Forecast, Path, Segment, WORTH_IT};
use packrat_figures::response::Sender;

use super::super::output::{milliseconds, percent};

/// Factor of the configured budget up to which a gateway's repairs follow the measured loss.
const BUDGET_FOLLOWS: f64 = 2.0;
/// Loss below which no repairs are needed.
const NO_LOSS: f64 = 1e-4;

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
    /// Share of the last mile's losses that the budget of repairs allows for.
    pub(super) hidden: f64,
    /// Goodput of one download in steady state.
    pub(super) forecast: Forecast,
    pub(super) advice: Advice,
    pub(super) why: String,
}

impl Plan {
    pub(super) fn of(paths: &Paths) -> Self {
        let sender = match paths.sender {
            Reaction::Reno => Sender::Reno,
            Reaction::Cubic => Sender::Cubic,
            Reaction::Bbr => Sender::Bbr,
        };
        let path = Path {
            far: Segment { round_trip: paths.far, loss: paths.far_loss },
            last_mile: Segment { round_trip: paths.last_mile, loss: paths.last_mile_loss },
            rate: paths.bits,
        };
        let mut forecast = Forecast::of(sender, &path);
        let hidden = hidden(paths);
        if hidden < 1.0 {
            // The sender sees the rest, as it sees the losses of the far segment.
            let rest = paths.last_mile_loss * (1.0 - hidden);
            let loss = 1.0 - (1.0 - paths.far_loss) * (1.0 - rest);
            let far = Segment { loss, ..path.far };
            forecast.assisted = Forecast::of(sender, &Path { far, ..path }).assisted;
        }
        let advice = forecast.advice();
        let mut plan = Self { hidden, forecast, advice, why: String::new() };
        plan.why = reason(paths, hidden, plan.pays());
        plan
    }

    /// True if a gateway gains a tenth.
    pub(super) fn pays(&self) -> bool {
        self.gain() >= WORTH_IT
    }

    /// Goodput with a gateway over that without.
    pub(super) fn gain(&self) -> f64 {
        self.forecast.assisted.middle / self.forecast.end_to_end.middle.max(1.0)
    }
}

/// The reason why a gateway pays, or does not.
fn reason(paths: &Paths, hidden: f64, pays: bool) -> String {
    if pays {
        format!(
            "the sender would take losses of the last mile for congestion and wait {} for each repair; the gateway repairs {} of them within {}",
            milliseconds(paths.far + paths.last_mile),
            percent(hidden),
            milliseconds(paths.last_mile * 1.5),
        )
    } else if paths.far_loss > paths.last_mile_loss {
        "most of the loss is on the far segment, before the gateway: only the sender can repair that"
            .to_owned()
    } else if paths.last_mile_loss < NO_LOSS {
        "the last mile loses next to nothing: there is nothing to hide".to_owned()
    } else if hidden < 0.9 {
        "the budget of repairs covers a part of the losses only: most stay visible".to_owned()
    } else if paths.sender == Reaction::Bbr {
        "a BBR sender hardly slows down at this loss".to_owned()
    } else {
        "the path's rate is the limit, not its loss: at this round trip a sender recovers by itself"
            .to_owned()
    }
}

/// The share of losses that the budget covers.
fn hidden(paths: &Paths) -> f64 {
    let loss = paths.last_mile_loss;
    if loss <= 0.0 {
        return 1.0;
    }
    let wanted = loss / (1.0 - loss).max(1e-3);
    (BUDGET_FOLLOWS * paths.budget / wanted).min(1.0)
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
        assert!(plan.pays(), "{plan:?}");
        let Forecast { end_to_end, assisted, .. } = plan.forecast;
        assert!((0.4e6..2e6).contains(&end_to_end.middle), "{plan:?}");
        assert!((13e6..=20e6).contains(&assisted.middle), "{plan:?}");
        assert!(end_to_end.low <= end_to_end.middle && end_to_end.middle <= end_to_end.high);
    }

    #[test]
    fn it_says_why_it_does_not_pay() {
        let why = |paths: Paths| {
            let plan = Plan::of(&paths);
            assert!(!plan.pays(), "{plan:?}");
            plan.why
        };
        assert!(why(Paths { last_mile_loss: 0.0, ..WIFI }).contains("nothing to hide"));
        let slight = Paths { last_mile_loss: 0.001, ..WIFI };
        assert!(why(Paths { sender: Reaction::Bbr, ..slight }).contains("BBR"));
        assert!(
            why(Paths { far_loss: 0.04, last_mile_loss: 0.001, ..WIFI }).contains("far segment")
        );
    }

    #[test]
    fn a_budget_that_is_too_small_hides_less() {
        let small = Plan::of(&Paths { budget: 0.005, ..WIFI });
        let enough = Plan::of(&WIFI);
        assert!(small.hidden < 0.3 && enough.hidden == 1.0, "{small:?}");
        assert!(
            small.forecast.assisted.middle < enough.forecast.assisted.middle / 2.0,
            "{small:?}"
        );
    }
}
