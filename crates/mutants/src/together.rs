//! All mutants of the Rust sources in one build.
//!
//! It takes much longer to build a mutant than to test it. So one build contains all mutants. The body of every
//! function becomes a choice among copies of itself, and each copy contains one mutant.
//!
//! ```text
//! fn is_late(&self) -> bool { match crate::mutant_of(12) {
//! 71 => { self.age >= LIMIT }
//! 72 => { true }
//! _ => { self.age > LIMIT }
//! } }
//! ```
//!
//! The environment variable `MUTANT` selects the copy that runs in a test process and in all processes that the tests
//! start. `REACHED` names a file. These processes write the numbers of all functions that are called to it. From that
//! file [`crate::reach`] learns which tests a mutant can fail.
//!
//! If the compiler refuses a copy, the copy is removed and the build is repeated. Its mutant is tried alone. So are
//! mutants outside of functions and in constant functions.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use anyhow::{Context as _, Result, anyhow, ensure};
use syn::visit::Visit;

use crate::copy::TreeCopy;
use crate::mutant::Mutant;
use crate::root;
use crate::suites;
use crate::trial::{Built, Refusal, SourceLine, Trial};

/// The roots of the crates that are mutated. Each needs [`CHOICE`].
const CRATES: [&str; 3] =
    ["crates/estafeta/src/lib.rs", "crates/estafeta-lab/src/lib.rs", "crates/estafeta-cli/src/main.rs"];

/// The suites to build, in the order in which the crates need each other.
const SUITES: [&str; 5] = ["scripts", "library", "lab", "program", "commands"];

const CHOICE: &str = r#"
/// The mutant that is to run, and a note that this function was called.
#[allow(warnings, clippy::all)]
pub(crate) fn mutant_of(function: usize) -> usize {
    use std::{collections::HashSet, env::var, fs::File, io::Write, sync::{LazyLock, Mutex, PoisonError}};
    static CHOSEN: LazyLock<usize> = LazyLock::new(|| var("MUTANT").map_or(0, |number| number.parse().unwrap()));
    static REACHED: LazyLock<Option<Mutex<(File, HashSet<usize>)>>> = LazyLock::new(|| {
        let file = File::options().append(true).create(true).open(var("REACHED").ok()?).unwrap();
        Some(Mutex::new((file, HashSet::new())))
    });
    if let Some(reached) = &*REACHED {
        let (file, known) = &mut *reached.lock().unwrap_or_else(PoisonError::into_inner);
        if known.insert(function) {
            file.write_all(format!("{function}\n").as_bytes()).unwrap();
        }
    }
    *CHOSEN
}
"#;

/// A build of all mutants that the compiler accepts together.
pub struct Together {
    /// By the name of the suite.
    suites: BTreeMap<&'static str, Built>,
    /// The names of all functions. The index of a function is its number.
    pub functions: Vec<String>,
    /// The mutants of this build, with the number of the function that contains each.
    function_of: BTreeMap<usize, usize>,
}

impl Together {
    /// Builds these mutants. Each has its own number, which is not 0.
    pub fn build(mutants: &BTreeMap<usize, &Mutant>, copy: &TreeCopy, trial: &Trial) -> Result<Self> {
        let in_areas = suites::rust_files()?;
        // Planted bugs may be in other files of these crates.
        let with_bugs = mutants.values().map(|mutant| mutant.file.as_str());
        let with_bugs = with_bugs.filter(|file| CRATES.iter().any(|root| file.starts_with(directory(root))));
        let files: BTreeSet<&str> =
            in_areas.iter().map(String::as_str).chain(with_bugs).chain(CRATES).collect();
        let mut left_out = BTreeSet::new();
        loop {
            let mut functions = Vec::new();
            let (mut copies, mut kept) = (BTreeMap::new(), BTreeMap::new());
            for &file in &files {
                let source = std::fs::read_to_string(root().join(file))?;
                let is_in =
                    |number: &usize, mutant: &Mutant| mutant.file == file && !left_out.contains(number);
                let of_file = mutants.iter().map(|(number, mutant)| (*number, *mutant));
                let of_file = of_file.filter(|(number, mutant)| is_in(number, mutant)).collect();
                let mut composed = Composed::of(file, &source, &of_file, &mut functions)?;
                if CRATES.contains(&file) {
                    composed.text += CHOICE;
                }
                copy.write(file, &composed.text)?;
                kept.extend(composed.function_of);
                copies.insert(file.to_owned(), composed.copies);
            }
            match build(trial)? {
                Ok(suites) => return Ok(Self { suites, functions, function_of: kept }),
                Err(refusal) => {
                    let refused = refused(&refusal.errors, &copies);
                    ensure!(!refused.is_empty(), "the build of all mutants fails:\n{}", refusal.output);
                    left_out.extend(refused);
                }
            }
        }
    }

    /// The binary with the tests of this stage.
    pub fn binary(&self, stage: &str) -> Result<&Built> {
        let suite = match suites::name(stage) {
            "sample" | "stories" | "damage" => "scripts",
            other => other,
        };
        self.suites.get(suite).ok_or_else(|| anyhow!("there is no binary for {stage}"))
    }

    /// The name of the function that contains this mutant, if it is part of the build.
    pub fn function_of(&self, mutant: usize) -> Option<&str> {
        Some(&self.functions[*self.function_of.get(&mutant)?])
    }
}

/// The path of a file up to its last slash.
fn directory(file: &str) -> &str {
    &file[..file.rfind('/').map_or(0, |slash| slash + 1)]
}

fn build(trial: &Trial) -> Result<Result<BTreeMap<&'static str, Built>, Refusal>> {
    let mut suites = BTreeMap::new();
    for suite in SUITES {
        match trial.build(suite)? {
            Ok(built) => suites.insert(suite, built),
            Err(refusal) => return Ok(Err(refusal)),
        };
    }
    Ok(Ok(suites))
}

/// The mutants in whose copies the compiler found errors. An error elsewhere in a function counts for all of its
/// mutants.
fn refused(errors: &[Vec<SourceLine>], copies: &BTreeMap<String, Vec<Copies>>) -> BTreeSet<usize> {
    let mut refused = BTreeSet::new();
    for SourceLine { file, line } in errors.iter().flatten() {
        let functions = copies.get(file).into_iter().flatten();
        for function in functions.filter(|function| function.lines.contains(line)) {
            match function.mutants.iter().find(|(_, lines)| lines.contains(line)) {
                Some((mutant, _)) => refused.extend([*mutant]),
                None => refused.extend(function.mutants.iter().map(|(mutant, _)| *mutant)),
            }
        }
    }
    refused
}

/// Where the copies of one function are in the composed file.
struct Copies {
    lines: RangeInclusive<usize>,
    mutants: Vec<(usize, RangeInclusive<usize>)>,
}

struct Composed {
    text: String,
    copies: Vec<Copies>,
    function_of: BTreeMap<usize, usize>,
}

impl Composed {
    /// The file with the mutants in it. Adds the names of its functions to `functions`.
    fn of(
        file: &str,
        source: &str,
        mutants: &BTreeMap<usize, &Mutant>,
        functions: &mut Vec<String>,
    ) -> Result<Self> {
        let mut composed = Self { text: String::new(), copies: Vec::new(), function_of: BTreeMap::new() };
        let mut done = 0;
        for body in bodies(source).with_context(|| format!("cannot read {file}"))? {
            let number = functions.len();
            functions.push(format!("{file} {}", body.name));
            composed.text += &source[done..body.span.start];
            let first = composed.line();
            composed.text += &format!("{{ match crate::mutant_of({number}) {{\n");
            let mut copies = Vec::new();
            for (mutant, change) in mutants {
                if body.span.start < change.span.start && change.span.end < body.span.end {
                    let first = composed.line();
                    let (before, after) = (
                        &source[body.span.start..change.span.start],
                        &source[change.span.end..body.span.end],
                    );
                    composed.text += &format!("{mutant} => {before}{}{after}\n", change.replacement);
                    copies.push((*mutant, first..=composed.line() - 1));
                    composed.function_of.insert(*mutant, number);
                }
            }
            composed.text += &format!("_ => {}\n}} }}", &source[body.span.clone()]);
            composed.copies.push(Copies { lines: first..=composed.line(), mutants: copies });
            done = body.span.end;
        }
        composed.text += &source[done..];
        Ok(composed)
    }

    fn line(&self) -> usize {
        self.text.matches('\n').count() + 1
    }
}

/// The body of a function with its braces.
struct FunctionBody {
    /// Unlike a line number, the name stays the same when the rest of the file changes.
    name: String,
    span: Range<usize>,
}

/// The bodies of all functions that can select a copy at run time. A function inside another one is part of that one.
fn bodies(source: &str) -> Result<Vec<FunctionBody>> {
    let mut found = Bodies::default();
    found.visit_file(&syn::parse_file(source)?);
    Ok(found.bodies)
}

#[derive(Default)]
struct Bodies {
    bodies: Vec<FunctionBody>,
    times: BTreeMap<String, usize>,
}

impl Bodies {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        if signature.constness.is_none() {
            let name = signature.ident.to_string();
            let times = self.times.entry(name.clone()).or_default();
            *times += 1;
            let braces = block.brace_token.span;
            let span = braces.open().byte_range().start..braces.close().byte_range().end;
            self.bodies.push(FunctionBody { name: format!("{name} {times}"), span });
        }
    }
}

impl<'a> Visit<'a> for Bodies {
    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        self.add(&function.sig, &function.block);
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        self.add(&function.sig, &function.block);
    }

    fn visit_trait_item_fn(&mut self, function: &'a syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.add(&function.sig, block);
        }
    }

    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        if module.ident != "tests" {
            syn::visit::visit_item_mod(self, module);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
const fn fixed() -> u8 { 1 + 1 }
// Zwölf ist größer.
fn above(a: u8) -> bool { a > 12 }
impl Thing {
    fn outer(&self) -> u8 {
        fn inner() -> u8 { 7 }
        inner() + 1
    }
}
mod tests {
    fn above() { assert!(1 > 0) }
}
";

    fn mutant(from: &str, to: &str) -> Mutant {
        let start = SOURCE.find(from).unwrap();
        Mutant { file: "f.rs".into(), span: start..start + from.len(), replacement: to.into() }
    }

    fn composed(mutants: &[Mutant], functions: &mut Vec<String>) -> Composed {
        Composed::of("f.rs", SOURCE, &(1..).zip(mutants).collect(), functions).unwrap()
    }

    #[test]
    fn every_function_chooses_among_copies_of_itself() {
        let mutants =
            [mutant("a > 12", "true"), mutant("1 + 1", "1 - 1"), mutant("7", "8"), mutant("> 12", ">= 12")];
        let mut functions = vec!["another".to_owned()];
        let composed = composed(&mutants, &mut functions);
        assert_eq!(functions, ["another", "f.rs above 1", "f.rs outer 1"]);
        assert_eq!(composed.function_of, BTreeMap::from([(1, 1), (3, 2), (4, 1)]));
        let choice = "\
fn above(a: u8) -> bool { match crate::mutant_of(1) {
1 => { true }
4 => { a >= 12 }
_ => { a > 12 }
} }
impl Thing {
    fn outer(&self) -> u8 { match crate::mutant_of(2) {
3 => {
        fn inner() -> u8 { 8 }
        inner() + 1
    }
_ => {
        fn inner() -> u8 { 7 }
        inner() + 1
    }
} }
}
";
        assert!(composed.text.contains(choice), "{}", composed.text);
    }

    #[test]
    fn an_error_in_a_copy_refuses_its_mutant_and_an_error_elsewhere_all_mutants_of_the_function() {
        let mutants = [mutant("a > 12", "true"), mutant("> 12", ">= 12"), mutant("7", "8")];
        let composed = composed(&mutants, &mut Vec::new());
        let line_of = |text: &str| composed.text.lines().position(|line| line.contains(text)).unwrap() + 1;
        let (second, original, third) = (line_of("a >= 12"), line_of("_ => { a > 12 }"), line_of("{ 8 }"));
        let copies = BTreeMap::from([("f.rs".to_owned(), composed.copies)]);
        let refused = |line: usize| refused(&[vec![SourceLine { file: "f.rs".into(), line }]], &copies);
        assert_eq!(refused(second), [2].into());
        assert_eq!(refused(third), [3].into());
        assert_eq!(refused(original), [1, 2].into());
        assert!(refused(1).is_empty());
    }
}
