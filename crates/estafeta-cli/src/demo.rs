//! The demo, written as a user of the library would write it. Its source makes random text, and its handler finds an
//! error in some of the messages.
//!
//! With a seed, both can be repeated. Whether a message has an error then depends only on the seed, the id and the
//! delivery, and not on the node that handles the message.

use std::future::ready;
use std::time::Duration;

use estafeta::{Bytes, Config, Failure, Job, Node, Partition, every};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

/// The application of the nodes that `run` and `monitor` start. They join no ring of another application, and nodes of
/// another application do not join theirs.
pub const APPLICATION: &str = "estafeta-demo";

#[derive(Clone, Copy)]
pub struct DemoSettings {
    /// The share of messages in which the handler finds an error.
    pub error_rate: f64,
    /// How long the handler takes for each character.
    pub per_char: Duration,
    pub seed: Option<u64>,
}

/// A node of the demo. While it is the generator, it publishes one text per interval. Otherwise it looks for errors in
/// messages.
pub fn node(config: Config, settings: DemoSettings) -> Node {
    let interval = config.interval;
    let source = move |partition: Partition| {
        let mut texts = RandomText::new(settings.seed.map(|seed| seed.wrapping_add(partition.index.into())));
        every(interval, move || ready(Ok(texts.next())))
    };
    Node::with(config).generate_each(source).handle_with(settings, find_error)
}

async fn find_error(settings: DemoSettings, job: Job<Bytes>) -> Result<(), Failure> {
    if !settings.per_char.is_zero() {
        let length = String::from_utf8_lossy(&job.body).chars().count();
        let work = settings.per_char.saturating_mul(u32::try_from(length).unwrap_or(u32::MAX));
        tokio::time::sleep(work).await;
    }
    if settings.is_faulty(&job) { Err(Failure::fatal("the message contains an error")) } else { Ok(()) }
}

impl DemoSettings {
    fn is_faulty(self, job: &Job<Bytes>) -> bool {
        let Some(seed) = self.seed else {
            return rand::rng().random_bool(self.error_rate);
        };
        let seed = seed ^ job.id().rotate_left(20) ^ u64::from(job.delivery());
        SmallRng::seed_from_u64(seed).random_bool(self.error_rate)
    }
}

struct RandomText(SmallRng);

impl RandomText {
    fn new(seed: Option<u64>) -> Self {
        Self(SmallRng::seed_from_u64(seed.unwrap_or_else(rand::random)))
    }

    /// Two to four words of one to three syllables.
    fn next(&mut self) -> Bytes {
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
