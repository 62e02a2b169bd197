//! The order of the data plane's files: imports go down, and never round in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The layers from the ground up, with the modules in them. A module imports modules of its own
/// layer and of the layers below.
const LAYERS: &[(&str, &[&str])] = &[
    ("locks", &["sync"]),
    ("records", &["metrics", "log", "random", "clock"]),
    ("sockets", &["socket"]),
    ("configuration", &["configuration", "stream", "tokens"]),
    ("context", &["context"]),
    ("sessions", &["session"]),
    ("routes", &["route"]),
    ("listeners", &["listener"]),
    ("process", &["process"]),
    ("fuzzing", &["fuzz_corpus"]),
];

/// The import that may close a circle: the keys' file reports mistakes as the configuration's error
/// type.
const EXCEPTED: &[(&str, &str)] = &[("tokens", "configuration")];

/// Module by module, the modules that it imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn imports_go_down() {
    let imports = imports(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let upward: Vec<String> = imports
        .iter()
        .flat_map(|(from, to)| to.iter().map(move |to| (from, to)))
        .filter(|(from, to)| layer(from) < layer(to))
        .map(|(from, to)| format!("{from} imports {to}"))
        .collect();
    assert!(upward.is_empty(), "against the order of the layers: {upward:#?}");
}

#[test]
fn no_import_closes_a_circle() {
    let mut imports = imports(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(imports.len() > 40, "{imports:#?}");
    for (from, to) in EXCEPTED {
        imports.entry((*from).to_owned()).or_default().remove(*to);
    }
    assert_eq!(circle(&imports), None);
}

#[test]
fn a_circle_is_found() {
    let imports = |arrows: &[(&str, &str)]| {
        let mut imports = Imports::new();
        for (from, to) in arrows {
            imports.entry((*to).to_owned()).or_default();
            imports.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        imports
    };
    assert_eq!(circle(&imports(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    let found = circle(&imports(&[("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")])).unwrap();
    assert_eq!(found, ["b", "c", "d"]);
    let text = "use super::{a::{B, c::D}, E};\nfn f() { crate::x::y() }\n// crate::comment\n";
    let paths = ["super::a::B", "super::a::c::D", "super::E", "crate::x::y"].map(str::to_owned);
    assert_eq!(paths_in(text), BTreeSet::from(paths));
}

/// The number of a module's layer.
fn layer(module: &str) -> usize {
    let first = module.split("::").next().unwrap();
    LAYERS
        .iter()
        .position(|(_, modules)| modules.contains(&first))
        .unwrap_or_else(|| panic!("module {first} is in no layer: name it in LAYERS"))
}

/// A circle among these modules, if there is one.
fn circle(imports: &Imports) -> Option<Vec<String>> {
    let mut left = imports.clone();
    // Modules that import no other modules are in no circle.
    loop {
        let names: BTreeSet<String> = left.keys().cloned().collect();
        let before = left.len();
        left.retain(|_, to| !to.is_disjoint(&names));
        if left.len() == before {
            break;
        }
    }
    let mut way: Vec<String> = Vec::new();
    let mut next = left.keys().next()?.clone();
    loop {
        if let Some(begin) = way.iter().position(|passed| *passed == next) {
            return Some(way.split_off(begin));
        }
        let onward = left[&next].iter().find(|to| left.contains_key(*to)).unwrap().clone();
        way.push(std::mem::replace(&mut next, onward));
    }
}

/// The imports among the modules of a crate, tests aside.
fn imports(source: &Path) -> Imports {
    let mut texts = BTreeMap::new();
    collect(source, "", &mut texts);
    let resolve = |module: &str, path: &str| {
        let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
        let absolute = match path.split_once("::").unwrap_or((path, "")) {
            ("crate", rest) => rest.to_owned(),
            ("self", rest) => format!("{module}::{rest}"),
            ("super", rest) => format!("{parent}::{rest}"),
            _ => format!("{module}::{path}"),
        };
        // The longest beginning that is a module.
        let mut name = absolute.trim_start_matches("::");
        while !texts.contains_key(name) {
            name = name.rsplit_once("::")?.0;
        }
        (name != module).then(|| name.to_owned())
    };
    texts
        .iter()
        .map(|(module, text)| {
            let paths = paths_in(text);
            (module.clone(), paths.iter().filter_map(|path| resolve(module, path)).collect())
        })
        .collect()
}

/// The text of each module below `folder`, the crate's root aside.
fn collect(folder: &Path, prefix: &str, texts: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let module = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}::{name}") };
        if path.is_dir() {
            collect(&path, &module, texts);
        } else if name == "mod" {
            texts.insert(prefix.to_owned(), fs::read_to_string(&path).unwrap());
        } else if module != "lib" {
            texts.insert(module, fs::read_to_string(&path).unwrap());
        }
    }
}

/// The paths that a text imports or names with `crate::`, without comments and tests.
fn paths_in(text: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n");
    let mut paths = BTreeSet::new();
    for statement in code.split(';') {
        let visible = statement.lines().map(str::trim_start).position(|line| {
            ["use ", "pub use ", "pub(crate) use ", "pub(super) use "]
                .iter()
                .any(|keyword| line.starts_with(keyword))
        });
        if let Some(first) = visible {
            let lines: Vec<&str> = statement.lines().skip(first).collect();
            let tree: String = lines.join(" ");
            expand("", tree.split_once("use ").unwrap().1, &mut paths);
        }
    }
    for (at, _) in code.match_indices("crate::") {
        let is_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
        let rest = &code[at..];
        let path = rest.split(|letter| !is_path(letter)).next().unwrap();
        paths.insert(path.trim_end_matches(':').to_owned());
    }
    // The beginnings of trees are no paths of their own.
    let trees = paths.clone();
    paths.retain(|path| !trees.iter().any(|longer| longer.starts_with(&format!("{path}::"))));
    paths
}

/// Adds the paths of a tree such as `a::{b, c::{d, e}}`.
fn expand(prefix: &str, tree: &str, paths: &mut BTreeSet<String>) {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap().trim();
        if !name.is_empty() {
            paths.insert(format!("{prefix}{name}"));
        }
        return;
    };
    let inside = rest.rsplit_once('}').unwrap().0;
    let prefix = format!("{prefix}{}", head.trim());
    let (mut depth, mut begin) = (0, 0);
    for (at, letter) in inside.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&prefix, &inside[begin..at], paths);
                begin = at + 1;
            }
            _ => {}
        }
    }
    expand(&prefix, &inside[begin..], paths);
}
