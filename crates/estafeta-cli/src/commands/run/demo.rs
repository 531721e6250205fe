//! The demo workload: the source makes random text, and the handler finds an error in some of the messages.
//!
//! With a seed, both can be repeated. Whether a message has an error then depends only on the seed, the id and the
//! delivery, and not on the node that handles the message.

use std::time::Duration;

use bytes::Bytes;
use estafeta::{Failure, Job};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::settings::DemoSettings;

pub struct RandomText(SmallRng);

impl RandomText {
    pub fn new(settings: &DemoSettings) -> Self {
        Self(SmallRng::seed_from_u64(settings.seed.unwrap_or_else(rand::random)))
    }
}

impl RandomText {
    pub fn next(&mut self) -> Bytes {
        const CONSONANTS: &[u8] = b"bcdfghklmnprstvz";
        const VOWELS: &[u8] = b"aeiou";
        let mut text = Vec::with_capacity(48);
        for word in 0..self.0.random_range(2..=4) {
            if word > 0 {
                text.push(b' ');
            }
            for _ in 0..self.0.random_range(1..=3) {
                text.push(CONSONANTS[self.0.random_range(0..CONSONANTS.len())]);
                text.push(VOWELS[self.0.random_range(0..VOWELS.len())]);
            }
        }
        text.into()
    }
}

pub struct FaultFinder {
    error_rate: f64,
    per_char: Duration,
    seed: Option<u64>,
}

impl FaultFinder {
    pub fn new(settings: &DemoSettings) -> Self {
        Self { error_rate: settings.error_rate, per_char: settings.per_char, seed: settings.seed }
    }

    fn is_faulty(&self, job: &Job<Bytes>) -> bool {
        let Some(seed) = self.seed else {
            return rand::rng().random_bool(self.error_rate);
        };
        let seed = seed ^ job.id().rotate_left(20) ^ u64::from(job.delivery());
        SmallRng::seed_from_u64(seed).random_bool(self.error_rate)
    }

    pub async fn handle(&self, job: &Job<Bytes>) -> Result<(), Failure> {
        if !self.per_char.is_zero() {
            let length = String::from_utf8_lossy(&job.body).chars().count();
            tokio::time::sleep(self.per_char.saturating_mul(u32::try_from(length).unwrap_or(u32::MAX))).await;
        }
        if self.is_faulty(job) { Err(Failure::fatal("the message contains an error")) } else { Ok(()) }
    }
}
