//! Knowledge of a path: the command line's values, else the measurements of a route's gateways.

use std::time::Duration;

use super::super::error::OperateError;
use super::super::memory;
use super::super::target::RouteFigures;
use super::PlanOptions;
use crate::last_download::LastDownload;

/// Measurement period of the figures that a gateway does not keep from its start.
const MEASUREMENT_WINDOW: Duration = Duration::from_secs(2);

/// Budget of repairs when neither a route nor an option sets it.
const DEFAULT_REPAIR_BUDGET: f64 = 0.25;

/// Origin of the values that `packrat get` has found out.
const LAST_DOWNLOAD: &str = "last download";

/// A figure of a path, given or measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figure {
    /// Name in sentences.
    pub(super) name: &'static str,
    /// The option that gives it.
    pub(super) option: &'static str,
    pub(super) value: Option<f64>,
    /// Origin of the value, for people.
    pub(super) source: &'static str,
}

impl Figure {
    const fn new(
        name: &'static str,
        option: &'static str,
        given: Option<f64>,
        measured: Option<f64>,
        remembered: Option<f64>,
    ) -> Self {
        let (value, source) = match (given, measured) {
            (Some(_), _) => (given, "given"),
            (None, Some(_)) => (measured, "measured"),
            (None, None) => (remembered, LAST_DOWNLOAD),
        };
        Self { name, option, value, source }
    }
}

/// Everything that is known of a path.
#[derive(Debug)]
pub(super) struct Known {
    /// The route that was measured, if one was.
    pub(super) route: Option<String>,
    /// The last download from here, if something is known from it, or nothing else could be.
    pub(super) last_download: Option<LastDownload>,
    /// Round trip of the last mile in seconds.
    pub(super) last_mile: Figure,
    pub(super) last_mile_loss: Figure,
    /// Round trip of the far segment in seconds.
    pub(super) far: Figure,
    pub(super) repair_budget: f64,
}

/// Measurements of a route.
#[derive(Debug, Default)]
struct Measured {
    last_mile: Option<f64>,
    last_mile_loss: Option<f64>,
    far: Option<f64>,
    repair_budget: Option<f64>,
}

impl Known {
    /// Takes the values of the options, and asks the gateways for the rest and for a named route.
    /// Other values come from the last download from here, unless the options name gateways.
    pub(super) fn of(options: &PlanOptions) -> Result<Self, OperateError> {
        let is_all_given = options.last_mile_ms.is_some()
            && options.last_mile_loss.is_some()
            && options.far_ms.is_some();
        let may_remember = !is_all_given && options.target.is_default() && options.route.is_none();
        let last = may_remember.then(|| memory::last_download("plan")).flatten();
        let (route, measured) = if !is_all_given || options.route.is_some() {
            match (measure(options), &last) {
                (Ok((route, measured)), _) => (Some(route), measured),
                // Who has no gateway to ask has asked one by a download, perhaps.
                (Err(error), Some(_)) => {
                    eprintln!("packrat plan: {error}");
                    (None, Measured::default())
                }
                (Err(error), None) => return Err(error),
            }
        } else {
            (None, Measured::default())
        };
        let of_last = |figure: fn(&LastDownload) -> Option<f64>| last.as_ref().and_then(figure);
        let seconds = |milliseconds: Option<f64>| milliseconds.map(|value| value / 1e3);
        let budget = options.repair_budget.or(measured.repair_budget);
        let mut known = Self {
            route,
            last_download: None,
            last_mile: Figure::new(
                "the last mile's round trip",
                "--last-mile-ms",
                seconds(options.last_mile_ms),
                measured.last_mile,
                of_last(|last| last.last_mile_round_trip_seconds),
            ),
            last_mile_loss: Figure::new(
                "the last mile's loss",
                "--last-mile-loss",
                options.last_mile_loss,
                measured.last_mile_loss,
                of_last(LastDownload::last_mile_loss),
            ),
            far: Figure::new(
                "the far segment's round trip",
                "--far-ms",
                seconds(options.far_ms),
                measured.far,
                of_last(LastDownload::far_round_trip_seconds),
            ),
            repair_budget: budget.unwrap_or(DEFAULT_REPAIR_BUDGET),
        };
        let is_used = known.figures().any(|figure| figure.source == LAST_DOWNLOAD);
        known.last_download = last.filter(|_| is_used);
        Ok(known)
    }

    fn figures(&self) -> impl Iterator<Item = Figure> {
        [self.last_mile, self.last_mile_loss, self.far].into_iter()
    }

    /// The figures that are neither given nor measured.
    pub(super) fn missing(&self) -> impl Iterator<Item = Figure> {
        self.figures().filter(|figure| figure.value.is_none())
    }
}

fn recorded(route: &RouteFigures) -> f64 {
    route.route.metrics.get("packrat_datagrams_recorded_total").copied().unwrap_or_default()
}

/// Mean of a histogram of microseconds since the gateway runs, in seconds.
fn mean_seconds(value: impl Fn(&str) -> f64, histogram: &str) -> Option<f64> {
    let count = value(&format!("{histogram}_count"));
    (count > 0.0).then(|| value(&format!("{histogram}_sum")) / count / 1e6)
}

/// Name and measurements of the route that the options name, or of the busiest one.
fn measure(options: &PlanOptions) -> Result<(String, Measured), OperateError> {
    let gateways = options.target.gateways()?;
    let routes = gateways.figures(MEASUREMENT_WINDOW, false)?.routes;
    let chosen = match &options.route {
        Some(wanted) => routes.iter().find(|route| route.route.route == *wanted),
        // The busiest one has the most evidence.
        None => routes.iter().max_by(|one, other| recorded(one).total_cmp(&recorded(other))),
    };
    let Some(chosen) = chosen else {
        let known: Vec<&str> = routes.iter().map(|route| route.route.route.as_str()).collect();
        let name = options.route.clone().unwrap_or_default();
        return Err(OperateError::NoRoute { name, known: known.join(", ") });
    };
    let value = |series: &str| chosen.route.metrics.get(series).copied().unwrap_or_default();
    let recorded = recorded(chosen);
    let measured = Measured {
        // Without a client at the moment: the earlier clients.
        last_mile: (chosen.figures.last_mile_round_trip)
            .or_else(|| mean_seconds(value, "packrat_last_mile_round_trip_sample_microseconds")),
        // Since the gateway runs: more to go by than two seconds.
        last_mile_loss: (recorded > 0.0)
            .then(|| value("packrat_datagrams_missing_total") / recorded),
        far: (chosen.figures.far_round_trip)
            .or_else(|| mean_seconds(value, "packrat_far_round_trip_sample_microseconds")),
        repair_budget: Some(chosen.route.configuration.repair_budget),
    };
    Ok((chosen.route.route.clone(), measured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_without_a_client_has_earlier_clients_round_trips() {
        let value = |series: &str| match series {
            "rtt_sum" => 9_000.0,
            "rtt_count" => 3.0,
            _ => 0.0,
        };
        assert_eq!(mean_seconds(value, "rtt"), Some(0.003));
        assert_eq!(mean_seconds(value, "other"), None);
    }
}
