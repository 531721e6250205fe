//! Raises the layout of a ring, if every member knows the new one.

use super::{Call, script};
use crate::error::{Error, Result};
use crate::identity::Incarnation;
use crate::keys::Keys;
use crate::layout::Layouts;
use crate::redis::{Reply, Store};

script!("upgrade" " flags=allow-oom" uses "clock" "events" "lists" "elements" "ledger" "queue" "office" "hand_back");

/// How often the members may change before the upgrade fails.
const TRIES: usize = 100;

enum Upgrade {
    Upgraded {
        from: u32,
    },
    /// The ring has this layout already, or a newer one, or there is no ring.
    Already,
    /// The given members are not the current ones.
    Changed,
    /// This member does not know the layout.
    Holds {
        member: String,
        known: String,
    },
}

/// `known` counts all entries of the member list. `members` are those that belong to the ring.
pub(super) fn call(keys: &Keys, layout: u32, known: usize, members: &[Incarnation]) -> Call {
    let mut names = vec![
        ("schema", keys.schema.clone()),
        ("members", keys.members.clone()),
        ("succession", keys.succession.clone()),
        ("ready", keys.ready.clone()),
        ("errors", keys.errors.clone()),
        ("ledger", keys.ledger.clone()),
        ("events", keys.events.clone()),
    ];
    for member in members {
        names.push(("member", keys.member(*member)));
        names.push(("inflight", keys.inflight(*member)));
    }
    let mut call = SCRIPT.call(&names);
    call.arg("layout", layout).arg("channel-prefix", &keys.channels).arg("members-known", known);
    for member in members {
        call.arg("incarnation", member.to_string());
    }
    call
}

fn read(mut reply: Reply) -> Result<Upgrade> {
    match reply.text()?.as_str() {
        "upgraded" => Ok(Upgrade::Upgraded { from: u32::try_from(reply.number()?).unwrap_or(u32::MAX) }),
        "already" => Ok(Upgrade::Already),
        "changed" => Ok(Upgrade::Changed),
        "holds" => {
            let (number, host, pid) = (reply.member()?, reply.text()?, reply.text()?);
            let known =
                Layouts::parse(&reply.text()?).map_or("no span of layouts".into(), |known| known.to_string());
            Ok(Upgrade::Holds { member: format!("member {number} ({host}, pid {pid})"), known })
        }
        other => reply.unknown(other),
    }
}

impl Store {
    /// Raises the layout. Returns the former one, or None if the ring has the new one already.
    pub async fn upgrade_to(&self, layout: u32) -> Result<Option<u32>> {
        for _ in 0..TRIES {
            let names = self.members().await?;
            let members: Vec<Incarnation> = names.iter().filter_map(|name| name.parse().ok()).collect();
            let reply = self.run(&SCRIPT, &call(self.keys(), layout, names.len(), &members)).await?;
            match read(reply)? {
                Upgrade::Upgraded { from, .. } => return Ok(Some(from)),
                Upgrade::Already => return Ok(None),
                Upgrade::Changed => {}
                Upgrade::Holds { member, known } => {
                    return Err(Error::OldMember { ring: self.ring().to_string(), member, known });
                }
            }
        }
        Err(Error::Answer("the members of the ring change too fast for an upgrade".into()))
    }
}
