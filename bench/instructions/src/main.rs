//! Compares the instructions that engine and client take with the table that is in git.
//!
//! ```text
//! packrat-instructions check   compares; fails when a count is more than 5 % off
//! packrat-instructions write   writes the table
//! ```
//!
//! `make check-instructions` and `make write-instructions` build and run it. Profiles for
//! `callgrind_annotate` are left in target/instructions.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use packrat_instructions::callgrind;
use packrat_instructions::client::{self, PER_TURN};
use packrat_instructions::scene::{self, PER_EACK};
use packrat_instructions::table::{self, Row};

/// Bytes of a datagram, and loss of the last mile in percent.
const WORKLOAD_SETTINGS: [(u32, u32); 4] = [(60, 0), (1452, 0), (1452, 4), (1452, 10)];
/// Measured steps: the name, the workload, the function that does it and nothing else, and how often
/// it does it in a turn. "receipt": all that the SDK does at a client, its eACKs included.
const MEASURED_STEPS: [(&str, &str, &str, usize); 3] = [
    ("datagram", "workload", "measured_forward", PER_EACK),
    ("eack", "workload", "measured_eack", 1),
    ("receipt", "client", "measured_receive", PER_TURN),
];
/// Turns of a measured step.
const STEP_TURNS: usize = 1000;
/// Command that writes the table.
const WRITE_COMMAND: &str = "make write-instructions";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["check"] => check(),
        ["write"] => write(),
        [kind @ ("workload" | "client"), bytes, loss, turns] => workload(kind, bytes, loss, turns),
        _ => Err("usage: packrat-instructions check|write".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("packrat-instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The process whose instructions are counted.
fn workload(
    kind: &str,
    bytes: &str,
    loss_percent: &str,
    turns: &str,
) -> Result<(), Box<dyn Error>> {
    let run = if kind == "client" { client::workload } else { scene::workload };
    run(bytes.parse()?, loss_percent.parse::<f64>()? / 100.0, turns.parse()?)
}

/// The table of this architecture.
fn path() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("counts");
    folder.join(std::env::consts::ARCH).with_extension("csv")
}

fn check() -> Result<(), Box<dyn Error>> {
    let path = path();
    let Ok(text) = fs::read_to_string(&path) else {
        let (architecture, path) = (std::env::consts::ARCH, path.display());
        println!(
            "SKIPPED: instruction counts: no table for {architecture} ({path}); `{WRITE_COMMAND}` writes one"
        );
        return Ok(());
    };
    let listed = table::read(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let found = table::compare(&listed, &measure()?);
    if found.is_empty() {
        return Ok(());
    }
    let mut text = String::from("instruction counts are not those of the table\n");
    let groups = [
        ("More than the table says", &found.more),
        ("Less than the table says, which is welcome", &found.less),
        ("Not in both", &found.unmatched),
    ];
    for (title, lines) in groups {
        if !lines.is_empty() {
            text += &format!("\n{title}:\n    {}\n", lines.join("\n    "));
        }
    }
    if !found.more.is_empty() {
        text += &format!(
            "\nWhere the instructions are: callgrind_annotate {}/WHAT-BYTES-lossLOSS.callgrind\n\
             Make it cheaper, or, if it is worth its price, write the table and say why in the commit:\n",
            profiles()?.display()
        );
    } else {
        text += "\nWrite the table, so that it stays true and the next change is compared with this one:\n";
    }
    let path = path.display();
    Err(format!("{text}    {WRITE_COMMAND}    (it writes {path})").into())
}

fn write() -> Result<(), Box<dyn Error>> {
    let path = path();
    let text = table::write(&measure()?, WRITE_COMMAND);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("written: {}", path.display());
    Ok(())
}

/// Measures all settings, and prints the counts.
fn measure() -> Result<Vec<Row>, Box<dyn Error>> {
    callgrind::is_available()?;
    is_known_processor()?;
    let folder = profiles()?;
    println!(
        "what      bytes  loss  instructions  calls into the C library  instructions there (not compared)"
    );
    let mut rows = Vec::new();
    for (bytes, loss_percent) in WORKLOAD_SETTINGS {
        let text = [bytes.to_string(), loss_percent.to_string(), STEP_TURNS.to_string()];
        for (what, kind, function, times) in MEASURED_STEPS {
            let arguments = [kind, &text[0], &text[1], &text[2]];
            let file = folder.join(format!("{what}-{bytes}-loss{loss_percent}.callgrind"));
            let counts = callgrind::counts(function, &file, &arguments)?;
            let mean = |count: u64| count as f64 / (STEP_TURNS * times) as f64;
            let row = Row {
                what: what.to_owned(),
                bytes,
                loss_percent,
                instructions: mean(counts.own),
                library_calls: mean(counts.library_calls),
            };
            let (own, calls, library) = (row.instructions, row.library_calls, mean(counts.library));
            println!(
                "{what:<8} {bytes:>6}  {loss_percent:>2} %  {own:>12.1}  {calls:>24.3}  {library:>18.1}"
            );
            rows.push(row);
        }
    }
    Ok(rows)
}

/// The folder of callgrind's output: target/instructions.
fn profiles() -> Result<PathBuf, Box<dyn Error>> {
    let folder = std::env::current_exe()?.with_file_name("../instructions");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder.canonicalize()?)
}

/// Checks that valgrind shows the program the processor for which the table was written.
fn is_known_processor() -> Result<(), Box<dyn Error>> {
    #[cfg(target_arch = "x86_64")]
    if !std::arch::is_x86_feature_detected!("avx2") {
        return Err(
            "the processor has no AVX2: the engine takes other instructions than those of \
                    the table; run this on a processor of 2015 or later"
                .into(),
        );
    }
    Ok(())
}
