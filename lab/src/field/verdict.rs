//! The log of verdicts: the measurements of reserved paths and seeds.

use crate::arguments::FIRST_RESERVED_SEED;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The log, in the repository's folder.
const LOG_PATH: &str = "lab/verdicts.csv";
/// Distance between the first seeds of two verdicts.
const SEEDS_OF_A_VERDICT: u64 = 100;
/// The text of a verdict's first line.
const BEGUN: &str = "begun";

/// Failure to log a verdict.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot log the verdict in {}: {source}; run the command in the repository's folder",
    path.display()
)]
pub(super) struct VerdictError {
    path: PathBuf,
    source: io::Error,
}

/// A verdict that has begun.
#[derive(Debug)]
pub(super) struct Verdict {
    log: PathBuf,
    /// Date, person, commit and first seed, as they begin each of its lines.
    head: String,
    first_seed: u64,
}

impl Verdict {
    /// Logs the beginning: a verdict that is interrupted has used its seeds.
    ///
    /// # Errors
    /// [`VerdictError`].
    pub(super) fn begin() -> Result<Self, VerdictError> {
        Self::begin_in(Path::new(LOG_PATH), &[git(&["config", "user.name"]), commit()])
    }

    fn begin_in(log: &Path, [person, commit]: &[String; 2]) -> Result<Self, VerdictError> {
        let failed = |source| VerdictError { path: log.to_owned(), source };
        let before = std::fs::read_to_string(log).map_err(failed)?;
        let verdicts = before.lines().filter(|line| line.ends_with(BEGUN)).count() as u64;
        let first_seed = FIRST_RESERVED_SEED + verdicts * SEEDS_OF_A_VERDICT;
        let date = jiff::Timestamp::now().strftime("%F");
        let person = person.replace([',', '"'], " ");
        let head = format!("{date},{person},{commit},{first_seed}");
        let verdict = Self { log: log.to_owned(), head, first_seed };
        verdict.record(BEGUN)?;
        Ok(verdict)
    }

    pub(super) const fn first_seed(&self) -> u64 {
        self.first_seed
    }

    /// Adds a line to the log.
    ///
    /// # Errors
    /// [`VerdictError`].
    pub(super) fn record(&self, result: &str) -> Result<(), VerdictError> {
        let failed = |source| VerdictError { path: self.log.clone(), source };
        let mut log = OpenOptions::new().append(true).open(&self.log).map_err(failed)?;
        let result = if result == BEGUN { BEGUN.to_owned() } else { format!("\"{result}\"") };
        writeln!(log, "{},{result}", self.head).map_err(failed)
    }
}

/// The present commit, with a mark if files differ from it.
fn commit() -> String {
    let mark =
        if git(&["status", "--porcelain", "--untracked-files=no"]).is_empty() { "" } else { "+" };
    git(&["rev-parse", "--short", "HEAD"]) + mark
}

/// The output of git; empty if there is none.
fn git(arguments: &[&str]) -> String {
    Command::new("git")
        .args(arguments)
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verdict_is_logged_and_has_new_seeds() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("verdicts.csv");
        let who = ["A. Person".to_owned(), "0123abc".to_owned()];
        let missing = Verdict::begin_in(&log, &who).unwrap_err().to_string();
        assert!(missing.contains("run the command in the repository's folder"), "{missing}");
        std::fs::write(&log, "date,person,commit,first seed,result\n").unwrap();
        let first = Verdict::begin_in(&log, &who).unwrap();
        first.record("jitter: 3 cells").unwrap();
        let second = Verdict::begin_in(&log, &who).unwrap();
        assert_eq!(first.first_seed(), FIRST_RESERVED_SEED);
        assert_eq!(second.first_seed(), FIRST_RESERVED_SEED + SEEDS_OF_A_VERDICT);
        let text = std::fs::read_to_string(&log).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].ends_with(",A. Person,0123abc,900001,begun"), "{text}");
        assert!(lines[2].ends_with(",900001,\"jitter: 3 cells\""), "{text}");
    }
}
