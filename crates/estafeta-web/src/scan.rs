//! Reads the errors of a ring from the newest to the oldest, in chunks of bounded size.
//!
//! New errors go to the end of the list, and readers take them from its head. So a place in the list stays right while
//! errors come, and moves down while errors are taken. A cursor therefore holds a place and the message that was there.
//! A scan that continues from a cursor looks for that message a little further down.
//!
//! Each partition of a ring has its own list. A scan of several lists returns the newest error of all of them next, and
//! its cursor holds one spot per partition.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;

use estafeta::{DeadLetter, Ring};
use estafeta_lab::message_id::MessageId;

use crate::problem::Problem;

/// How many errors one chunk has at most, and how many the first one has.
const MOST: u64 = 200;
const FIRST: u64 = 32;
/// About how many bytes one chunk may have.
const CHUNK_BYTES: u64 = 1024 * 1024;
/// How far down a scan looks for the message of its cursor.
const DRIFT: u64 = 200;
/// A spot above no message. Ids begin at 1.
const NO_MESSAGE: u64 = 0;

/// Where a scan has stopped in each partition: `120-17`, or `0:120-17,1:88-9` in a ring with partitions. What it does not
/// name begins at the newest error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(BTreeMap<Option<u32>, Spot>);

/// A place in one list, and the message that was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    place: u64,
    id: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (partition, Spot { place, id }) in &self.0 {
            f.write_str(std::mem::replace(&mut separator, ","))?;
            if let Some(partition) = partition {
                write!(f, "{partition}:")?;
            }
            write!(f, "{place}-{id}")?;
        }
        Ok(())
    }
}

impl FromStr for Cursor {
    type Err = Problem;

    /// Reads one or more cursors. Of two in the same partition, the one that is higher in the list counts.
    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong = || Problem::expected("cursor", "what an answer called `next` or `cursor`", text);
        let mut cursor = Self::default();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (partition, spot) = parse_spot(part).ok_or_else(wrong)?;
            let known = cursor.0.entry(partition).or_insert(spot);
            if known.place < spot.place {
                *known = spot;
            }
        }
        Ok(cursor)
    }
}

fn parse_spot(text: &str) -> Option<(Option<u32>, Spot)> {
    fn number<T: FromStr>(text: &str) -> Option<T> {
        text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
    }
    let (partition, spot) = match text.split_once(':') {
        Some((partition, spot)) => (Some(number(partition)?), spot),
        None => (None, text),
    };
    let (place, id) = spot.split_once('-')?;
    Some((partition, Spot { place: number(place)?, id: number(id)? }))
}

impl Cursor {
    /// A cursor below which the errors of this one are.
    pub fn above(self) -> Self {
        let above = |spot: Spot| Spot { place: spot.place.saturating_add(1), id: NO_MESSAGE };
        Self(self.0.into_iter().map(|(partition, spot)| (partition, above(spot))).collect())
    }

    /// Goes on below this error.
    pub fn pass(&mut self, error: &PlacedError<'_>) {
        self.0.insert(error.ring.name().partition(), error.spot());
    }

    /// The error of this message, if it is still near the place of this cursor.
    pub async fn look_near(&self, ring: &Ring, id: u64) -> estafeta::Result<Option<DeadLetter>> {
        let Some(spot) = self.0.get(&ring.name().partition()) else { return Ok(None) };
        let mut list = ErrorList::below(ring, spot.place.saturating_add(1), 1).await?;
        Ok(list.find_near(id).await?.map(|(_, letter)| letter))
    }
}

/// An error with its place in the list of its partition, counted from the oldest.
pub struct PlacedError<'a> {
    pub ring: &'a Ring,
    pub place: u64,
    pub letter: DeadLetter,
}

impl PlacedError<'_> {
    pub fn id(&self) -> MessageId {
        MessageId::from(&self.letter.message)
    }

    pub fn cursor(&self) -> Cursor {
        Cursor(BTreeMap::from([(self.ring.name().partition(), self.spot())]))
    }

    fn spot(&self) -> Spot {
        Spot { place: self.place, id: self.letter.message.id }
    }
}

/// A scan of the errors of some partitions.
pub struct Scan<'a> {
    lists: Vec<ErrorList<'a>>,
}

impl<'a> Scan<'a> {
    /// Begins at the newest errors, or below those that the cursor names.
    pub async fn begin(rings: impl IntoIterator<Item = &'a Ring>, after: &Cursor) -> estafeta::Result<Self> {
        let mut lists = Vec::new();
        for ring in rings {
            let mut list = ErrorList::below(ring, u64::MAX, FIRST).await?;
            if let Some(spot) = after.0.get(&ring.name().partition()) {
                list.go_below(*spot).await?;
            }
            lists.push(list);
        }
        Ok(Self { lists })
    }

    /// Where this scan has begun, in each partition.
    pub fn cursor(&self) -> Cursor {
        Cursor(self.lists.iter().map(|list| (list.ring.name().partition(), list.begin)).collect())
    }

    /// Returns the next errors, newest first. Empty at the end.
    pub async fn next(&mut self) -> estafeta::Result<Vec<PlacedError<'a>>> {
        for list in self.lists.iter_mut().filter(|list| list.is_spent()) {
            list.read_on().await?;
        }
        let mut errors = Vec::new();
        // A list whose errors were all returned may have newer ones than the others.
        while !self.lists.iter().any(ErrorList::is_spent) {
            let newest = self.lists.iter_mut().rev().max_by_key(|list| list.newest_ms());
            let Some((ring, (place, letter))) =
                newest.and_then(|list| Some((list.ring, list.read.pop_front()?)))
            else {
                break;
            };
            errors.push(PlacedError { ring, place, letter });
        }
        Ok(errors)
    }

    /// Whether everything was returned.
    pub fn is_over(&self) -> bool {
        self.lists.iter().all(|list| list.end == 0 && list.read.is_empty())
    }
}

/// The errors of one partition.
struct ErrorList<'a> {
    ring: &'a Ring,
    /// The list was read below this spot. It keeps the message of its cursor: a page without an error of this partition
    /// would otherwise forget which one was the last.
    begin: Spot,
    /// All places below this one are still to be read.
    end: u64,
    chunk: u64,
    /// What was read, newest first.
    read: VecDeque<(u64, DeadLetter)>,
}

impl<'a> ErrorList<'a> {
    async fn below(ring: &'a Ring, place: u64, chunk: u64) -> estafeta::Result<Self> {
        let end = place.min(ring.error_count().await?);
        let begin = Spot { place: end, id: NO_MESSAGE };
        Ok(Self { ring, begin, end, chunk, read: VecDeque::new() })
    }

    /// Whether more must be read before the newest error is known.
    fn is_spent(&self) -> bool {
        self.read.is_empty() && self.end > 0
    }

    fn newest_ms(&self) -> Option<u64> {
        self.read.front().map(|(_, letter)| letter.failed_ms)
    }

    async fn go_below(&mut self, spot: Spot) -> estafeta::Result<()> {
        let count = self.end;
        self.end = spot.place.saturating_add(1).min(count);
        let found = match spot.id {
            NO_MESSAGE => None,
            id => self.find_near(id).await?,
        };
        self.begin = match found {
            Some((place, letter)) => Spot { place, id: letter.message.id },
            // If its message is gone, what was below it is still there.
            None => Spot { place: spot.place.min(count), id: NO_MESSAGE },
        };
        self.end = self.begin.place;
        self.read.clear();
        Ok(())
    }

    /// Looks for the error of a message, not far down.
    async fn find_near(&mut self, id: u64) -> estafeta::Result<Option<(u64, DeadLetter)>> {
        let begin = self.end;
        while self.end > 0 && begin - self.end < DRIFT {
            self.read_on().await?;
            if let Some(found) = self.read.drain(..).find(|(_, letter)| letter.message.id == id) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    async fn read_on(&mut self) -> estafeta::Result<()> {
        let from = self.end.saturating_sub(self.chunk);
        let letters = self.ring.errors(from, self.end - from).await?;
        self.end = from;
        let size = |letter: &DeadLetter| (letter.message.body().len() + letter.reason.len()) as u64;
        let bytes: u64 = letters.iter().map(size).sum();
        let average = (bytes / letters.len().max(1) as u64).max(1);
        self.chunk = (CHUNK_BYTES / average).clamp(1, MOST);
        self.read.extend((from..).zip(letters).collect::<Vec<_>>().into_iter().rev());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_is_shown() {
        for text in ["", "120-17", "0:120-17,1:88-9,12:0-0"] {
            assert_eq!(text.parse::<Cursor>().unwrap().to_string(), text);
        }
        for text in ["-", "1", "1-", "-1", "a-b", "+1-1", "1-1,", ",1-1", ":1-1", "x:1-1", "1:2:3-4", "1-2-3"]
        {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
        assert_eq!("1:5-50,0:3-30,1:9-90,1:7-70".parse::<Cursor>().unwrap().to_string(), "0:3-30,1:9-90");
    }
}
