//! The queues that take part, and how fast each is expected to be.

use contract::Mode;

use crate::page::thousands;

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
pub struct Queue {
    /// Its name, as its program reports it.
    pub name: &'static str,
    pub program: Program,
    /// Its rows in the table of speed, one for each size of batches.
    pub speed: &'static [Peer],
    /// The settings for messages that take a while. Printed below the table of work.
    pub work: &'static str,
}

/// One row in the table of speed.
#[derive(Debug)]
pub struct Peer {
    /// The size of its batches. None if the queue is measured with one size only.
    pub batch: Option<u64>,
    /// Printed below the table. The head of the program names the page that recommends each setting.
    pub settings: &'static str,
    /// The expected messages per second on two cores. They only determine how many messages a run has.
    end_to_end_rate: f64,
    consume_rate: f64,
    /// How many messages may wait when a worker starts. None if the queue has no such limit.
    backlog_limit: Option<u64>,
}

impl Peer {
    /// Its name in the table.
    pub fn name(&self, queue: &Queue) -> String {
        match self.batch {
            Some(batch) => format!("{}, batches of {}", queue.name, thousands(batch as f64)),
            None => queue.name.to_owned(),
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

pub const QUEUES: &[Queue] = &[
    Queue {
        name: "estafeta",
        program: Program { language: Language::Estafeta, name: "estafeta-peer" },
        speed: &[
            Peer {
                batch: Some(1_000),
                settings: "Rust, a generator and a handler in a thread each; at most 1,000 messages in a step, one lane",
                end_to_end_rate: 800_000.0,
                consume_rate: 1_200_000.0,
                backlog_limit: None,
            },
            Peer {
                batch: Some(100),
                settings: "Rust, a generator and a handler in a thread each; at most 100 messages in a step, one lane",
                end_to_end_rate: 500_000.0,
                consume_rate: 500_000.0,
                backlog_limit: None,
            },
        ],
        work: "a generator and two members with 64 lanes each; an interval of 2 ms at 500/s, `max_waiting` 4,000 under full load",
    },
    Queue {
        name: "raw Streams",
        program: Program { language: Language::Rust, name: "streams" },
        speed: &[
            Peer {
                batch: Some(1_000),
                settings: "Rust, two tasks; pipelines of 1,000 XADD; XREADGROUP COUNT 1000, with XACK and XDEL of the batch before",
                end_to_end_rate: 160_000.0,
                consume_rate: 180_000.0,
                backlog_limit: None,
            },
            Peer {
                batch: Some(100),
                settings: "Rust, two tasks; pipelines of 100 XADD; XREADGROUP COUNT 100, with XACK and XDEL of the batch before",
                end_to_end_rate: 140_000.0,
                consume_rate: 160_000.0,
                backlog_limit: None,
            },
        ],
        work: "XADD, under full load in pipelines of 100; XREADGROUP with COUNT as many entries as slots are free; each job sends XACK and XDEL in one pipeline",
    },
    Queue {
        name: "rsmq_async",
        program: Program { language: Language::Rust, name: "rsmq" },
        speed: &[Peer {
            batch: None,
            settings: "Rust, two tasks; batches of 100 sent and 500 received, deletions all at once",
            end_to_end_rate: 50_000.0,
            consume_rate: 60_000.0,
            backlog_limit: None,
        }],
        work: "polling every 5 ms for as many messages as slots are free; each job deletes its own message",
    },
    Queue {
        name: "apalis-redis",
        program: Program { language: Language::Rust, name: "apalis" },
        speed: &[Peer {
            batch: None,
            settings: "Rust, two tasks; batches of 100, polling every 1 ms, no locks and no events; \
                           never more than 7,000 waiting, because about 8,000 kill its worker, so consuming is many runs of 7,000",
            end_to_end_rate: 40_000.0,
            consume_rate: 48_000.0,
            backlog_limit: Some(7_000),
        }],
        work: "concurrency 64, at most 64 tasks in a fetch, polling every 5 ms, no locks and no events",
    },
    Queue {
        name: "bee-queue",
        program: Program { language: Language::Node, name: "bee-queue.js" },
        speed: &[Peer {
            batch: None,
            settings: "two processes; saveAll of 100, concurrency 100, no events, finished jobs removed",
            end_to_end_rate: 28_000.0,
            consume_rate: 35_000.0,
            backlog_limit: None,
        }],
        work: "concurrency 64, no events, finished jobs removed",
    },
    Queue {
        name: "BullMQ for Rust",
        program: Program { language: Language::Rust, name: "bullmq" },
        speed: &[Peer {
            batch: None,
            settings: "Rust, two tasks; add_bulk of 100, concurrency 100, finished jobs removed",
            end_to_end_rate: 16_000.0,
            consume_rate: 24_000.0,
            backlog_limit: None,
        }],
        work: "concurrency 64, finished jobs removed",
    },
    Queue {
        name: "BullMQ",
        program: Program { language: Language::Node, name: "bullmq.js" },
        speed: &[Peer {
            batch: None,
            settings: "two processes; addBulk of 100, concurrency 100, finished jobs removed",
            end_to_end_rate: 10_000.0,
            consume_rate: 18_000.0,
            backlog_limit: None,
        }],
        work: "concurrency 64, finished jobs removed",
    },
    Queue {
        name: "Dramatiq",
        program: Program { language: Language::Python, name: "dramatiq_peer.py" },
        speed: &[Peer {
            batch: None,
            settings: "two processes; 8 threads, 200 messages prefetched, no middleware but Retries",
            end_to_end_rate: 3_000.0,
            consume_rate: 5_000.0,
            backlog_limit: None,
        }],
        work: "64 threads, 200 messages prefetched, no middleware but Retries",
    },
    Queue {
        name: "Celery",
        program: Program { language: Language::Python, name: "celery_peer.py" },
        speed: &[Peer {
            batch: None,
            settings: "a producer, a worker and its pool of 2; 128 messages prefetched for each, no results, no events",
            end_to_end_rate: 1_000.0,
            consume_rate: 1_200.0,
            backlog_limit: None,
        }],
        work: "a pool of 64 threads, 4 messages prefetched for each, acknowledged late, no results, no events",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_with_a_limited_backlog_consumes_in_several_runs() {
        let peer = |name| &QUEUES.iter().find(|queue| queue.name == name).unwrap().speed[0];
        assert_eq!(peer("Celery").counts(Mode::Consume, 2.0), [2_400]);
        assert_eq!(peer("apalis-redis").counts(Mode::Consume, 0.5), [7_000; 4]);
        assert_eq!(peer("apalis-redis").counts(Mode::EndToEnd, 0.5), [20_000]);
    }
}
