//! Public types may grow without breaking the programs that use them.

use std::collections::BTreeSet;
use std::path::Path;

/// Users may write these with all their fields. Each is a number, or two, and stays so.
const CLOSED: [&str; 4] = ["Epoch", "Layouts", "MemberId", "Rate"];

/// The text of all files in a directory and below it.
fn sources(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: std::path::PathBuf| match path.is_dir() {
        true => sources(&path),
        false => std::fs::read_to_string(path).into_iter().collect(),
    };
    entries.flat_map(read).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The names that a module exports.
fn exports(module: &str) -> BTreeSet<&str> {
    let uses = module.split("\npub use ").skip(1).filter_map(|rest| rest.split(';').next());
    uses.flat_map(words).collect()
}

/// Whether users could name all parts of a type, and would have to change their programs if it got another one. `rest` is
/// the text behind its name.
fn is_open(keyword: &str, rest: &str) -> bool {
    let body = rest.split("\n}").next().unwrap();
    match rest.trim_start_matches(|c| c != '(' && c != '{').starts_with('(') {
        _ if keyword == "enum" => true,
        true => rest.split(';').next().unwrap().contains("(pub "),
        false => {
            let fields = body.lines().skip(1).filter(|line| line.contains(": ") && !line.contains("//"));
            fields.clone().all(|line| line.starts_with("    pub ")) && fields.count() > 0
        }
    }
}

#[test]
fn each_public_type_that_may_grow_is_marked_as_such() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = sources(&source);
    let [root, testing] =
        ["lib.rs", "testing/mod.rs"].map(|file| std::fs::read_to_string(source.join(file)).unwrap());
    let exported: BTreeSet<&str> = exports(&root).union(&exports(&testing)).copied().collect();
    let (mut found, mut unmarked) = (0, BTreeSet::new());
    for keyword in ["struct", "enum"] {
        for text in &files {
            let mut before = String::new();
            for part in text.split_inclusive(&format!("\npub {keyword} ")) {
                let name = words(part).next().unwrap_or_default();
                if !before.is_empty() && exported.contains(name) {
                    found += 1;
                    let attributes = before.rsplit("\n\n").next().unwrap();
                    if is_open(keyword, &part[name.len()..]) && !attributes.contains("#[non_exhaustive]") {
                        unmarked.insert(name.to_owned());
                    }
                }
                before = part.to_owned();
            }
        }
    }
    assert!(found > 40, "the test finds the types: {found}");
    assert_eq!(unmarked, CLOSED.map(ToOwned::to_owned).into());
}
