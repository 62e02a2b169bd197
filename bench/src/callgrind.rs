//! Instruction counts, which do not depend on the other load of the machine.
//!
//! This program runs itself under callgrind with one of the workloads. Only instructions inside the
//! function that the workload marks as measured are counted.

use std::error::Error;
use std::process::{Command, Stdio};

/// Checks that valgrind can run here; the error says why not.
pub(crate) fn is_available() -> Result<(), String> {
    match Command::new("valgrind").arg("--version").stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("valgrind --version ended with {status}")),
        Err(error) => {
            Err(format!("valgrind does not run ({error}); install it: apt-get install valgrind"))
        }
    }
}

/// Instructions inside of functions whose name contains `function`, while this program runs with
/// `arguments`.
pub(crate) fn count(function: &str, arguments: &[&str]) -> Result<f64, Box<dyn Error>> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect=*{function}*"))
        .arg(std::env::current_exe()?)
        .args(arguments)
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("valgrind ended with {}: {text}", output.status).into());
    }
    collected(&text).ok_or_else(|| format!("valgrind counted nothing: {text}").into())
}

/// The number behind "Collected :".
fn collected(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains("Collected"))?;
    line.split(':').nth(1)?.split_whitespace().next()?.parse().ok()
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
}
