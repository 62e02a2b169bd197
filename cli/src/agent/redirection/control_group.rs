//! The control group of a program.

use std::fs;
use std::path::{Path, PathBuf};

/// The first part of the name of a program's control group; the identifier of its `packrat run` follows.
const GROUP_PREFIX: &str = "packrat-run-";
/// Control groups that have a process's number: left by others with that number.
const MOST_GROUPS: u32 = 64;

/// Removes the groups of processes that were killed. Groups that still have programs stay.
fn remove_left_groups(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(GROUP_PREFIX));
        let id = rest.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if id.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Makes a control group below the own one: its path below the root of all, and its folder.
pub(super) fn make_group(root: &Path, own: &Path) -> Result<(PathBuf, PathBuf), String> {
    remove_left_groups(&root.join(own));
    let id = std::process::id();
    let mut last = None;
    for number in 0..MOST_GROUPS {
        let path = own.join(match number {
            0 => format!("{GROUP_PREFIX}{id}"),
            _ => format!("{GROUP_PREFIX}{id}-{number}"),
        });
        let group = root.join(&path);
        // One that is empty is left of a process that had this number.
        let _ = fs::remove_dir(&group);
        match fs::create_dir(&group) {
            Ok(()) => return Ok((path, group)),
            // One that is not empty has processes that a program has left behind.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                last = Some((group, error));
            }
            Err(error) => {
                last = Some((group, error));
                break;
            }
        }
    }
    let (group, error) =
        last.map_or_else(Default::default, |(group, error)| (group, error.to_string()));
    Err(format!("cannot make the control group {}: {error}; run it as root", group.display()))
}

/// The mount point of control groups version 2, and the group of this process.
pub(super) fn own_group() -> Result<(PathBuf, PathBuf), String> {
    let hint = "control groups version 2 are not mounted; use packrat agent";
    let read = |file: &str| fs::read_to_string(file).map_err(|error| format!("{hint} ({error})"));
    let mounts = read("/proc/self/mounts")?;
    let root = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (_, place, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(place))
    });
    let groups = read("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).map(PathBuf::from);
    root.zip(own).ok_or_else(|| hint.to_owned())
}
