//! Lua scripts and calls to them.
//!
//! A script consists of the shared pieces that it uses and its own file. Its flags state which rules Redis itself
//! enforces. Steps with `no-writes` run on a full server and on a replica. Steps with `allow-oom` free memory or keep
//! the ring alive. `publish` has neither flag: when memory runs out, it is the step that must wait.
//!
//! Scripts are part of the binary. Only test builds read them from a directory instead, if `ESTAFETA_SCRIPTS` names
//! one. `make mutants` changes a script there and can try it without a build.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::{Cmd, ToRedisArgs};

pub(crate) struct Script {
    pub name: &'static str,
    code: LazyLock<Cow<'static, str>>,
    sha: LazyLock<String>,
}

impl Script {
    pub const fn new(name: &'static str, code: fn() -> Cow<'static, str>, sha: fn() -> String) -> Self {
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

/// The text of a script: the built-in one, or in test builds the one from the directory.
#[cfg(not(test))]
pub(super) fn source(
    built_in: &'static str,
    _flags: &str,
    _shared: &[&str],
    _name: &str,
) -> Cow<'static, str> {
    built_in.into()
}

#[cfg(test)]
pub(super) fn source(built_in: &'static str, flags: &str, shared: &[&str], name: &str) -> Cow<'static, str> {
    if std::env::var_os("ESTAFETA_SCRIPTS").is_none() {
        return built_in.into();
    }
    let pieces: String = shared.iter().map(|name| piece(name)).collect();
    format!("#!lua{flags}\n{pieces}{}", read(&format!("{name}.lua"))).into()
}

/// One of the shared pieces.
#[cfg(test)]
pub(super) fn piece(name: &str) -> String {
    read(&format!("shared/{name}.lua"))
}

#[cfg(test)]
fn read(file: &str) -> String {
    let usual = concat!(env!("CARGO_MANIFEST_DIR"), "/src/steps");
    let directory = std::env::var_os("ESTAFETA_SCRIPTS").unwrap_or_else(|| usual.into());
    let path = std::path::PathBuf::from(directory).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Declares the script of a step: its name, its flags, and the shared pieces it uses.
macro_rules! script {
    ($name:literal $flags:literal uses $($shared:literal)*) => {
        pub(super) static SCRIPT: $crate::steps::Script = {
            const CODE: &str = concat!(
                "#!lua", $flags, "\n",
                $(include_str!(concat!("shared/", $shared, ".lua")),)*
                include_str!(concat!($name, ".lua")),
            );
            $crate::steps::Script::new(
                $name,
                || $crate::steps::script::source(CODE, $flags, &[$($shared),*], $name),
                || redis::Script::new(SCRIPT.code()).get_hash().to_owned(),
            )
        };
    };
}

pub(super) use script;
