//! The overview page in a real browser. `make test-page` installs one.

use std::path::PathBuf;
use std::process::Command;

use crate::gateway::Gateway;

/// The browser of `PACKRAT_CHROMIUM`, or one on the path. Without one it is `None` and a line is
/// printed; with `CI=true` that is a failure.
fn find_browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = std::env::var_os("PACKRAT_CHROMIUM")
        .map(PathBuf::from)
        .into_iter()
        .chain(std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name))));
    let found = found.into_iter().find(|program| program.exists());
    if found.is_none() {
        let hint = "no chromium: set PACKRAT_CHROMIUM or install the package chromium";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{hint}");
        println!("SKIPPED: {hint}");
    }
    found
}

#[test]
#[ignore = "needs a browser: make test-page"]
fn a_browser_draws_the_page_without_complaint() {
    let Some(browser) = find_browser() else { return };
    let gateway = Gateway::start("web");
    gateway.ask();
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("page.png");
    let run = |arguments: &[&str]| {
        let output = Command::new(&browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
            ])
            .args(["--enable-logging=stderr", "--window-size=1280,1400"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .args(arguments)
            .arg(format!("http://{}/", gateway.admin.address()))
            .output()
            .unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{complaints}");
        // Complaints of the browser about the page, for example about a style that its policy
        // forbids.
        let console: Vec<&str> =
            complaints.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(console.is_empty(), "{console:#?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let document = run(&["--dump-dom"]);
    assert_eq!(document.matches("<svg").count(), 4, "{document}");
    assert!(document.contains("class=\"tile"), "{document}");
    run(&[&format!("--screenshot={}", picture.display())]);
    assert!(std::fs::metadata(&picture).unwrap().len() > 20_000);
}
