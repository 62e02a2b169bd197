//! The sections of the page, and the trials of each.

use crate::stacks::Sender;
use crate::trial::{Arm, Trial};
use packrat_emulation::scenario::{Scenario, ScenarioError, Traffic};

/// A section of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    /// Two downloads, of which one is assisted.
    Sharing,
    /// Short objects, each over a connection of its own.
    Objects,
    /// Visits of a web page.
    Pages,
    /// An adaptive video session.
    Video,
    /// A download beside an upload.
    Uploads,
}

packrat_emulation::choices!(Section, "section", [
    Sharing "sharing",
    Objects "objects",
    Pages "pages",
    Video "video",
    Uploads "uploads",
]);

/// The paths of each section: the last mile is the bottleneck, as at a cluster's ingress.
const SECTION_PATHS: [&str; 3] = ["ingress_wifi", "ingress_lte", "starlink"];
/// The paths of sections with minutes of traffic.
const SHORTER_PATHS: [&str; 2] = ["ingress_wifi", "ingress_lte"];
/// The losses of each section.
const LOSS_RATES: [f64; 3] = [0.0, 0.01, 0.04];
/// The sender of the measured download, and the sender of its neighbour.
const SENDER_PAIRS: [[Sender; 2]; 3] = [
    [Sender::S2nCubic, Sender::S2nCubic],
    [Sender::S2nBbr, Sender::S2nBbr],
    [Sender::S2nBbr, Sender::S2nCubic],
];
/// Senders of sections with one sender.
const SECTION_SENDERS: [Sender; 2] = [Sender::S2nCubic, Sender::S2nBbr];
/// Arms that are compared.
pub(super) const COMPARED_ARMS: [Arm; 2] = [Arm::EndToEnd, Arm::Packrat];

/// The amount of measurement.
#[derive(Debug, Clone)]
pub(crate) struct Extent {
    /// Paths instead of the section's own, unless empty.
    pub(crate) paths: Vec<String>,
    /// Losses instead of the section's own, unless empty.
    pub(crate) losses: Vec<f64>,
    pub(crate) seeds: std::ops::Range<u64>,
}

impl Section {
    fn traffic(self) -> &'static str {
        match self {
            Self::Sharing => "neighbour",
            Self::Objects => "objects",
            Self::Pages => "page",
            Self::Video => "video",
            Self::Uploads => "upload",
        }
    }

    /// The senders of each setting: the trial's, and the neighbour's if it has another one.
    fn senders(self) -> Vec<[Sender; 2]> {
        match self {
            Self::Sharing => SENDER_PAIRS.to_vec(),
            _ => SECTION_SENDERS.map(|sender| [sender; 2]).to_vec(),
        }
    }

    /// The trials, in the order of the table's rows; the arms of a setting are neighbours.
    ///
    /// # Errors
    /// [`ScenarioError`], for a path that there is not.
    pub(crate) fn trials(self, extent: &Extent) -> Result<Vec<Trial>, ScenarioError> {
        let own: &[&str] = match self {
            Self::Objects | Self::Pages => &SECTION_PATHS,
            Self::Sharing | Self::Video | Self::Uploads => &SHORTER_PATHS,
        };
        let paths = match &extent.paths[..] {
            [] => own.iter().map(|path| (*path).to_owned()).collect(),
            paths => paths.to_vec(),
        };
        let losses = if extent.losses.is_empty() { &LOSS_RATES[..] } else { &extent.losses };
        let traffic = Traffic::load(self.traffic())?;
        let mut trials = Vec::new();
        for path in paths {
            let path = Scenario::load(&path)?;
            for [sender, beside] in self.senders() {
                let mut traffic = traffic.clone();
                if self == Self::Sharing {
                    traffic.flows[1].sender = Some(beside.name().to_owned());
                }
                for loss in losses {
                    let scenario = path.clone().with_traffic(traffic.clone()).with_loss(*loss);
                    for arm in COMPARED_ARMS {
                        let trial = |seed| Trial::new(scenario.clone(), arm, sender, seed);
                        trials.extend(extent.seeds.clone().map(trial));
                    }
                }
            }
        }
        Ok(trials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_run_with_and_without_assistance_on_the_same_seeds() {
        let extent = Extent { paths: vec![], losses: vec![], seeds: 1001..1004 };
        for section in Section::ALL {
            let trials = section.trials(&extent).unwrap();
            for setting in trials.chunks(6) {
                let of = |n: usize| (setting[n].arm, setting[n].seed);
                assert_eq!((of(0), of(2)), ((Arm::EndToEnd, 1001), (Arm::EndToEnd, 1003)));
                assert_eq!((of(3), of(5)), ((Arm::Packrat, 1001), (Arm::Packrat, 1003)));
                assert!(setting.iter().all(|trial| trial.scenario == setting[0].scenario));
            }
        }
        let sharing = Section::Sharing.trials(&extent).unwrap();
        assert_eq!(sharing.len(), 2 * 3 * 3 * 2 * 3);
        let beside =
            |trial: &Trial| trial.scenario.traffic.clone().unwrap().flows[1].sender.clone();
        assert!(
            sharing.iter().any(|trial| trial.sender == Sender::S2nBbr
                && beside(trial).as_deref() == Some("s2n-cubic"))
        );
    }
}
