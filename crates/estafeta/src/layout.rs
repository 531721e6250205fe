//! Which layouts of the keyspace this version knows, and how a ring gets from one to the next without a stop.
//!
//! `{ring}:schema` holds the layout in force. A program knows a span of layouts, normally the newest and the one before
//! it. It joins a ring of any of them, and writes the one in force. So new nodes can join a ring of old ones, one by
//! one, and nothing changes in Redis meanwhile. Each member registers its span. `estafeta upgrade` raises the layout,
//! in one step that first checks every member. The same step ends all memberships: a member writes only the layout with
//! which it joined, so it has to join again.
//!
//! A key that old nodes may ignore needs no new layout. If they must not ignore it, `{ring}:requires` gets a word. A
//! program that does not know the word does not join.

use std::fmt;

/// The words of `{ring}:requires` that every program of this version knows.
const KNOWN_WORDS: &[&str] = &[];

/// All words that a caller knows, if it also knows those of its [partition](crate::partition), or none.
pub(crate) fn known_words(of_partition: &str) -> String {
    let words = KNOWN_WORDS.iter().chain(Some(&of_partition).filter(|word| !word.is_empty()));
    words.copied().collect::<Vec<_>>().join(" ")
}

/// A span of layouts of the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layouts {
    /// The oldest layout.
    pub oldest: u32,
    /// The newest layout.
    pub newest: u32,
}

impl Layouts {
    /// The layouts that this version knows. A ring can be upgraded from layout 4 on.
    pub const KNOWN: Self = Self { oldest: 4, newest: 4 };

    /// Whether this layout is one of them.
    pub(crate) fn has(self, layout: &str) -> bool {
        layout.parse().is_ok_and(|layout: u32| (self.oldest..=self.newest).contains(&layout))
    }

    /// Reads the span that a member has registered: the oldest and the newest layout.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (oldest, newest) = text.split_once(' ')?;
        Some(Self { oldest: oldest.parse().ok()?, newest: newest.parse().ok()? })
    }

    /// What to do about a ring with another layout.
    pub(crate) fn remedy(self, found: &str) -> &'static str {
        match found.parse::<u32>() {
            Ok(found) if found > self.newest => "use the newer release of estafeta that made it",
            Ok(found) if found < self.oldest => {
                "empty it with the release that made it, then delete it with `reset --force`"
            }
            _ => "it does not belong to estafeta",
        }
    }
}

impl fmt::Display for Layouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            write!(f, "layout {}", self.newest)
        } else {
            write!(f, "layouts {} to {}", self.oldest, self.newest)
        }
    }
}
