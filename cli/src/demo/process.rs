//! Processes that the demo starts, and that never outlive it.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::error::DemoError;

/// Longest time for a process to get ready, on a machine that is busy with other things.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Longest time for a process to end after a signal: servers write their logs.
const STOP_WITHIN: Duration = Duration::from_secs(20);
/// Interval of looking if a process has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Lines of a log that an error shows.
const LOG_LINES: usize = 15;

/// A running process in a process group of its own; dropping it kills the group.
///
/// Ctrl-C reaches only the demo, which drops its processes in order. If the demo is killed before
/// it can drop anything, the kernel kills them (where util-linux's `setpriv` can request that).
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program`; both its outputs go to `log`. `prepare` adds arguments and environment.
    ///
    /// Must be called on a thread that lives as long as the demo: the kernel takes the thread's end
    /// for the demo's.
    pub(crate) fn start(
        name: &'static str,
        program: &Path,
        log: &Path,
        prepare: impl FnOnce(&mut Command),
    ) -> Result<Self, DemoError> {
        let output = File::create(log).map_err(|error| DemoError::write(log, error))?;
        let errors = output.try_clone().map_err(|error| DemoError::write(log, error))?;
        let mut command = match find_in_path("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        prepare(&mut command);
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let child = command.spawn().map_err(|source| DemoError::Start {
            name,
            program: program.to_owned(),
            source,
        })?;
        Ok(Self { name, child, log: log.to_owned() })
    }

    /// Waits until `ready` returns true.
    pub(crate) async fn wait_until_ready(
        &mut self,
        mut ready: impl FnMut() -> bool,
    ) -> Result<(), DemoError> {
        let started = Instant::now();
        while !ready() {
            self.check()?;
            if started.elapsed() > READY_WITHIN {
                let seconds = READY_WITHIN.as_secs();
                return Err(DemoError::NotReady {
                    name: self.name,
                    seconds,
                    log: self.last_lines(),
                });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Fails when the process has ended.
    pub(crate) fn check(&mut self) -> Result<(), DemoError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.ended(status.to_string())),
            Err(error) => Err(self.ended(error.to_string())),
        }
    }

    /// Resident memory in bytes, if the system reports it (Linux).
    pub(crate) fn resident_bytes(&self) -> Option<i64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: i64 = line.trim().trim_end_matches(" kB").parse().ok()?;
        Some(kilobytes * 1024)
    }

    /// Asks the process to end, waits for it, and kills it when it takes too long.
    pub(crate) async fn stop(mut self) -> Option<ExitStatus> {
        self.signal(Signal::TERM);
        let asked = Instant::now();
        while asked.elapsed() < STOP_WITHIN {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        None
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It fails only if the whole group has ended already.
            let _ = kill_process_group(group, signal);
        }
    }

    fn ended(&self, status: String) -> DemoError {
        DemoError::Ended { name: self.name, status, log: self.last_lines() }
    }

    fn last_lines(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

fn find_in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// An address on the loopback interface whose port is free for UDP and for TCP, and stays free for
/// others.
pub(crate) fn free_address() -> Result<SocketAddr, DemoError> {
    packrat_emulation::port::free_address().map_err(DemoError::Port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alive(pid: u32) -> bool {
        // A zombie that was not waited for yet is also dead.
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn dropping_a_process_ends_its_children_as_well() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let process =
            Process::start("sh", Path::new("/bin/sh"), &folder.path().join("log"), |command| {
                command.arg("-c").arg(format!(
                    "sleep 60 & echo $! > {0}.new; mv {0}.new {0}; wait",
                    pids.display()
                ));
            })
            .unwrap();
        let grandchild = loop {
            match fs::read_to_string(&pids) {
                Ok(pid) => break pid.trim().parse().unwrap(),
                Err(_) => std::thread::sleep(POLL_INTERVAL),
            }
        };
        let child = process.child.id();
        assert!(alive(child) && alive(grandchild));
        drop(process);
        let killed = Instant::now();
        while alive(grandchild) && killed.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(POLL_INTERVAL);
        }
        assert!(!alive(child) && !alive(grandchild));
    }

    #[tokio::test]
    async fn an_early_end_is_reported_with_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut process =
            Process::start("sh", Path::new("/bin/sh"), &folder.path().join("log"), |command| {
                command.args(["-c", "echo the port is taken; exit 3"]);
            })
            .unwrap();
        let error = process.wait_until_ready(|| false).await.unwrap_err().to_string();
        assert!(error.contains("the port is taken") && error.contains("exit status: 3"), "{error}");
    }

    #[tokio::test]
    async fn stop_lets_a_process_end_in_its_own_way() {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let mut process =
            Process::start("sh", Path::new("/bin/sh"), &folder.path().join("log"), |command| {
                let script = format!(
                    "trap 'exit 7' TERM; touch {}; while :; do sleep 0.05; done",
                    ready.display()
                );
                command.arg("-c").arg(script);
            })
            .unwrap();
        process.wait_until_ready(|| ready.exists()).await.unwrap();
        assert_eq!(process.stop().await.and_then(|status| status.code()), Some(7));
    }
}
