//! Raises the layout of a ring, if every member knows the new one.

use super::{Call, Roll, script};
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::layout::Layouts;
use crate::redis::{Reply, Store};

script!("upgrade" " flags=allow-oom" uses "clock" "notify" "events" "lists" "elements" "ledger" "brakes" "queue" "office" "entries" "hand_back");

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

pub(super) fn call(keys: &Keys, layout: u32, roll: &Roll) -> Call {
    let mut names = vec![
        ("schema", keys.schema.clone()),
        ("members", keys.members.clone()),
        ("succession", keys.succession.clone()),
        ("ready", keys.ready.clone()),
        ("errors", keys.errors.clone()),
        ("ledger", keys.ledger.clone()),
        ("events", keys.events.clone()),
    ];
    names.extend(roll.member_and_inflight_keys(keys));
    let mut call = SCRIPT.call(&names);
    call.arg("layout", layout).arg("channel-prefix", &keys.channels);
    roll.add_to(&mut call);
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
        for _ in 0..Roll::TRIES {
            let reply = self.run(&SCRIPT, &call(self.keys(), layout, &self.roll().await?)).await?;
            match read(reply)? {
                Upgrade::Upgraded { from } => return Ok(Some(from)),
                Upgrade::Already => return Ok(None),
                Upgrade::Changed => {}
                Upgrade::Holds { member, known } => {
                    return Err(Error::OldMember { ring: self.ring().to_string(), member, known });
                }
            }
        }
        Err(Roll::changes_too_fast("an upgrade"))
    }
}
