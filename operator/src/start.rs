//! Starts a gateway's Envoy: with the configuration of the operator, or, while no operator answers,
//! with the last one, which the operator has left in a Secret.
//!
//! ```text
//!   operator answers ---------------------------------------------> Envoy, asks the operator
//!   it does not, last configuration is there --> Envoy, reads it --> the operator answers again --^
//! ```
//!
//! Without the last configuration, an Envoy that starts while the operator is away has no listener.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};

use crate::workload::LAST_CLUSTERS;

/// Time between two looks for the operator before Envoy starts.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for one look.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);
/// Longest time that Envoy has to end.
const ENDING_PATIENCE: Duration = Duration::from_secs(10);

/// The operator's address, the paths of files, and times.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Host and port of the operator's discovery service.
    pub operator: String,
    /// The last configuration: a discovery response with listeners.
    pub last: PathBuf,
    /// The program.
    pub envoy: PathBuf,
    /// Administration interface of Envoy.
    pub admin: PathBuf,
    /// Time that the operator has to answer.
    pub patience: Duration,
    /// Time between two looks for the operator while Envoy runs with the last configuration.
    pub interval: Duration,
    /// Longest time that the last configuration stays in force after the operator is back: each
    /// gateway chooses one, so that not all begin again at once.
    pub spread: Duration,
}

/// Starts Envoy with these arguments, and replaces this process by Envoy as soon as the operator
/// answers. Returns if Envoy has ended before.
///
/// # Errors
/// When Envoy cannot be started.
pub async fn start(settings: &Settings, arguments: &[String]) -> io::Result<ExitCode> {
    // Without randomness, the first.
    let wait = share_of(settings.spread, getrandom::u32().unwrap_or_default());
    // The first process of a container is not ended by a signal that it does not take.
    let mut terminate = signal(SignalKind::terminate())?;
    let end = Instant::now() + settings.patience;
    let mut answers = answers(&settings.operator).await;
    while !answers && Instant::now() < end {
        tokio::select! {
            _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
            () = sleep(LOOK_INTERVAL) => answers = self::answers(&settings.operator).await,
        }
    }
    if !answers && settings.last.exists() {
        eprintln!(
            "packrat-start: the operator ({}) does not answer: the last configuration, {}, is in force until it does",
            settings.operator,
            settings.last.display()
        );
        let mut envoy = Command::new(&settings.envoy)
            .args(with_last(arguments, &settings.last, &clusters_of(settings)?)?)
            .kill_on_drop(true)
            .spawn()?;
        let ended = until_the_operator_answers(settings, wait, &mut envoy, &mut terminate).await?;
        if let Some(code) = ended {
            return Ok(code);
        }
        eprintln!("packrat-start: the operator answers again");
    }
    // A successful call does not return.
    Err(std::process::Command::new(&settings.envoy).args(arguments).exec())
}

/// True if a process listens at the operator's address.
async fn answers(operator: &str) -> bool {
    matches!(timeout(LOOK_PATIENCE, TcpStream::connect(operator)).await, Ok(Ok(_)))
}

/// Waits with an Envoy that has the last configuration. `None`: the operator answers, and Envoy has
/// ended to begin again.
async fn until_the_operator_answers(
    settings: &Settings,
    wait: Duration,
    envoy: &mut Child,
    terminate: &mut Signal,
) -> io::Result<Option<ExitCode>> {
    let is_told_to_end = tokio::select! {
        ended = envoy.wait() => return ended.map(|status| Some(exit_code(status.code()))),
        _ = terminate.recv() => true,
        () = operator_is_back(settings, wait) => false,
    };
    let admin = settings.admin.clone();
    // The answer does not matter: Envoy ends, or is ended.
    let _ = tokio::task::spawn_blocking(move || crate::drain::quit(&admin)).await;
    let ended = match timeout(ENDING_PATIENCE, envoy.wait()).await {
        Ok(ended) => ended?,
        Err(_) => {
            envoy.kill().await?;
            envoy.wait().await?
        }
    };
    Ok(is_told_to_end.then(|| exit_code(ended.code())))
}

/// Returns when the operator has answered twice (it may be about to go again), and still answers
/// after `wait`.
async fn operator_is_back(settings: &Settings, wait: Duration) {
    let mut times = 0;
    while times < 3 {
        sleep(if times == 2 { wait } else { settings.interval }).await;
        times = if answers(&settings.operator).await { times + 1 } else { 0 };
    }
}

/// The part of a time that a random number stands for.
fn share_of(time: Duration, random: u32) -> Duration {
    time.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

fn exit_code(code: Option<i32>) -> ExitCode {
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The file with the clusters of the last listeners. A Secret of a former version lacks the
/// clusters: then an empty file is created, in the only writable directory.
fn clusters_of(settings: &Settings) -> io::Result<PathBuf> {
    let beside = settings.last.with_file_name(LAST_CLUSTERS);
    if beside.exists() {
        return Ok(beside);
    }
    let own = settings.admin.with_file_name(LAST_CLUSTERS);
    std::fs::write(&own, [])?;
    Ok(own)
}

/// Envoy's arguments with the listeners and clusters of files instead of the operator's. Envoy
/// takes one piece of further configuration: if there is one, this goes into it.
fn with_last(arguments: &[String], last: &Path, clusters: &Path) -> io::Result<Vec<String>> {
    const CONFIG_FLAG: &str = "--config-yaml";
    let mut arguments = arguments.to_vec();
    let place = arguments.iter().position(|argument| argument == CONFIG_FLAG).map(|flag| flag + 1);
    let mut further = match place.and_then(|place| arguments.get(place)) {
        Some(text) => serde_json::from_str::<Value>(text)?,
        None => json!({}),
    };
    let source = |path: &Path| {
        let directory = path.parent().unwrap_or(Path::new("/"));
        json!({
            "resource_api_version": "V3",
            "path_config_source": { "path": path, "watched_directory": { "path": directory } },
        })
    };
    further["dynamic_resources"] =
        json!({ "lds_config": source(last), "cds_config": source(clusters) });
    match place.and_then(|place| arguments.get_mut(place)) {
        Some(text) => *text = further.to_string(),
        None => arguments.extend([CONFIG_FLAG.to_owned(), further.to_string()]),
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_begin_anew_at_times_that_are_spread_evenly() {
        let longest = Duration::from_secs(120);
        assert_eq!(share_of(longest, 0), Duration::ZERO);
        assert_eq!(share_of(longest, u32::MAX), longest);
        let share = |tenth: u32| share_of(longest, u32::MAX / 10 * tenth).as_secs_f64();
        for tenth in 1..10 {
            assert!((share(tenth) - 12.0 * f64::from(tenth)).abs() < 0.1, "{tenth}");
        }
        assert_eq!(share_of(Duration::ZERO, u32::MAX), Duration::ZERO);
    }

    #[tokio::test]
    async fn the_last_configuration_stays_in_force_for_the_gateways_share() {
        let operator = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let settings = Settings {
            operator: operator.local_addr().unwrap().to_string(),
            last: PathBuf::new(),
            envoy: PathBuf::new(),
            admin: PathBuf::new(),
            patience: Duration::ZERO,
            interval: Duration::from_millis(1),
            spread: Duration::ZERO,
        };
        operator_is_back(&settings, Duration::ZERO).await;
        let back = operator_is_back(&settings, Duration::from_secs(3600));
        assert!(timeout(Duration::from_millis(200), back).await.is_err());
    }

    #[test]
    fn the_last_configuration_takes_the_place_of_the_operators() {
        let last = Path::new("/etc/packrat/last/listeners.pb");
        let text = |arguments: &[&str]| -> Vec<String> {
            let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
            with_last(&arguments, last, Path::new("/etc/packrat/last/clusters.pb")).unwrap()
        };
        let source = |path: &str| {
            let source =
                json!({ "path": path, "watched_directory": { "path": "/etc/packrat/last" } });
            json!({ "resource_api_version": "V3", "path_config_source": source })
        };
        let lds = source("/etc/packrat/last/listeners.pb");
        let cds = source("/etc/packrat/last/clusters.pb");
        let plain = text(&["--config-path", "a.json"]);
        assert_eq!(plain[..3], ["--config-path", "a.json", "--config-yaml"]);
        let further: Value = serde_json::from_str(&plain[3]).unwrap();
        assert_eq!(
            further,
            json!({ "dynamic_resources": { "lds_config": lds, "cds_config": cds } })
        );
        // On the host network there is a page beside the bootstrap configuration.
        let page = r#"{"static_resources":{"listeners":[]}}"#;
        let on_host = text(&["--config-yaml", page, "--concurrency", "2"]);
        assert_eq!((on_host.len(), on_host[2].as_str()), (4, "--concurrency"));
        let further: Value = serde_json::from_str(&on_host[1]).unwrap();
        assert_eq!(further["static_resources"], json!({ "listeners": [] }));
        assert_eq!(further["dynamic_resources"]["lds_config"], lds);
    }
}
