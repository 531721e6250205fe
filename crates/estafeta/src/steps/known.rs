//! What a node knows of the published messages. Redis may know less after a roll-back.

use crate::identity::Epoch;

/// The highest epoch that a node knows, and how many messages were published when it last saw that epoch. The knowledge
/// belongs to one ring: a ring that was deleted and began anew is another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// When the ring began.
    pub born: u64,
    pub epoch: Epoch,
    pub published: u64,
}

impl Known {
    /// Learns what a beat reported. The beat has already compared it with what the node knew before.
    pub fn meet(&mut self, born: u64, epoch: Epoch, published: u64) {
        if born == self.born {
            self.learn(epoch, published);
        } else {
            *self = Self { born, epoch, published };
        }
    }

    /// Learns how many messages are published in this ring. A later epoch starts from its own count.
    pub fn learn(&mut self, epoch: Epoch, published: u64) {
        if epoch > self.epoch {
            (self.epoch, self.published) = (epoch, published);
        } else if epoch == self.epoch {
            self.published = self.published.max(published);
        }
    }

    /// Learns that a publish of this node was acknowledged, in a term of a ring that began at `born`.
    ///
    /// While Redis fails over, the old server may acknowledge a publish after this node has begun another term at the new
    /// one. That term began without these messages, so its own count is too low.
    pub fn acknowledge(&mut self, born: u64, epoch: Epoch, published: u64) {
        if epoch >= self.epoch {
            self.learn(epoch, published);
        } else if born == self.born {
            self.published = self.published.max(published);
        }
    }

    /// Learns that this node has claimed a message of a generator.
    ///
    /// Of a later epoch it learns by a beat, because a claim does not show when its ring began.
    pub fn claim(&mut self, epoch: Epoch, id: u64) {
        if epoch == self.epoch {
            self.published = self.published.max(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knowledge_grows_within_a_ring_and_starts_again_in_another() {
        let mut known = Known::default();
        known.meet(7, Epoch(3), 10);
        known.meet(7, Epoch(3), 9);
        assert_eq!(known, Known { born: 7, epoch: Epoch(3), published: 10 }, "Redis was rolled back");
        known.meet(7, Epoch(2), 50);
        assert_eq!(known.published, 10, "of an earlier term");
        known.learn(Epoch(4), 8);
        assert_eq!(known, Known { born: 7, epoch: Epoch(4), published: 8 });
        known.meet(9, Epoch(1), 0);
        assert_eq!(known, Known { born: 9, epoch: Epoch(1), published: 0 });
    }

    #[test]
    fn an_acknowledged_publish_counts_even_if_a_later_term_has_begun() {
        let mut known = Known { born: 7, epoch: Epoch(3), published: 10 };
        known.acknowledge(7, Epoch(3), 12);
        known.learn(Epoch(4), 11);
        known.acknowledge(7, Epoch(3), 15);
        assert_eq!(known, Known { born: 7, epoch: Epoch(4), published: 15 });
        known.acknowledge(7, Epoch(3), 14);
        known.acknowledge(6, Epoch(3), 99);
        assert_eq!(known.published, 15, "of another ring");
    }

    #[test]
    fn a_claimed_message_counts_if_its_epoch_is_the_one_that_the_node_knows() {
        let mut known = Known { born: 7, epoch: Epoch(3), published: 10 };
        for (epoch, id, published) in [(3, 12, 12), (3, 11, 12), (2, 20, 12), (4, 20, 12)] {
            known.claim(Epoch(epoch), id);
            assert_eq!(known, Known { born: 7, epoch: Epoch(3), published });
        }
    }
}
