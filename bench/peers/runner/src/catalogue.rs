//! The queues that take part, and how fast each is expected to be.

use contract::Mode;

use crate::table::thousands;

/// The language of a program, which also determines its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// The program in `estafeta/`, which is part of the main workspace.
    Estafeta,
    /// A binary of the workspace in `rust/`.
    Rust,
    /// A script in `node/`.
    Node,
    /// A script in `python/`.
    Python,
}

/// The program that runs a queue.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub language: Language,
    pub name: &'static str,
}

/// One queue that takes part.
#[derive(Debug)]
pub struct Peer {
    /// The name of the queue, as its program reports it.
    pub queue: &'static str,
    /// The size of its batches. None if the queue is measured with one size only.
    pub batch: Option<u64>,
    pub program: Program,
    /// Printed below the table. The head of the program names the page that recommends each setting.
    pub settings: &'static str,
    /// The expected messages per second on two cores. They only determine how many messages a run has.
    end_to_end_rate: f64,
    consume_rate: f64,
    /// How many messages may wait when a worker starts. None if the queue has no such limit.
    backlog_limit: Option<u64>,
}

impl Peer {
    pub fn name(&self) -> String {
        match self.batch {
            Some(batch) => format!("{}, batches of {}", self.queue, thousands(batch as f64)),
            None => self.queue.to_owned(),
        }
    }

    /// Returns the number of messages of each run, so that all runs together should take this long. There are several
    /// runs only if so many messages cannot wait at once.
    pub fn counts(&self, mode: Mode, seconds: f64) -> Vec<u64> {
        let (rate, limit) = match mode {
            Mode::EndToEnd => (self.end_to_end_rate, None),
            Mode::Consume => (self.consume_rate, self.backlog_limit),
        };
        let count = ((rate * seconds) as u64).next_multiple_of(100).max(100);
        match limit {
            Some(limit) if limit < count => vec![limit; count.div_ceil(limit) as usize],
            _ => vec![count],
        }
    }
}

pub const PEERS: &[Peer] = &[
    Peer {
        queue: "estafeta",
        batch: Some(1_000),
        program: Program { language: Language::Estafeta, name: "estafeta-peer" },
        settings: "Rust, a generator and a handler in a thread each; at most 1,000 messages in a step, one lane",
        end_to_end_rate: 800_000.0,
        consume_rate: 1_200_000.0,
        backlog_limit: None,
    },
    Peer {
        queue: "estafeta",
        batch: Some(100),
        program: Program { language: Language::Estafeta, name: "estafeta-peer" },
        settings: "Rust, a generator and a handler in a thread each; at most 100 messages in a step, one lane",
        end_to_end_rate: 500_000.0,
        consume_rate: 500_000.0,
        backlog_limit: None,
    },
    Peer {
        queue: "raw Streams",
        batch: Some(1_000),
        program: Program { language: Language::Rust, name: "streams" },
        settings: "Rust, two tasks; pipelines of 1,000 XADD; XREADGROUP COUNT 1000, with XACK and XDEL of the batch before",
        end_to_end_rate: 160_000.0,
        consume_rate: 180_000.0,
        backlog_limit: None,
    },
    Peer {
        queue: "raw Streams",
        batch: Some(100),
        program: Program { language: Language::Rust, name: "streams" },
        settings: "Rust, two tasks; pipelines of 100 XADD; XREADGROUP COUNT 100, with XACK and XDEL of the batch before",
        end_to_end_rate: 140_000.0,
        consume_rate: 160_000.0,
        backlog_limit: None,
    },
    Peer {
        queue: "rsmq_async",
        batch: None,
        program: Program { language: Language::Rust, name: "rsmq" },
        settings: "Rust, two tasks; batches of 100 sent and 500 received, deletions all at once",
        end_to_end_rate: 50_000.0,
        consume_rate: 60_000.0,
        backlog_limit: None,
    },
    Peer {
        queue: "apalis-redis",
        batch: None,
        program: Program { language: Language::Rust, name: "apalis" },
        settings: "Rust, two tasks; batches of 100, polling every 1 ms, no locks and no events; \
                   never more than 7,000 waiting, because about 8,000 kill its worker, so consuming is many runs of 7,000",
        end_to_end_rate: 40_000.0,
        consume_rate: 48_000.0,
        backlog_limit: Some(7_000),
    },
    Peer {
        queue: "bee-queue",
        batch: None,
        program: Program { language: Language::Node, name: "bee-queue.js" },
        settings: "two processes; saveAll of 100, concurrency 100, no events, finished jobs removed",
        end_to_end_rate: 28_000.0,
        consume_rate: 35_000.0,
        backlog_limit: None,
    },
    Peer {
        queue: "BullMQ for Rust",
        batch: None,
        program: Program { language: Language::Rust, name: "bullmq" },
        settings: "Rust, two tasks; add_bulk of 100, concurrency 100, finished jobs removed",
        end_to_end_rate: 16_000.0,
        consume_rate: 24_000.0,
        backlog_limit: None,
    },
    Peer {
        queue: "BullMQ",
        batch: None,
        program: Program { language: Language::Node, name: "bullmq.js" },
        settings: "two processes; addBulk of 100, concurrency 100, finished jobs removed",
        end_to_end_rate: 10_000.0,
        consume_rate: 18_000.0,
        backlog_limit: None,
    },
    Peer {
        queue: "Dramatiq",
        batch: None,
        program: Program { language: Language::Python, name: "dramatiq_peer.py" },
        settings: "two processes; 8 threads, 200 messages prefetched, no middleware but Retries",
        end_to_end_rate: 3_000.0,
        consume_rate: 5_000.0,
        backlog_limit: None,
    },
    Peer {
        queue: "Celery",
        batch: None,
        program: Program { language: Language::Python, name: "celery_peer.py" },
        settings: "a producer, a worker and its pool of 2; 128 messages prefetched for each, no results, no events",
        end_to_end_rate: 1_000.0,
        consume_rate: 1_200.0,
        backlog_limit: None,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_with_a_limited_backlog_consumes_in_several_runs() {
        let peer = |queue| PEERS.iter().find(|peer| peer.queue == queue).unwrap();
        assert_eq!(peer("Celery").counts(Mode::Consume, 2.0), [2_400]);
        assert_eq!(peer("apalis-redis").counts(Mode::Consume, 0.5), [7_000; 4]);
        assert_eq!(peer("apalis-redis").counts(Mode::EndToEnd, 0.5), [20_000]);
    }
}
