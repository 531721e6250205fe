//! One line of an answer to `CLUSTER NODES`: a node, as another one sees it.

use std::ops::RangeInclusive;

#[derive(Debug)]
pub(super) struct NodeLine {
    pub(super) id: String,
    pub(super) flags: Vec<String>,
    pub(super) epoch: u64,
    connected: bool,
    slots: Vec<RangeInclusive<u16>>,
}

impl NodeLine {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, _address, flags, _master, _ping, _pong, epoch, link, slots @ ..] = words.as_slice() else {
            return None;
        };
        Some(Self {
            id: (*id).to_owned(),
            flags: flags.split(',').map(str::to_owned).collect(),
            epoch: epoch.parse().ok()?,
            connected: *link == "connected",
            slots: slots.iter().filter_map(|slots| range(slots)).collect(),
        })
    }

    pub(super) fn serves(&self, slot: u16) -> bool {
        self.is_master() && self.slots.iter().any(|range| range.contains(&slot))
    }

    pub(super) fn serves_any(&self) -> bool {
        self.is_master() && !self.slots.is_empty()
    }

    pub(super) fn is_well(&self) -> bool {
        let ill = ["fail", "fail?", "handshake", "noaddr"];
        self.connected && !self.flags.iter().any(|flag| ill.contains(&flag.as_str()))
    }

    fn is_master(&self) -> bool {
        self.flags.iter().any(|flag| flag == "master")
    }
}

/// Which node serves which slots, in their order.
pub(super) fn slot_map(view: &[NodeLine]) -> Vec<(RangeInclusive<u16>, String)> {
    let masters = view.iter().filter(|line| line.is_master());
    let ranges = masters.flat_map(|line| line.slots.iter().map(|range| (range.clone(), line.id.clone())));
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_by_key(|(range, _)| *range.start());
    ranges
}

/// `5` and `0-5460` are slots. `[93-<-ID]` and `[93->-ID]` are slots on their way.
fn range(words: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = words.split_once('-').unwrap_or((words, words));
    Some(first.parse().ok()?..=last.parse().ok()?)
}
