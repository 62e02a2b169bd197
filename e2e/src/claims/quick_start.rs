//! The commands of docs/QUICKSTART.md, exactly as written there.

use std::fs;

use crate::command::{Failure, Outcome};
use crate::suite::{SHOP_NAMESPACE, Suite};

/// Commands in blocks marked `sh`; other blocks are not run.
fn commands(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        match (line, &mut block) {
            ("```sh", None) => block = Some(String::new()),
            ("```", Some(_)) => blocks.extend(block.take()),
            (_, Some(lines)) => {
                lines.push_str(line);
                lines.push('\n');
            }
            _ => {}
        }
    }
    blocks
}

/// A user outside the cluster follows the quick start.
pub(super) fn as_written(suite: &mut Suite) -> Outcome<String> {
    let project = std::path::absolute(&suite.places.project)?;
    let text = fs::read_to_string(project.join("docs/QUICKSTART.md"))?;
    let blocks = commands(&text);
    if blocks.len() < 5 {
        return Err(Failure(format!(
            "only {} blocks of commands in docs/QUICKSTART.md",
            blocks.len()
        )));
    }
    let folder = suite
        .places
        .packrat
        .parent()
        .map(|folder| folder.to_string_lossy().into_owned())
        .unwrap_or_default();
    // The suite has used that namespace.
    suite.kubectl.output([
        "delete",
        "namespace",
        SHOP_NAMESPACE,
        "--ignore-not-found",
        "--timeout=120s",
    ])?;
    // Prerequisites of the quick start: the nodes have the images, and packrat is installed.
    let script = format!(
        "set -euo pipefail; cd '{}'; PATH={folder}:$PATH\n{}",
        project.display(),
        blocks.concat()
    );
    let output = suite.cluster.client().output(["bash", "-c", &script])?;
    let deleted = output.lines().filter(|line| line.contains("deleted")).count();
    Ok(format!("{} blocks of commands; {deleted} objects deleted at the end", blocks.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_blocks_are_commands() {
        let text = "a\n```sh\none\ntwo\n```\n```\nnot this\n```\n```yaml\nnor: this\n```\n```sh\nthree\n```\n";
        assert_eq!(commands(text), ["one\ntwo\n", "three\n"]);
    }
}
