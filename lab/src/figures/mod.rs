//! The figures of Packrat26, and some of other papers, measured here: numbers as JSON and CSV, and a picture.
//!
//! A figure is a [`Recipe`] in [`ALL_RECIPES`]: it runs trials and makes a [`Figure`] of the results.
//! Each measurement (downloads here; other receivers as well) adds a recipe; files, progress and
//! drawing are the same for all.

mod canvas;
mod ceten;
mod data;
mod downloads;
mod eacks;
mod links;
mod live;
mod plot;
mod quacks;
mod scale;
mod sharing;
mod sidekick;
mod sketches;
mod timeline;

pub use data::{Axis, Bar, Bars, Figure, Form, HeatMap, Lines, Panel, Point, Series, Subject};
pub(crate) use timeline::svg as timeline;

use crate::batch::{self, Progress};
use crate::trial::{Trial, TrialError, TrialResult};
use indicatif::{ProgressBar, ProgressStyle};
use packrat_emulation::scenario::ScenarioError;
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

/// The extent of the measurements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Bytes of a download.
    pub(crate) size: u64,
    /// Trials of each kind.
    pub(crate) seeds: u64,
    /// Trials at the same time.
    pub(crate) jobs: usize,
}

/// Failure to make a figure.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// A trial has no result.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// A scenario is not there.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// Drawing has failed.
    #[error("{0}")]
    Draw(String),
    /// A file could not be written.
    #[error("cannot write {}: {source}; name a folder that you may write to with --output", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A file has no figure.
    #[error("cannot read a figure from {}: {cause}; make it without --redraw", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: String,
    },
    /// The figure is unknown.
    #[error("there is no figure {name:?}; choose one of {}", names())]
    Unknown {
        /// The name asked for.
        name: String,
    },
}

impl From<canvas::DrawError> for FigureError {
    fn from(error: canvas::DrawError) -> Self {
        Self::Draw(error.to_string())
    }
}

/// A figure as an SVG, with at most `columns` panels side by side.
pub(crate) fn svg(figure: &Figure, columns: usize) -> Result<String, FigureError> {
    Ok(plot::svg(figure, columns)?)
}

/// A figure.
pub(crate) struct Recipe {
    /// Name on the command line, and of the figure's files.
    pub(crate) name: &'static str,
    /// Panels side by side.
    columns: usize,
    plan: fn(Settings) -> Result<Plan, FigureError>,
}

type Make = Box<dyn FnOnce(&Bench) -> Result<Figure, FigureError>>;

/// The work for a figure.
pub(crate) struct Plan {
    /// Ticks of the progress bar.
    steps: u64,
    make: Make,
}

/// Every figure.
pub(crate) const ALL_RECIPES: [Recipe; 26] = [
    Recipe { name: "fig3", columns: 2, plan: sketches::costs },
    Recipe { name: "fig4", columns: 1, plan: sketches::decode_success },
    Recipe { name: "fig5", columns: 2, plan: downloads::goodput },
    Recipe { name: "fig5red", columns: 2, plan: downloads::goodput_red },
    Recipe { name: "fig6", columns: 2, plan: live::latency },
    Recipe { name: "fig7", columns: 2, plan: live::requests },
    Recipe { name: "fig8", columns: 2, plan: downloads::spurious },
    Recipe { name: "fig8b", columns: 2, plan: live::spurious },
    Recipe { name: "fig9", columns: 2, plan: downloads::link_overhead },
    Recipe { name: "fig9cd", columns: 2, plan: live::link_overhead },
    Recipe { name: "fig10", columns: 2, plan: downloads::bursts },
    Recipe { name: "fig11", columns: 2, plan: downloads::cache },
    Recipe { name: "fig11b", columns: 1, plan: live::cache },
    Recipe { name: "competing", columns: 2, plan: sharing::competing },
    Recipe { name: "eacks", columns: 2, plan: eacks::ablations },
    Recipe { name: "table2", columns: 1, plan: quacks::decoding_gain },
    Recipe { name: "quacks", columns: 2, plan: quacks::encodings },
    Recipe { name: "rquic", columns: 2, plan: links::completion },
    Recipe { name: "ceten", columns: 2, plan: ceten::corruption },
    Recipe { name: "ceten5", columns: 2, plan: ceten::company_and_bursts },
    Recipe { name: "ceten7", columns: 2, plan: ceten::friendliness },
    Recipe { name: "sidekick4", columns: 1, plan: sidekick::scenarios },
    Recipe { name: "sidekick5", columns: 2, plan: sidekick::sizes },
    Recipe { name: "sidekick6", columns: 1, plan: sidekick::losses },
    Recipe { name: "sidekick7", columns: 2, plan: sidekick::overhead },
    Recipe { name: "sidekick9", columns: 2, plan: sidekick::windows },
];

fn names() -> String {
    ALL_RECIPES.map(|recipe| recipe.name).join(", ")
}

/// The recipe of a figure.
pub(crate) fn recipe(name: &str) -> Result<&'static Recipe, FigureError> {
    static FIGURE_RECIPES: [Recipe; 26] = ALL_RECIPES;
    FIGURE_RECIPES
        .iter()
        .find(|recipe| recipe.name == name)
        .ok_or_else(|| FigureError::Unknown { name: name.to_owned() })
}

/// The threads and the progress bar of the work for figures.
pub(crate) struct Bench {
    jobs: usize,
    progress: ProgressBar,
    /// Lines for a standard error that is not a terminal.
    lines: RefCell<Progress>,
}

impl Bench {
    /// Counts a finished step.
    pub(crate) fn tick(&self) {
        self.progress.inc(1);
        if self.progress.is_hidden() {
            self.lines.borrow_mut().tick();
        }
    }

    /// Runs trials; a step each.
    pub(crate) fn run(&self, trials: &[Trial]) -> Result<Vec<TrialResult>, FigureError> {
        let mut results = Vec::with_capacity(trials.len());
        batch::run(trials, self.jobs, |result| {
            results.push(result?);
            self.tick();
            Ok::<(), FigureError>(())
        })?;
        Ok(results)
    }
}

/// Makes figures and writes NAME.json, NAME.csv and NAME.svg of each into `folder`.
pub(crate) fn make(
    recipes: &[&Recipe],
    settings: Settings,
    folder: &Path,
) -> Result<(), FigureError> {
    let unwritable = |path: &Path| {
        let path = path.to_owned();
        move |source| FigureError::Write { path, source }
    };
    fs::create_dir_all(folder).map_err(unwritable(folder))?;
    let plans = recipes
        .iter()
        .map(|recipe| (recipe.plan)(settings))
        .collect::<Result<Vec<_>, FigureError>>()?;
    let steps = plans.iter().map(|plan| plan.steps).sum();
    let progress = ProgressBar::new(steps);
    let template = "{msg:10} [{bar:40}] {pos} of {len} trials, {elapsed} gone, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        progress.set_style(style.progress_chars("=> "));
    }
    let lines = RefCell::new(Progress::new(steps));
    let bench = Bench { jobs: settings.jobs, progress, lines };
    for (recipe, plan) in recipes.iter().zip(plans) {
        bench.progress.set_message(recipe.name);
        let figure = (plan.make)(&bench)?;
        let json =
            serde_json::to_string(&figure).map_err(|error| FigureError::Draw(error.to_string()))?;
        for (extension, text) in [("json", json + "\n"), ("csv", figure.csv())] {
            let path = folder.join(format!("{}.{extension}", recipe.name));
            fs::write(&path, text).map_err(unwritable(&path))?;
        }
        draw(recipe, &figure, folder)?;
    }
    bench.progress.finish_and_clear();
    Ok(())
}

/// Writes NAME.svg; with figure 5 also gain.svg.
fn draw(recipe: &Recipe, figure: &Figure, folder: &Path) -> Result<(), FigureError> {
    let mut pictures = vec![(recipe.name, plot::svg(figure, recipe.columns)?)];
    if recipe.name == "fig5" {
        pictures.push(("gain", plot::svg(&downloads::gain(figure), 3)?));
    }
    for (name, svg) in pictures {
        let path = folder.join(format!("{name}.svg"));
        fs::write(&path, svg).map_err(|source| FigureError::Write { path, source })?;
    }
    Ok(())
}

/// Draws the pictures of measured figures anew, from NAME.json in `folder`.
pub(crate) fn redraw(recipes: &[&Recipe], folder: &Path) -> Result<(), FigureError> {
    for recipe in recipes {
        let path = folder.join(format!("{}.json", recipe.name));
        let unreadable = |cause: String| FigureError::Read { path: path.clone(), cause };
        let text = fs::read_to_string(&path).map_err(|error| unreadable(error.to_string()))?;
        let figure = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        draw(recipe, &figure, folder)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_written_as_numbers_and_as_a_picture() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { size: 300_000, seeds: 1, jobs: 2 };
        make(&[recipe("fig8").unwrap()], settings, folder.path()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let json: serde_json::Value = serde_json::from_str(&read("fig8.json")).unwrap();
        assert_eq!(json["name"], "fig8");
        assert!(read("fig8.csv").lines().count() > 3);
        let svg = read("fig8.svg");
        assert!(svg.starts_with("<svg") && svg.contains("Packrat"), "{svg}");
        fs::remove_file(folder.path().join("fig8.svg")).unwrap();
        redraw(&[recipe("fig8").unwrap()], folder.path()).unwrap();
        assert_eq!(read("fig8.svg"), svg);
        let error = redraw(&[recipe("fig7").unwrap()], folder.path()).unwrap_err().to_string();
        assert!(error.contains("fig7.json"), "{error}");
    }

    #[test]
    fn unknown_figures_are_named_with_those_that_there_are() {
        let error = recipe("fig99").map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("fig99") && error.contains("fig10"), "{error}");
    }
}
