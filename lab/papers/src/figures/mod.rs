//! The figures of Packrat26, and some of other papers, measured here: numbers as JSON and CSV, and a picture.
//!
//! A figure is a [`Recipe`] in [`ALL_RECIPES`]: it runs trials and makes a [`Figure`] of the results.
//! Each measurement (downloads here; other receivers as well) adds a recipe; files, progress and
//! drawing are the same for all.

mod ceten;
mod downloads;
mod eacks;
mod links;
mod live;
mod plan;
mod quacks;
mod sharing;
mod sidekick;
mod sketches;

use crate::failure::{Failure, unwritable};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use packrat_lab::batch::Progress;
use packrat_lab::drawing::{Figure, svg};
use plan::{Bench, Plan, Settings};
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

/// Options of `packrat-papers figure`.
#[derive(Debug, Args)]
pub(crate) struct Figures {
    /// fig3, fig4, fig5, fig5red, fig6, fig7, fig8, fig8b, fig9, fig9cd, fig10, fig11, fig11b, table2, eacks,
    /// competing; of other papers: rquic, ceten, quacks, sidekick4, sidekick5, sidekick6, sidekick7, sidekick9
    #[arg(required = true)]
    name: Vec<String>,
    #[command(flatten)]
    making: Making,
}

/// The extent of figures, and their place.
#[derive(Debug, Args)]
pub(crate) struct Making {
    /// The folder for the files
    #[arg(long, short, default_value = "docs/figures")]
    output: PathBuf,
    /// Measure nothing: draw the pictures of NAME.json in the folder
    #[arg(long)]
    redraw: bool,
    /// Bytes of a download
    #[arg(long, default_value_t = 10_000_000)]
    size: u64,
    /// Trials of each kind
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Trials at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

impl Figures {
    /// Makes the named figures.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let recipes: Result<Vec<_>, _> = self.name.iter().map(|name| recipe(name)).collect();
        self.making.run(recipes?)
    }
}

impl Making {
    /// Makes these figures.
    pub(crate) fn run(
        &self,
        recipes: impl IntoIterator<Item = &'static Recipe>,
    ) -> Result<(), Failure> {
        let recipes: Vec<_> = recipes.into_iter().collect();
        if self.redraw {
            return redraw(&recipes, &self.output);
        }
        let settings = Settings { size: self.size, seeds: self.seeds, jobs: self.jobs };
        make(&recipes, settings, &self.output)
    }
}

/// A figure.
pub(crate) struct Recipe {
    /// Name on the command line, and of the figure's files.
    pub(crate) name: &'static str,
    /// Panels side by side.
    columns: usize,
    plan: fn(Settings) -> Result<Plan, Failure>,
}

/// Every figure.
pub(crate) static ALL_RECIPES: &[Recipe] = &[
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

/// The recipe of a figure.
fn recipe(name: &str) -> Result<&'static Recipe, Failure> {
    ALL_RECIPES.iter().find(|recipe| recipe.name == name).ok_or_else(|| {
        let names: Vec<_> = ALL_RECIPES.iter().map(|recipe| recipe.name).collect();
        format!("there is no figure {name:?}; choose one of {}", names.join(", ")).into()
    })
}

/// Writes a file.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| unwritable(path, &error, "--output"))
}

/// Makes figures and writes NAME.json, NAME.csv and NAME.svg of each into `folder`.
pub(crate) fn make(recipes: &[&Recipe], settings: Settings, folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| unwritable(folder, &error, "--output"))?;
    let plans = recipes
        .iter()
        .map(|recipe| (recipe.plan)(settings))
        .collect::<Result<Vec<_>, Failure>>()?;
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
        let json = serde_json::to_string(&figure)? + "\n";
        write(&folder.join(format!("{}.json", recipe.name)), &json)?;
        write(&folder.join(format!("{}.csv", recipe.name)), &figure.csv())?;
        draw(recipe, &figure, folder)?;
    }
    bench.progress.finish_and_clear();
    Ok(())
}

/// Writes NAME.svg; with figure 5 also gain.svg.
fn draw(recipe: &Recipe, figure: &Figure, folder: &Path) -> Result<(), Failure> {
    let mut pictures = vec![(recipe.name, svg(figure, recipe.columns)?)];
    if recipe.name == "fig5" {
        pictures.push(("gain", svg(&downloads::gain(figure), 3)?));
    }
    pictures.iter().try_for_each(|(name, svg)| write(&folder.join(format!("{name}.svg")), svg))
}

/// Draws the pictures of measured figures anew, from NAME.json in `folder`.
pub(crate) fn redraw(recipes: &[&Recipe], folder: &Path) -> Result<(), Failure> {
    for recipe in recipes {
        let path = folder.join(format!("{}.json", recipe.name));
        let read = || -> Result<Figure, Failure> {
            Ok(serde_json::from_str(&fs::read_to_string(&path)?)?)
        };
        let figure = read().map_err(|cause| {
            let path = path.display();
            format!("cannot read a figure from {path}: {cause}; make it without --redraw")
        })?;
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
