//! `packrat check`: is everything well? Named checks in groups; a failed one has a hint.

mod cluster;
mod definitions;
mod edge;
mod envoy;
mod gateway;
mod network;
mod operator;
mod rights;
mod summary;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::output::{Format, Paint, painted};
use super::target::Target;

pub(crate) use cluster::of_cluster;
pub(crate) use gateway::all;
pub(crate) use operator::Operator;

/// Hint if no part of the chart is found.
const INSTALL_HINT: &str = "install the chart (docs/QUICKSTART.md): helm install packrat charts/packrat -n packrat-system --create-namespace --set 'gateway.namespaces={NAMESPACE}'";
/// Time between two attempts of `--wait`.
const ATTEMPT_PAUSE: Duration = Duration::from_secs(2);
/// Page that the hints link to.
const RUNBOOK_PAGE: &str = "docs/RUNBOOK.md";

/// Options of the command.
#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    #[command(flatten)]
    target: Target,

    /// Check that Packrat can be installed in this cluster, instead of an installation
    #[arg(long, conflicts_with_all = ["gateway", "probe"])]
    pre: bool,

    /// UDP address to reach the gateway at from here, instead of the addresses that it names
    #[arg(long, value_name = "HOST:PORT")]
    probe: Option<String>,

    /// Repeat until no check fails, for this time at most
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u64>,

    /// Write a JUnit report to this file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,

    /// Show each check, not only what is wrong
    #[arg(short, long)]
    verbose: bool,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Passed,
    /// Cannot be seen from here.
    Unknown,
    Warning,
    Failed,
}

/// A check and its result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Check {
    group: &'static str,
    name: String,
    verdict: Verdict,
    /// Observation, when it adds to the name.
    detail: Option<String>,
    /// Advice for the user.
    hint: Option<String>,
    /// Link to further reading.
    link: Option<String>,
}

impl Check {
    fn passed(group: &'static str, name: impl Into<String>, detail: Option<String>) -> Self {
        Self { group, name: name.into(), verdict: Verdict::Passed, detail, hint: None, link: None }
    }

    fn of(
        group: &'static str,
        name: impl Into<String>,
        holds: bool,
        otherwise: Verdict,
        detail: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        if holds {
            return Self::passed(group, name, None);
        }
        Self {
            group,
            name: name.into(),
            verdict: otherwise,
            detail: Some(detail.into()),
            hint: Some(hint.into()),
            link: Some(format!("{RUNBOOK_PAGE}#check-{}", group.replace(' ', "-"))),
        }
    }

    /// Links to another section of the runbook.
    fn see(mut self, section: &str) -> Self {
        if self.link.is_some() {
            self.link = Some(format!("{RUNBOOK_PAGE}#{section}"));
        }
        self
    }

    /// Names the subject of the check.
    fn about(mut self, name: &str) -> Self {
        self.name = format!("{name} {}", self.name);
        self
    }
}

/// Checks made so far; with a format each is printed at once.
pub(crate) struct Report {
    checks: Vec<Check>,
    shown: Option<Format>,
}

impl Report {
    /// A report that prints no line until the end.
    pub(crate) const fn silent() -> Self {
        Self { checks: Vec::new(), shown: None }
    }

    /// Takes checks in.
    fn add(&mut self, checks: impl IntoIterator<Item = Check>) {
        for check in checks {
            if let Some(format) = self.shown {
                let group = self.checks.last().map(|last| last.group);
                print!("{}", text(&check, group, format == Format::Wide));
            }
            self.checks.push(check);
        }
    }

    /// Takes the checks of one thing in; in a table that is one line when all is well.
    fn add_all(&mut self, group: &'static str, name: &str, title: &str, checks: Vec<Check>) {
        let is_well = checks.iter().all(|check| check.verdict == Verdict::Passed);
        if is_well && self.shown == Some(Format::Table) {
            self.add([Check::passed(group, format!("{title} is well"), None)]);
        } else {
            self.add(checks.into_iter().map(|check| check.about(name)));
        }
    }

    pub(crate) fn checks(&self) -> &[Check] {
        &self.checks
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|check| check.verdict == verdict).count()
    }

    /// The last line.
    fn verdict(&self) -> String {
        let (failed, warnings) = (self.count(Verdict::Failed), self.count(Verdict::Warning));
        match (failed, warnings) {
            (0, 0) if self.count(Verdict::Unknown) > 0 => {
                painted("Everything that can be seen is well.", Paint::Good)
            }
            (0, 0) => painted("Everything is well.", Paint::Good),
            (0, _) => painted(&format!("It works; {warnings} to look at."), Paint::Warning),
            _ => painted(&format!("{failed} failed, {warnings} to look at."), Paint::Bad),
        }
    }
}

pub(crate) fn run(options: &CheckOptions) -> ExitCode {
    let is_each_shown = options.verbose || options.output == Format::Wide;
    let is_streamed = is_each_shown && options.wait.is_none() && options.output != Format::Json;
    let deadline = Instant::now() + Duration::from_secs(options.wait.unwrap_or(0));
    let report = loop {
        let report = checked(options, is_streamed.then_some(options.output));
        if report.count(Verdict::Failed) == 0 || Instant::now() >= deadline {
            break report;
        }
        std::thread::sleep(ATTEMPT_PAUSE);
    };
    if options.output == Format::Json {
        let is_ok = report.count(Verdict::Failed) == 0;
        println!("{:#}", json!({ "ok": is_ok, "checks": report.checks }));
    } else if is_each_shown && !is_streamed {
        let mut again = Report { checks: Vec::new(), shown: Some(options.output) };
        again.add(report.checks.iter().cloned());
    } else if !is_streamed {
        print!("{}", summary::summary(&report.checks));
    }
    if options.output != Format::Json {
        println!("\n{}", report.verdict());
    }
    if let Some(file) = &options.junit
        && let Err(error) = std::fs::write(file, summary::junit(&report.checks))
    {
        eprintln!("packrat check: {} cannot be written: {error}", file.display());
        return ExitCode::FAILURE;
    }
    if report.count(Verdict::Failed) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All checks, once. `shown`: how each is printed, if it is.
fn checked(options: &CheckOptions, shown: Option<Format>) -> Report {
    let mut report = Report { checks: Vec::new(), shown };
    let address = options.probe.as_deref();
    match options.target.single() {
        Some(gateway) => report.add(all(&gateway, address)),
        None if options.pre => cluster::before_installation(&options.target, &mut report),
        None => of_cluster(&options.target, address, &mut report),
    }
    report
}

/// The lines of a check. `group`: the previous check's group.
fn text(check: &Check, group: Option<&str>, wide: bool) -> String {
    let mut text = String::new();
    if group != Some(check.group) {
        if group.is_some() {
            text.push('\n');
        }
        text.push_str(&format!("{}\n", painted(check.group, Paint::Strong)));
    }
    let mark = match check.verdict {
        Verdict::Passed => painted("√", Paint::Good),
        Verdict::Unknown => painted("?", Paint::Soft),
        Verdict::Warning => painted("!", Paint::Warning),
        Verdict::Failed => painted("×", Paint::Bad),
    };
    text.push_str(&format!("  {mark} {}", check.name));
    if let Some(detail) = check.detail.as_ref().filter(|_| wide || check.verdict != Verdict::Passed)
    {
        text.push_str(&format!(": {detail}"));
    }
    text.push('\n');
    for more in [&check.hint, &check.link].into_iter().flatten() {
        text.push_str(&format!("      {}\n", painted(more, Paint::Soft)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every group, in the order in which they are tried. docs/RUNBOOK.md has a section for each.
    const GROUPS: [&str; 11] = [
        "kubernetes",
        "rights",
        "definitions",
        "operator",
        "gateways",
        "gateway",
        "network",
        "certificates",
        "envoy",
        "routes",
        "from here",
    ];

    #[test]
    fn every_group_has_its_section_in_the_runbook() {
        let runbook = include_str!("../../../../docs/RUNBOOK.md");
        for group in GROUPS {
            let heading = format!("\n## Check: {group}\n");
            assert!(runbook.contains(&heading), "docs/RUNBOOK.md has no {heading:?}");
        }
    }

    #[test]
    fn a_failed_check_says_what_to_do_and_where_to_read_more() {
        let failed = Check::of(
            "from here",
            "udp",
            false,
            Verdict::Failed,
            "nothing came back",
            "open the port",
        );
        assert_eq!(
            text(&failed, None, false),
            "from here\n  × udp: nothing came back\n      open the port\n      docs/RUNBOOK.md#check-from-here\n"
        );
        let passed = Check::passed("from here", "udp", Some("4 ms".to_owned()));
        assert_eq!(text(&passed, Some("from here"), false), "  √ udp\n");
        assert_eq!(text(&passed, Some("from here"), true), "  √ udp: 4 ms\n");
    }
}
