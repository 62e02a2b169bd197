//! Instruction counts, which do not depend on the other load of the machine.
//!
//! A program runs itself under callgrind with one of its workloads. Only instructions inside the
//! function that the workload marks as measured are counted.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

/// Checks that valgrind can run here; the error gives the reason if it cannot.
pub fn is_available() -> Result<(), String> {
    match Command::new("valgrind").arg("--version").stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("valgrind --version ended with {status}")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err("valgrind is not installed: apt-get install valgrind".to_owned())
        }
        Err(error) => Err(format!("valgrind does not run: {error}")),
    }
}

/// Instructions inside of functions whose name contains `function`, with all that they call, while
/// this program runs with `arguments`.
pub fn count(function: &str, arguments: &[&str]) -> Result<f64, Box<dyn Error>> {
    let text = run(function, Path::new("/dev/null"), arguments)?;
    collected(&text).ok_or_else(|| format!("valgrind counted nothing: {text}").into())
}

/// Instructions and calls of a function, and of the functions that it called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions of this program.
    pub own: u64,
    /// Calls from this program into shared libraries, of which the C library is the only one.
    pub library_calls: u64,
    /// Instructions of shared libraries.
    pub library: u64,
}

/// Counts like [`count`], separately for this program and for shared libraries; callgrind's own
/// output, for `callgrind_annotate`, is left in `file`.
pub fn counts(function: &str, file: &Path, arguments: &[&str]) -> Result<Counts, Box<dyn Error>> {
    run(function, file, arguments)?;
    let profile = fs::read_to_string(file)
        .map_err(|error| format!("callgrind's output {} was not read: {error}", file.display()))?;
    let program = std::env::current_exe()?;
    let program = program.to_str().ok_or("the path of this program is not UTF-8")?;
    let counts = by_object(&profile, program);
    if counts.own == 0 {
        let file = file.display();
        return Err(format!("{file} has no instruction of {function} in {program}").into());
    }
    Ok(counts)
}

/// Memory accesses that a simulated processor with the caches of this one finds in none of its first
/// level, and in no cache at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Misses {
    /// Data, first level.
    pub first: u64,
    /// Data, last level.
    pub last: u64,
}

/// The misses inside of functions whose name contains `function`, with all that they call, while
/// this program runs with `arguments`; callgrind's own output is left in `file`. Callgrind simulates
/// two levels, and nothing that a processor fetches ahead.
pub fn misses(function: &str, file: &Path, arguments: &[&str]) -> Result<Misses, Box<dyn Error>> {
    run_with(&["--cache-sim=yes"], function, file, arguments)?;
    let profile = fs::read_to_string(file)?;
    misses_in(&profile).ok_or_else(|| format!("callgrind simulated no cache: {function}").into())
}

/// The sums of a profile, by the names in its `events:`. Callgrind leaves out zeros at the end of a
/// line: a large last level may miss nothing, in which case the line ends with the first level.
fn misses_in(profile: &str) -> Option<Misses> {
    let line = |name: &str| profile.lines().find_map(|line| line.strip_prefix(name));
    let (names, sums) = (line("events:")?, line("summary:")?);
    let sums = sums.split_whitespace().filter_map(|sum| sum.parse().ok());
    let sums: HashMap<&str, u64> =
        names.split_whitespace().zip(sums.chain(std::iter::repeat(0))).collect();
    let sum = |names: [&str; 2]| Some(sums.get(names[0])? + sums.get(names[1])?);
    Some(Misses { first: sum(["D1mr", "D1mw"])?, last: sum(["DLmr", "DLmw"])? })
}

/// Runs this program under callgrind, and returns valgrind's output.
fn run(function: &str, file: &Path, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    run_with(&[], function, file, arguments)
}

fn run_with(
    options: &[&str],
    function: &str,
    file: &Path,
    arguments: &[&str],
) -> Result<String, Box<dyn Error>> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .args(options)
        .args(["--compress-strings=no", "--compress-pos=no", "--dump-instr=yes", "--dump-line=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(format!("--toggle-collect=*{function}*"))
        .arg(std::env::current_exe()?)
        .args(arguments)
        // Options of the user's would count something else.
        .env_remove("VALGRIND_OPTS")
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("valgrind ended with {}: {text}", output.status).into());
    }
    Ok(text.into_owned())
}

/// The number behind "Collected :".
fn collected(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains("Collected"))?;
    line.split(':').nth(1)?.split_whitespace().next()?.parse().ok()
}

/// The counts in a profile ("Callgrind Format Specification" of valgrind's manual), written without
/// compression: `ob=` begins lines of an object, and a line of an address and a number counts
/// instructions there. `calls=` is a call out of it, into the object of `cob=` if one is given; the
/// line behind it has the address of the call and what the callee took, which has lines of its own.
///
/// The number behind `calls=` is of no use: it contains the calls outside of the measured function.
/// How often the instruction that calls was executed inside of it is the number of calls.
fn by_object(profile: &str, program: &str) -> Counts {
    let mut counts = Counts::default();
    let mut executed = HashMap::new();
    let mut calls = HashSet::new();
    let (mut is_own, mut is_into_library, mut is_of_callee) = (false, false, false);
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_own = object == program;
        } else if let Some(object) = line.strip_prefix("cob=") {
            is_into_library = object != program;
        } else if line.starts_with("calls=") {
            is_of_callee = true;
        } else if let Some((address, count)) = position(line) {
            match (is_of_callee, is_own) {
                (true, true) if is_into_library => {
                    calls.insert(address);
                }
                (true, _) => {}
                (false, true) => {
                    counts.own += count;
                    *executed.entry(address).or_insert(0) += count;
                }
                (false, false) => counts.library += count,
            }
            (is_of_callee, is_into_library) = (false, false);
        }
    }
    counts.library_calls = calls.iter().filter_map(|address| executed.get(address)).sum();
    counts
}

/// Address and count of a line that has them.
fn position(line: &str) -> Option<(u64, u64)> {
    let (address, count) = line.strip_prefix("0x")?.split_once(' ')?;
    Some((u64::from_str_radix(address, 16).ok()?, count.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read_from_the_output_of_valgrind() {
        let text = "==7== Events    : Ir\n==7== Collected : 12345\n==7==\n";
        assert_eq!(collected(text), Some(12345.0));
        assert_eq!(collected("==7== Process terminating"), None);
    }

    #[test]
    fn misses_are_summed_over_reads_and_writes() {
        let profile = "events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\n0x1 2\nsummary: 9 5 4 0 30 12 0 20 1\n";
        assert_eq!(misses_in(profile), Some(Misses { first: 42, last: 21 }));
        assert_eq!(misses_in("events: Ir\nsummary: 9\n"), None);
    }

    #[test]
    fn zeros_that_callgrind_leaves_out_are_counted() {
        let profile = "events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\nsummary: 9 5 4 0 30 12\n";
        assert_eq!(misses_in(profile), Some(Misses { first: 42, last: 0 }));
    }

    #[test]
    fn instructions_are_counted_apart_for_program_and_libraries() {
        let profile = "# callgrind format\npositions: instr\nevents: Ir\nsummary: 166\n\n\
                       ob=/p\nfl=a.rs\nfn=forward\n0x10 100\n0x11 2\n\
                       cfn=check\ncalls=2 0x50\n0x11 40\n\
                       0x12 3\ncob=/libc.so.6\ncfi=m.S\ncfn=memcpy\ncalls=700 0x7\n0x12 20\n0x13 5\n\n\
                       fn=check\n0x50 35\n\n\
                       ob=/libc.so.6\nfl=m.S\nfn=memcpy\n0x7 15\n0x8 1\ncfn=tail\ncalls=1 0x9\n0x8 5\n\n\
                       fn=tail\n0x9 6\n";
        let counts = Counts { own: 145, library_calls: 3, library: 22 };
        assert_eq!(by_object(profile, "/p"), counts);
    }
}
