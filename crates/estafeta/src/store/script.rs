//! The Lua scripts, one file an atomic step, each put together from the shared pieces it uses.
//!
//! The flags say what Redis itself must hold us to: `no-writes` steps run on a full server and on a replica,
//! `allow-oom` steps let go of memory or keep the ring alive, and `publish` has neither: when memory is out, it is the
//! one that must wait.

use std::sync::LazyLock;

use redis::Cmd;

pub(crate) struct Script {
    pub name: &'static str,
    pub code: &'static str,
    sha: LazyLock<String>,
}

impl Script {
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
                code: CODE,
                sha: LazyLock::new(|| redis::Script::new(CODE).get_hash().to_owned()),
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
