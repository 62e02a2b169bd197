//! One run: a cluster, all claims, a summary.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::Args;

use crate::claims::{ALL_CLAIMS, Claim};
use crate::cluster::{Cluster, Given, Kind, Processes};
use crate::command::Outcome;
use crate::soak::soak;
use crate::suite::{Places, Suite};

/// Options of `packrat-e2e run`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// The program that makes clusters of process nodes; without it the cluster is made by kind
    #[arg(long, value_name = "FILE")]
    cluster_tool: Option<PathBuf>,
    /// A cluster that is there already; on one that others also use, its namespaces packrat-system
    /// and shop have to be free
    #[arg(long, value_name = "FILE", conflicts_with = "cluster_tool")]
    kubeconfig: Option<PathBuf>,
    /// Name of the kind cluster; one that exists (of three nodes) is used and stays
    #[arg(long, value_name = "NAME", default_value = "packrat-e2e")]
    kind_cluster: String,
    /// The project's folder
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    project: PathBuf,
    /// Folder of the image archives
    #[arg(long, value_name = "FOLDER", default_value = ".packrat/images")]
    images: PathBuf,
    /// The `packrat` command
    #[arg(long, value_name = "FILE")]
    packrat: PathBuf,
    /// Only the claims that show that it works at all: install, first download, uninstall
    #[arg(long)]
    smoke: bool,
    /// Only claims whose name contains one of these; the claims that they build on are also tried
    #[arg(long, value_name = "TEXT,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Instead of the claims: faults in random order for this many minutes, and then a look at the
    /// remains
    #[arg(long, value_name = "MINUTES", conflicts_with_all = ["smoke", "only"])]
    soak: Option<u64>,
    /// Decides the order of faults
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Leave the cluster running
    #[arg(long)]
    keep: bool,
    /// Folder for whatever helps to understand a failure
    #[arg(long, value_name = "FOLDER", default_value = ".packrat/e2e")]
    artifacts: PathBuf,
    /// Also write the results as a Markdown table
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
}

impl Options {
    fn wants(&self, claim: &Claim) -> bool {
        let named = if self.only.is_empty() {
            !claim.long
        } else {
            self.only.iter().any(|text| claim.name.contains(text.as_str()))
        };
        // The other claims depend on these.
        let needed = (!self.only.is_empty() || self.soak.is_some()) && claim.prepares;
        if self.soak.is_some() {
            return needed;
        }
        needed || (named && (claim.smoke || !self.smoke))
    }
}

/// Runs the claims; false when one does not hold.
///
/// # Errors
/// The cluster or the path to it cannot be set up.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    let cluster: Rc<dyn Cluster> = match (&options.cluster_tool, &options.kubeconfig) {
        (Some(tool), _) => Rc::new(Processes::new(tool)),
        (None, Some(kubeconfig)) => Rc::new(Given::new(kubeconfig.clone(), &options.kind_cluster)?),
        (None, None) => Rc::new(Kind::new(
            &options.kind_cluster,
            options.project.clone(),
            options.images.join("kind.kubeconfig"),
        )),
    };
    let started = Instant::now();
    let outcome = cluster.up().and_then(|()| try_all(options, &cluster, started));
    if !options.keep {
        cluster.down()?;
    }
    outcome
}

/// Collects the information about a failure, and prints the most important part.
fn explain(suite: &Suite, folder: &Path) {
    match suite.collect(folder) {
        Ok(ends) => println!("{ends}     logs and objects: {}", folder.display()),
        Err(error) => println!("     nothing could be collected: {error}"),
    }
}

fn try_all(options: &Options, cluster: &Rc<dyn Cluster>, started: Instant) -> Outcome<bool> {
    let places = Places {
        project: options.project.clone(),
        images: options.images.clone(),
        packrat: std::path::absolute(&options.packrat)?,
        files: options.images.join("origin/srv"),
    };
    let mut suite = Suite::start(Rc::clone(cluster), places)?;
    println!("cluster, servers and path are up after {:.0} s", started.elapsed().as_secs_f64());
    let mut table = "| claim | outcome | measured |\n|---|---|---|\n".to_owned();
    let (mut passed, mut failed) = (0, Vec::new());
    for claim in ALL_CLAIMS.iter().filter(|claim| options.wants(claim)) {
        let begun = Instant::now();
        let result = if claim.enters_nodes && !cluster.enters_nodes() {
            Ok("not tried: programs cannot be run on the nodes of this cluster".to_owned())
        } else {
            (claim.run)(&mut suite)
        };
        let seconds = begun.elapsed().as_secs_f64();
        let (word, text) = match &result {
            Ok(text) => ("PASS", text.clone()),
            Err(error) => ("FAIL", error.to_string()),
        };
        println!("{word} {} ({seconds:.0} s): {text}", claim.name);
        table += &format!("| {} | {} | {text} |\n", claim.name, word.to_lowercase());
        if result.is_ok() {
            passed += 1;
            continue;
        }
        failed.push(claim.name);
        let folder = options.artifacts.join(claim.name);
        explain(&suite, &folder);
        if claim.prepares {
            println!("     the other claims build on this one");
            break;
        }
    }
    if let Some(minutes) = options.soak.filter(|_| failed.is_empty()) {
        match soak(&mut suite, Duration::from_secs(minutes * 60), options.seed) {
            Ok(text) => println!("PASS soak: {text}"),
            Err(error) => {
                println!("FAIL soak: {error}");
                explain(&suite, &options.artifacts.join("soak"));
                failed.push("soak");
            }
        }
    }
    if let Some(path) = &options.table {
        std::fs::write(path, table)?;
    }
    println!(
        "{passed} passed, {} failed in {:.0} s{}{}",
        failed.len(),
        started.elapsed().as_secs_f64(),
        if failed.is_empty() { "" } else { ": " },
        failed.join(", ")
    );
    Ok(failed.is_empty())
}
