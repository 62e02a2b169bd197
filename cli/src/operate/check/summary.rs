//! Checks in sum, and as a JUnit report.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Check, Verdict, text};
use crate::operate::output::{Paint, painted};

/// The groups of checks, in the order of their first check.
fn groups(checks: &[Check]) -> Vec<(&'static str, Vec<&Check>)> {
    let mut groups: Vec<(&'static str, Vec<&Check>)> = Vec::new();
    for check in checks {
        match groups.iter_mut().find(|(name, _)| *name == check.group) {
            Some((_, members)) => members.push(check),
            None => groups.push((check.group, vec![check])),
        }
    }
    groups
}

/// A line for each group that is well; of another one the first check of each kind that is not. A
/// kind has one verdict and one hint.
pub(super) fn summary(checks: &[Check]) -> String {
    let mut summary = String::new();
    for (group, members) in groups(checks) {
        let mut kinds: BTreeMap<(Verdict, Option<&String>), Vec<&Check>> = BTreeMap::new();
        let ill = members.iter().filter(|check| check.verdict != Verdict::Passed);
        for check in ill {
            kinds.entry((check.verdict, check.hint.as_ref())).or_default().push(check);
        }
        let passed = members.iter().filter(|check| check.verdict == Verdict::Passed).count();
        let mark = painted("√", Paint::Good);
        if kinds.is_empty() {
            let _ = writeln!(summary, "{mark} {group}: {}", counted(passed));
            continue;
        }
        let _ = writeln!(summary, "{}", painted(group, Paint::Strong));
        // The worst first.
        for of_kind in kinds.values().rev() {
            let Some(first) = of_kind.first() else { continue };
            summary.push_str(&text(first, Some(group), false));
            if of_kind.len() > 1 {
                let more = format!("and {} more of this kind: -v", of_kind.len() - 1);
                let _ = writeln!(summary, "      {}", painted(&more, Paint::Soft));
            }
        }
        if passed > 0 {
            let _ = writeln!(summary, "  {mark} {}", counted(passed));
        }
    }
    summary
}

fn counted(passed: usize) -> String {
    let word = if passed == 1 { "check" } else { "checks" };
    format!("{passed} {word} passed")
}

/// A JUnit report: a suite for each group. Warnings are output of cases that have passed.
pub(super) fn junit(checks: &[Check]) -> String {
    let of =
        |checks: &[&Check], verdict| checks.iter().filter(|one| one.verdict == verdict).count();
    let mut report = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"packrat check\">\n",
    );
    for (group, members) in groups(checks) {
        let _ = writeln!(
            report,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\">",
            escaped(group),
            members.len(),
            of(&members, Verdict::Failed),
            of(&members, Verdict::Unknown)
        );
        for check in members {
            let told = [&check.detail, &check.hint, &check.link];
            let told: Vec<&str> = told.into_iter().flatten().map(String::as_str).collect();
            let (first, all) = (escaped(told.first().unwrap_or(&"")), escaped(&told.join("\n")));
            let inner = match check.verdict {
                Verdict::Failed => format!("<failure message=\"{first}\">{all}</failure>"),
                Verdict::Unknown => format!("<skipped message=\"{first}\"/>"),
                Verdict::Warning => format!("<system-out>warning: {all}</system-out>"),
                Verdict::Passed => String::new(),
            };
            let _ = writeln!(
                report,
                "    <testcase classname=\"packrat.{}\" name=\"{}\">{inner}</testcase>",
                escaped(group),
                escaped(&check.name)
            );
        }
        report.push_str("  </testsuite>\n");
    }
    report.push_str("</testsuites>\n");
    report
}

/// A text inside XML; characters that XML does not have are left out.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'.. => {
                escaped.push(letter);
            }
            _ => {}
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks() -> Vec<Check> {
        let failed = |name: &str| {
            Check::of("gateway", name, false, Verdict::Failed, format!("{name} \"waits\""), "look")
        };
        let unknown =
            Check::of("network", "drops", false, Verdict::Unknown, "not seen", "run as root");
        let warning = Check::of("gateway", "log", false, Verdict::Warning, "a <line>", "read it");
        vec![
            Check::passed("operator", "is there", None),
            Check::passed("gateway", "a answers", None),
            unknown,
            failed("a"),
            failed("b"),
            warning,
            Check::passed("operator", "is elected", None),
        ]
    }

    #[test]
    fn each_kind_has_one_line_and_what_is_well_a_number() {
        assert_eq!(
            summary(&checks()),
            "√ operator: 2 checks passed\n\
             gateway\n\
             \x20 × a: a \"waits\"\n      look\n      docs/RUNBOOK.md#check-gateway\n      and 1 more of this kind: -v\n\
             \x20 ! log: a <line>\n      read it\n      docs/RUNBOOK.md#check-gateway\n\
             \x20 √ 1 check passed\n\
             network\n\
             \x20 ? drops: not seen\n      run as root\n      docs/RUNBOOK.md#check-network\n"
        );
    }

    #[test]
    fn a_junit_report_has_failures_and_nothing_that_breaks_it() {
        let report = junit(&checks());
        for part in [
            "<testsuite name=\"gateway\" tests=\"4\" failures=\"2\" skipped=\"0\">",
            "<testsuite name=\"network\" tests=\"1\" failures=\"0\" skipped=\"1\">",
            "name=\"a\"><failure message=\"a &quot;waits&quot;\">a &quot;waits&quot;&#10;look&#10;docs/",
            "<system-out>warning: a &lt;line&gt;&#10;read it",
            "<skipped message=\"not seen\"/>",
            "<testcase classname=\"packrat.operator\" name=\"is elected\"></testcase>",
        ] {
            assert!(report.contains(part), "{part}: {report}");
        }
        assert_eq!(escaped("a\u{1b}[1m&\u{0}"), "a[1m&amp;");
    }
}
