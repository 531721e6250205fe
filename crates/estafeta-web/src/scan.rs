//! Reads the errors of a ring from the newest to the oldest, in chunks of bounded size.
//!
//! New errors go to the end of the list, and readers take them from its head. So a place in the list stays right while
//! errors come, and moves down while errors are taken. A cursor therefore holds a place and the message that was there.
//! A scan that continues from a cursor looks for that message a little further down.

use std::fmt;
use std::str::FromStr;

use estafeta::{DeadLetter, Ring};

use crate::problem::Problem;

/// How many errors one chunk has at most, and how many the first one has.
const MOST: u64 = 200;
const FIRST: u64 = 32;
/// About how many bytes one chunk may have.
const CHUNK_BYTES: u64 = 1024 * 1024;
/// How far down a scan looks for the message of its cursor.
const DRIFT: u64 = 200;

/// Where a scan has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    place: u64,
    id: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.place, self.id)
    }
}

impl FromStr for Cursor {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let parse = || {
            let (place, id) = text.split_once('-')?;
            let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
            let number = |part: &str| part.parse().ok().filter(|_| digits(part));
            Some(Self { place: number(place)?, id: number(id)? })
        };
        parse().ok_or_else(|| Problem::expected("cursor", "what an answer called `next` or `cursor`", text))
    }
}

impl Cursor {
    /// A cursor below which this one is.
    pub fn above(self) -> Self {
        Self { place: self.place.saturating_add(1), id: u64::MAX }
    }

    /// The error of this message, if it is still near the place of this cursor.
    pub async fn look_near(self, ring: &Ring, id: u64) -> estafeta::Result<Option<DeadLetter>> {
        let count = ring.error_count().await?;
        let mut scan = Scan { ring, end: self.place.saturating_add(1).min(count), chunk: 1 };
        let begin = scan.end;
        while !scan.is_over() && begin - scan.end < DRIFT {
            let found = scan.next().await?.into_iter().find(|(_, letter)| letter.message.id == id);
            if let Some((_, letter)) = found {
                return Ok(Some(letter));
            }
        }
        Ok(None)
    }
}

/// An error with its place in the list, counted from the oldest.
pub type Placed = (u64, DeadLetter);

/// A scan of the errors.
pub struct Scan<'a> {
    ring: &'a Ring,
    /// All places below this one are still to be read.
    end: u64,
    chunk: u64,
}

pub fn cursor_of((place, letter): &Placed) -> Cursor {
    Cursor { place: *place, id: letter.message.id }
}

impl<'a> Scan<'a> {
    /// Begins at the newest error, or below the one that the cursor names.
    pub async fn begin(ring: &'a Ring, after: Option<Cursor>) -> estafeta::Result<Self> {
        let count = ring.error_count().await?;
        let mut scan = Self { ring, end: count, chunk: FIRST };
        if let Some(cursor) = after {
            let above = cursor.place.saturating_add(1).min(count);
            scan.end = above;
            while above - scan.end < DRIFT {
                let seen = scan.next().await?;
                match seen.iter().find(|(_, letter)| letter.message.id == cursor.id) {
                    Some((place, _)) => {
                        scan.end = *place;
                        return Ok(scan);
                    }
                    None if seen.is_empty() => break,
                    None => {}
                }
            }
            // Its message is gone. What was below it is still there.
            scan.end = cursor.place.min(count);
        }
        Ok(scan)
    }

    /// Returns the next errors, newest first. Empty at the end.
    pub async fn next(&mut self) -> estafeta::Result<Vec<Placed>> {
        let from = self.end.saturating_sub(self.chunk);
        if self.end == 0 {
            return Ok(Vec::new());
        }
        let letters = self.ring.errors(from, self.end - from).await?;
        self.end = from;
        let size = |letter: &DeadLetter| (letter.message.body().len() + letter.reason.len()) as u64;
        let bytes: u64 = letters.iter().map(size).sum();
        let average = (bytes / letters.len().max(1) as u64).max(1);
        self.chunk = (CHUNK_BYTES / average).clamp(1, MOST);
        let mut placed: Vec<Placed> = (from..).zip(letters).collect();
        placed.reverse();
        Ok(placed)
    }

    /// Whether everything was read.
    pub fn is_over(&self) -> bool {
        self.end == 0
    }
}
