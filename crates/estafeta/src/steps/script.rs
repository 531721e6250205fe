//! Lua scripts and calls to them.
//!
//! A script consists of its own file and of the definitions in `shared/` that it uses. Its flags state which rules
//! Redis itself enforces. Steps with `no-writes` run on a full server and on a replica. Steps with `allow-oom` free
//! memory or keep the ring alive. `publish` and `submit` have neither flag: when memory runs out, they must wait.
//!
//! Scripts are part of the binary. Only test builds read them from a directory instead, if `ESTAFETA_SCRIPTS` names
//! one. `make mutants` changes a script there and can try it without a build.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use redis::{Cmd, ToRedisArgs};

pub(crate) struct Script {
    pub name: &'static str,
    code: LazyLock<String>,
    sha: LazyLock<String>,
}

impl Script {
    pub const fn new(name: &'static str, code: fn() -> String, sha: fn() -> String) -> Self {
        Self { name, code: LazyLock::new(code), sha: LazyLock::new(sha) }
    }

    /// The code that Redis loads.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Builds a call of this script with these keys, each with its name in the script's header. The arguments follow.
    pub fn call<K: AsRef<str>>(&self, keys: &[(&'static str, K)]) -> Call {
        self.call_with_room(keys, 0, 0)
    }

    /// Like `call`, but reserves room for many arguments and bytes, because a call that grows is copied each time.
    pub fn call_with_room<K: AsRef<str>>(
        &self,
        keys: &[(&'static str, K)],
        arguments: usize,
        bytes: usize,
    ) -> Call {
        let mut command = Cmd::with_capacity(32 + arguments, 1024 + bytes);
        command.arg("EVALSHA").arg(self.sha.as_str()).arg(keys.len());
        for (_, key) in keys {
            command.arg(key.as_ref());
        }
        Call {
            command,
            #[cfg(test)]
            keys: keys.iter().map(|(name, _)| *name).collect(),
            #[cfg(test)]
            arguments: Vec::new(),
        }
    }
}

/// One call of a script, ready to be sent. Tests can also read the name of each key and argument.
pub(crate) struct Call {
    pub command: Cmd,
    #[cfg(test)]
    pub keys: Vec<&'static str>,
    #[cfg(test)]
    pub arguments: Vec<&'static str>,
}

impl Call {
    /// Adds an argument, with its name in the script's header.
    #[cfg_attr(not(test), allow(unused_variables))]
    pub fn arg(&mut self, name: &'static str, value: impl ToRedisArgs) -> &mut Self {
        self.command.arg(value);
        #[cfg(test)]
        self.arguments.push(name);
        self
    }
}

/// The code of a script. Each file comes with its name and its built-in text.
pub(super) fn source(flags: &str, shared: &[(&str, &'static str)], own: (&str, &'static str)) -> String {
    let shared: Vec<_> =
        shared.iter().map(|(name, text)| read(&format!("shared/{name}.lua"), text)).collect();
    assemble(flags, &shared, &read(&format!("{}.lua", own.0), own.1))
}

/// Puts a script together from shared pieces and its own text. It contains only the functions that it calls, because
/// Redis spends time on every function that a call defines.
///
/// A script calls what it seldom needs as `rare.NAME`, after `rare = rarely()`. These functions, and those that only they
/// use, are then defined inside the function `rarely`.
pub(crate) fn assemble(flags: &str, shared: &[Cow<'_, str>], own: &str) -> String {
    let definitions: Vec<String> = shared.iter().flat_map(|piece| definitions(piece)).collect();
    let seldom: BTreeSet<&str> = own.split("rare.").skip(1).map(first_word).collect();
    // Of two definitions, only the later one uses the other.
    let used_by = |mut code: String| -> Vec<bool> {
        let mut used = vec![false; definitions.len()];
        for (definition, used) in definitions.iter().zip(&mut used).rev() {
            *used = names(definition).any(|name| uses(&code, name));
            if *used {
                code.push_str(definition);
            }
        }
        used
    };
    let often = used_by(own.replace("rare.", "rare_"));
    let seldom_used = used_by(seldom.iter().copied().collect::<Vec<_>>().join("\n") + "\n");
    let mut code = format!("#!lua{flags}\n");
    code.extend(definitions.iter().zip(&often).filter(|(_, often)| **often).map(|(text, _)| text.as_str()));
    if !seldom.is_empty() {
        code.push_str("local function rarely()\n");
        for (text, (often, seldom)) in definitions.iter().zip(often.iter().zip(&seldom_used)) {
            if *seldom && !often {
                code.push_str(text);
            }
        }
        let fields: Vec<_> = seldom.iter().map(|name| format!("{name} = {name}")).collect();
        code.push_str(&format!("return {{ {} }}\nend\n", fields.join(", ")));
    }
    code + own
}

/// The word with which a text begins.
fn first_word(text: &str) -> &str {
    text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).next().unwrap_or_default()
}

/// The definitions of a shared piece, each with the comment above it: functions and constants.
fn definitions(piece: &str) -> Vec<String> {
    let mut definitions = vec![String::new()];
    for line in piece.lines() {
        let last = definitions.last_mut().expect("never empty");
        last.push_str(line);
        last.push('\n');
        let is_constant = line.starts_with("local ") && !line.starts_with("local function ");
        if line == "end" || is_constant {
            definitions.push(String::new());
        }
    }
    definitions
}

/// The names that a definition introduces.
fn names(definition: &str) -> impl Iterator<Item = &str> {
    let line = definition.lines().find_map(|line| line.strip_prefix("local ")).unwrap_or_default();
    let line = line.strip_prefix("function ").unwrap_or(line);
    line.split(['(', '='])
        .next()
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
}

/// Whether the code contains this name as a whole word, outside comments.
fn uses(code: &str, name: &str) -> bool {
    let mut lines = code.lines().filter(|line| !line.trim_start().starts_with("--"));
    lines.any(|line| line.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).any(|word| word == name))
}

/// The text of a file: the built-in one, or in test builds the one from the directory.
#[cfg(not(test))]
fn read(_file: &str, built_in: &'static str) -> Cow<'static, str> {
    built_in.into()
}

#[cfg(test)]
pub(super) fn read(file: &str, built_in: &'static str) -> Cow<'static, str> {
    let Some(directory) = std::env::var_os("ESTAFETA_SCRIPTS") else {
        return built_in.into();
    };
    let path = std::path::PathBuf::from(directory).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).into()
}

/// Declares the script of a step: its name, its flags, and the shared pieces it uses.
macro_rules! script {
    ($name:literal $flags:literal uses $($shared:literal)*) => {
        pub(super) static SCRIPT: $crate::steps::Script = $crate::steps::Script::new(
            $name,
            || {
                $crate::steps::script::source(
                    $flags,
                    &[$(($shared, include_str!(concat!("shared/", $shared, ".lua")))),*],
                    ($name, include_str!(concat!($name, ".lua"))),
                )
            },
            || redis::Script::new(SCRIPT.code()).get_hash().to_owned(),
        );
    };
}

pub(super) use script;

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: &str = "-- One.\nlocal function one()\n  return 1\nend\n\n-- Limits.\nlocal few, many = 3, 9\n\n\
                         -- Two.\nlocal function two()\n  return one() + few\nend\n";

    #[test]
    fn a_script_contains_the_definitions_that_it_uses_directly_or_not() {
        let with = |own| assemble(" flags=no-writes", &[PIECE.into()], own);
        let unused = "-- Calls one().\nreturn ones\n";
        assert_eq!(with(unused), format!("#!lua flags=no-writes\n{unused}"));
        assert_eq!(
            with("return one()\n"),
            "#!lua flags=no-writes\n-- One.\nlocal function one()\n  return 1\nend\nreturn one()\n"
        );
        assert_eq!(
            with("return many\n"),
            "#!lua flags=no-writes\n\n-- Limits.\nlocal few, many = 3, 9\nreturn many\n"
        );
        assert_eq!(with("return two()\n"), format!("#!lua flags=no-writes\n{PIECE}return two()\n"));
    }

    #[test]
    fn functions_that_only_rare_ones_use_are_defined_inside_rarely() {
        let three = "local function three()\n  return two() + many\nend\n";
        let own = "local a = one()\nlocal rare = rarely()\nreturn rare.three() + rare.two()\n";
        let code = assemble("", &[PIECE.into(), three.into()], own);
        let (one, rest) = PIECE.split_once("\n-- Limits").unwrap();
        let rare = format!(
            "local function rarely()\n\n-- Limits{rest}{three}return {{ three = three, two = two }}\nend\n"
        );
        assert_eq!(code, format!("#!lua\n{one}{rare}{own}"));
    }

    /// A piece whose layout `definitions` does not understand would be cut in the wrong places.
    #[test]
    fn every_shared_piece_consists_of_definitions_with_names() {
        let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/src/steps/shared");
        for file in std::fs::read_dir(shared).unwrap() {
            let path = file.unwrap().path();
            let piece = std::fs::read_to_string(&path).unwrap();
            let definitions = definitions(&piece);
            assert_eq!(definitions.concat(), piece, "{}", path.display());
            let (last, others) = definitions.split_last().unwrap();
            assert_eq!(last, "", "{} ends without a definition", path.display());
            for definition in others {
                assert!(names(definition).next().is_some(), "{}: {definition}", path.display());
                let is_start = |line: &&str| line.starts_with("local ");
                assert_eq!(
                    definition.lines().filter(is_start).count(),
                    1,
                    "{}: {definition}",
                    path.display()
                );
            }
        }
    }

    #[test]
    fn a_piece_may_use_the_pieces_named_before_it() {
        let later = "local function three()\n  return two()\nend\n";
        let code = assemble("", &[PIECE.into(), later.into()], "return three()\n");
        assert_eq!(code, format!("#!lua\n{PIECE}{later}return three()\n"));
    }
}
