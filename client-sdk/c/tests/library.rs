//! The library as a program in C gets it: header, symbols, and C programs with the sanitizers for
//! memory errors and undefined behaviour, one of them through a real gateway and over a last mile
//! that loses datagrams.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use packrat_path::{Datagrams, LossyPath, Trials};

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");
const SANITIZERS: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Folder of the libraries that cargo has built: beside this test.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let file = test.parent().unwrap().join(name);
    assert!(file.exists(), "{} is not there; cargo builds it with this test", file.display());
    file
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// Compiles a program in C with all warnings and the sanitizers.
fn compile(source: &str, folder: &Path) -> PathBuf {
    let program = folder.join("program");
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    command.args(SANITIZERS).arg("-I").arg(format!("{FOLDER}/include"));
    command.arg(format!("{FOLDER}/{source}")).arg(built("libpackrat.a"));
    command.args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&program);
    run(&mut command);
    program
}

/// Functions are added to the list, never taken from it: programs are linked with them.
#[test]
fn the_library_exports_exactly_the_listed_functions() {
    let symbols = |file: &str, arguments: &[&str]| -> BTreeSet<String> {
        let listed = run(Command::new("nm").args(arguments).arg(built(file)));
        let name = |line: &str| Some(line.split_whitespace().next_back()?.to_owned());
        listed.lines().filter_map(name).collect()
    };
    let exported = symbols("libpackrat.so", &["--dynamic", "--defined-only", "--extern-only"]);
    let text: String = exported.iter().map(|symbol| format!("{symbol}\n")).collect();
    let committed = std::fs::read_to_string(format!("{FOLDER}/symbols.txt")).unwrap();
    assert_eq!(text, committed, "programs are linked with the functions of symbols.txt");
    assert!(exported.len() <= 25, "{} functions are more than anyone reads", exported.len());
    let header = std::fs::read_to_string(format!("{FOLDER}/include/packrat.h")).unwrap();
    assert!(header.contains("Version 0.1."), "the interface is frozen as 0.1");
    for symbol in &exported {
        assert!(header.contains(&format!("{symbol}(")), "{symbol} is not in the header");
    }
    let soname = run(Command::new("readelf").arg("--dynamic").arg(built("libpackrat.so")));
    assert!(soname.contains("[libpackrat.so.0]"), "{soname}");
}

#[test]
fn arguments_buffers_and_versions() {
    let folder = tempfile::tempdir().unwrap();
    run(&mut Command::new(compile("tests/interface.c", folder.path())));
}

/// The numbers in a line such as "received 5 of 7".
fn numbers(line: &str) -> Vec<u64> {
    let words = line.split(|character: char| !character.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn a_program_with_posix_sockets_gets_repaired_ordered_datagrams() {
    const COUNT: u64 = 4000;
    let folder = tempfile::tempdir().unwrap();
    let program = compile("examples/download.c", folder.path());
    let mut trials = Trials::of("repairs below a program in C");
    while trials.go_on() {
        let server = Datagrams::start();
        let path = LossyPath::start(server.address(), 0.04);
        let (address, port) = (path.address().ip().to_string(), path.address().port().to_string());
        let said = run(Command::new(&program).args([address, port, COUNT.to_string()]));
        let lost = path.lost();
        let mut lines = said.lines().map(numbers);
        let [received, count, wrong, out_of_order] = lines.next().unwrap()[..] else {
            panic!("{said}")
        };
        let [sessions, holes, in_time, late, given_up] = lines.next().unwrap()[..] else {
            panic!("{said}")
        };
        assert_eq!((count, wrong, sessions), (COUNT, 0, 1), "{said}");
        assert!(said.contains("condition assisted"), "{said}");
        assert!(lost > 80 && holes >= in_time, "{lost} lost: {said}");
        if trials.may_judge(path.is_on_time()) {
            // Some of the lost ones are control datagrams, repairs, or were lost before the session.
            assert!(in_time * 3 >= lost, "{lost} were lost: {said}");
            assert!((COUNT - received) * 3 <= lost, "{lost} were lost: {said}");
            assert!(out_of_order <= late + given_up + lost / 10, "{lost} lost: {said}");
        }
    }
}

#[test]
fn an_installed_library_is_found_by_its_package_file() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("usr");
    let libraries = built("libpackrat.so");
    run(Command::new(format!("{FOLDER}/install")).arg(libraries.parent().unwrap()).arg(&prefix));
    let metadata = std::fs::read_to_string(prefix.join("lib/pkgconfig/packrat.pc")).unwrap();
    let version = format!("Version: {}\n", env!("CARGO_PKG_VERSION"));
    assert!(metadata.contains(&version) && !metadata.contains('@'), "{metadata}");
    // The flags as pkg-config gives them, which is not everywhere.
    let variable = |name: &str| {
        let line = metadata.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.replace("${prefix}", prefix.to_str().unwrap())
            .replace("${includedir}", prefix.join("include").to_str().unwrap())
            .replace("${libdir}", prefix.join("lib").to_str().unwrap())
    };
    let flags = format!("{} {}", variable("Cflags:"), variable("Libs:"));
    let program = folder.path().join("interface");
    let source = format!("{FOLDER}/tests/interface.c");
    run(Command::new("cc").arg(source).args(flags.split_whitespace()).arg("-o").arg(&program));
    let library_path = prefix.join("lib");
    run(Command::new(&program).env("LD_LIBRARY_PATH", library_path));
}

#[test]
fn an_installed_library_is_found_by_cmake() {
    if Command::new("cmake").arg("--version").output().is_err() {
        println!("SKIPPED: there is no cmake");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("usr");
    let libraries = built("libpackrat.so");
    run(Command::new(format!("{FOLDER}/install")).arg(libraries.parent().unwrap()).arg(&prefix));
    // A name other than the installation prefix: the package may be moved.
    let moved = folder.path().join("moved");
    std::fs::rename(&prefix, &moved).unwrap();
    let project = |version: &str| {
        format!(
            "cmake_minimum_required(VERSION 3.16)\nproject(test C)\nfind_package(packrat {version} REQUIRED)\n\
             add_executable(shared {FOLDER}/tests/interface.c)\ntarget_link_libraries(shared packrat::packrat)\n\
             add_executable(static {FOLDER}/tests/interface.c)\ntarget_link_libraries(static packrat::static)\n"
        )
    };
    let configure = |version: &str, build: &Path| {
        let source = folder.path().join(format!("source-{version}"));
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(source.join("CMakeLists.txt"), project(version)).unwrap();
        let mut command = Command::new("cmake");
        command.arg("-S").arg(source).arg("-B").arg(build);
        command.arg(format!("-DCMAKE_PREFIX_PATH={}", moved.display()));
        command
    };
    let build = folder.path().join("build");
    run(&mut configure("0.1", &build));
    run(Command::new("cmake").arg("--build").arg(&build));
    for program in ["shared", "static"] {
        run(&mut Command::new(build.join(program)));
    }
    let refused = configure("0.2", &folder.path().join("refused")).output().unwrap();
    assert!(!refused.status.success(), "version 0.1 is not 0.2");
}
