//! The partitions of a ring: how many there are, what they are called, and which one a key belongs to.
//!
//! A ring with several partitions is as many ordinary rings, named `orders:0`, `orders:1` and so on. Their number is
//! fixed for life, because a key must always lead to the same partition. Redis keeps it as a word of `{ring}:requires`,
//! in each partition and at the plain name. `docs/decisions/023-partitions-are-rings.md` has the reasons.

use crate::error::Error;
use crate::keys::RingName;

/// The most partitions of a ring.
pub(crate) const MOST: u32 = 1024;

/// The word with any number, for callers that may use every partition.
pub(crate) const ANY: &str = "partitions=*";

/// One of the partitions of a ring. A ring that is not divided is its only partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Partition {
    /// Which one, counted from 0.
    pub index: u32,
    /// How many there are.
    pub count: u32,
}

impl Partition {
    /// All partitions of a ring that has this many.
    pub fn all(count: u32) -> impl Iterator<Item = Self> {
        (0..count).map(move |index| Self { index, count })
    }

    /// The partition of a publish key or a single name: the first four bytes of its SHA-1, as a number with the highest
    /// byte first, modulo the number of partitions. This rule never changes.
    pub fn of_key(key: &str, count: u32) -> Self {
        let digest = sha1_smol::Sha1::from(key).digest().bytes();
        let number = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        Self { index: number % count.max(1), count }
    }

    /// The name of this partition of a ring.
    pub(crate) fn name_in(self, ring: &RingName) -> RingName {
        if self.count == 1 { ring.clone() } else { ring.part(self.index) }
    }

    /// The part of `total` that falls to this partition. The parts of all partitions add up to it.
    pub fn share_of(self, total: u64) -> u64 {
        let (index, count) = (u64::from(self.index), u64::from(self.count));
        total / count + u64::from(index < total % count)
    }
}

/// The word that the requirements of a ring with this many partitions contain. Empty for a ring that is not divided.
pub(crate) fn word(count: u32) -> String {
    if count > 1 { format!("partitions={count}") } else { String::new() }
}

/// The number of partitions that a word of the requirements states.
pub(crate) fn count_in(word: &str) -> Option<u32> {
    word.strip_prefix("partitions=")?.parse().ok()
}

/// Refuses what no ring can have.
pub(crate) fn check(ring: &RingName, count: u32) -> Result<(), Error> {
    if !(1..=MOST).contains(&count) {
        return Err(Error::expected("partitions", format!("1 to {MOST}"), count));
    }
    if ring.whole().is_some() {
        let expected = "a name that does not end in ':' and a number, which is the name of a partition";
        return Err(Error::expected("ring", expected, ring));
    }
    if count > 1 && ring.is_in_group() {
        let expected = "a ring in no group, because a group keeps all its partitions on one server";
        return Err(Error::expected("partitions", expected, ring));
    }
    let longest = format!("{ring}:{}", count - 1);
    if count > 1 && longest.len() > RingName::LONGEST {
        let expected =
            format!("a name of which the partitions have at most {} characters", RingName::LONGEST);
        return Err(Error::expected("ring", expected, ring));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs of other releases and in other languages rely on these values.
    #[test]
    fn a_key_always_leads_to_the_same_partition() {
        let of = |key: &str, count| Partition::of_key(key, count).index;
        // `printf order-17 | sha1sum` begins with a6ccc1f4, which is 2798436852.
        assert_eq!(["", "order-17", "заказ"].map(|key| of(key, 1)), [0, 0, 0]);
        assert_eq!(["", "order-17", "заказ"].map(|key| of(key, 3)), [1, 0, 0]);
        assert_eq!(["", "order-17", "заказ"].map(|key| of(key, 1000)), [606, 852, 680]);
        let mut seen = [0; 7];
        for n in 0..7000 {
            seen[of(&n.to_string(), 7) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (850..1150).contains(count)), "{seen:?}");
    }

    #[test]
    fn the_shares_of_all_partitions_add_up() {
        for (total, count, expected) in [(7, 3, vec![3, 2, 2]), (2, 3, vec![1, 1, 0]), (9, 1, vec![9])] {
            let shares: Vec<u64> = Partition::all(count).map(|part| part.share_of(total)).collect();
            assert_eq!((shares.iter().sum::<u64>(), shares), (total, expected));
        }
    }

    #[test]
    fn names_of_partitions_and_partitions_of_groups_are_refused() {
        let refused =
            |ring: &str, count| check(&ring.parse().unwrap(), count).map_err(|error| error.to_string());
        for (ring, count) in [("orders", 1), ("orders", MOST), ("shop/orders", 1), ("eu:north", 3), ("1", 2)]
        {
            assert_eq!(refused(ring, count), Ok(()), "{ring}");
        }
        let long = "x".repeat(99);
        for (ring, count, why) in [
            ("orders", 0, "partitions: expected 1 to 1024, got '0'"),
            ("orders", MOST + 1, "partitions: expected 1 to 1024, got '1025'"),
            ("orders:2", 1, "ring: expected a name that does not end in ':' and a number"),
            ("a:b:007", 3, "ring: expected a name that does not end in ':' and a number"),
            ("shop/orders", 2, "partitions: expected a ring in no group"),
            (&long, 2, "ring: expected a name of which the partitions have at most 100 characters"),
        ] {
            let error = refused(ring, count).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }

    #[test]
    fn a_word_states_the_number_of_partitions() {
        assert_eq!((word(1), word(3)), (String::new(), "partitions=3".to_owned()));
        assert_eq!(
            (count_in("partitions=3"), count_in("tides"), count_in("partitions=x")),
            (Some(3), None, None)
        );
    }
}
