//! The Lua scripts, one file an atomic step, each put together from the shared pieces it uses.
//!
//! The flags say what Redis itself must hold us to: `no-writes` steps run on a full server and on a replica,
//! `allow-oom` steps let go of memory or keep the ring alive, and `publish` has neither: when memory is out, it is the
//! one that must wait.
//!
//! Scripts are part of the binary. Only test builds read them from a directory instead, if `ESTAFETA_SCRIPTS` names one:
//! `make mutants` changes a script there and needs no build to try it.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::Cmd;

pub(crate) struct Script {
    pub name: &'static str,
    code: LazyLock<Cow<'static, str>>,
    sha: LazyLock<String>,
}

impl Script {
    /// What Redis is to load.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// A call of this script with its keys; the arguments follow with [`Cmd::arg`].
    pub fn call<K: AsRef<str>>(&self, keys: &[K]) -> Cmd {
        self.call_with_room(keys, 0, 0)
    }

    /// The same, with room for so many arguments and bytes, where they are many: a call that grows is copied each time.
    pub fn call_with_room<K: AsRef<str>>(&self, keys: &[K], arguments: usize, bytes: usize) -> Cmd {
        let mut cmd = Cmd::with_capacity(32 + arguments, 1024 + bytes);
        cmd.arg("EVALSHA").arg(self.sha.as_str()).arg(keys.len());
        for key in keys {
            cmd.arg(key.as_ref());
        }
        cmd
    }
}

#[cfg(not(test))]
fn source(built_in: &'static str, _flags: &str, _shared: &[&str], _name: &str) -> Cow<'static, str> {
    built_in.into()
}

#[cfg(test)]
fn source(built_in: &'static str, flags: &str, shared: &[&str], name: &str) -> Cow<'static, str> {
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
    let usual = concat!(env!("CARGO_MANIFEST_DIR"), "/src/lua");
    let directory = std::env::var_os("ESTAFETA_SCRIPTS").unwrap_or_else(|| usual.into());
    let path = std::path::PathBuf::from(directory).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

macro_rules! scripts {
    ($($constant:ident = $name:literal [$flags:literal] uses $($shared:literal)*;)*) => {
        $(pub(crate) static $constant: Script = {
            const CODE: &str = concat!(
                "#!lua", $flags, "\n",
                $(include_str!(concat!("../lua/shared/", $shared, ".lua")),)*
                include_str!(concat!("../lua/", $name, ".lua")),
            );
            Script {
                name: $name,
                code: LazyLock::new(|| source(CODE, $flags, &[$($shared),*], $name)),
                sha: LazyLock::new(|| redis::Script::new($constant.code()).get_hash().to_owned()),
            }
        };)*

        #[cfg(test)]
        pub(super) static ALL: &[&Script] = &[$(&$constant),*];
    };
}

scripts! {
    JOIN = "join" [" flags=allow-oom"] uses "clock" "events" "ledger";
    BEAT = "beat" [" flags=allow-oom"] uses "clock" "ledger" "presence";
    LEAD = "lead" [" flags=allow-oom"] uses "clock" "events" "ledger" "presence";
    RESIGN = "resign" [" flags=allow-oom"] uses "clock" "events" "office";
    PUBLISH = "publish" [""] uses "clock" "ledger";
    TURN = "turn" [" flags=allow-oom"] uses "clock" "elements" "ledger" "claims" "outcomes";
    TAKE = "take" [" flags=allow-oom"] uses "clock" "elements" "ledger" "claims";
    SUSPECTS = "suspects" [" flags=no-writes"] uses "clock" "presence";
    BURY = "bury" [" flags=allow-oom"]
        uses "clock" "events" "bell" "elements" "ledger" "presence" "office" "give_back";
    LEAVE = "leave" [" flags=allow-oom"] uses "clock" "events" "bell" "elements" "ledger" "office" "give_back";
    RING = "ring" [" flags=allow-oom"] uses "bell";
    RESOLVE = "resolve" [" flags=allow-oom"] uses "clock" "events" "bell" "elements" "ledger";
    SNAPSHOT = "snapshot" [" flags=no-writes"] uses "clock" "elements" "presence";
}
