//! Publishes each line of a growing file exactly once, and handles it on any node.
//!
//! ```text
//! cargo run --example feed -- /var/log/orders.log
//! ```
//!
//! The checkpoint is the place in the file. It moves in Redis together with the messages. Kill the node whenever you like:
//! the next one goes on where the last batch ended.

#![allow(clippy::print_stdout)]

use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use estafeta::{Batch, Error, Failure, Feed, Job, Node};

/// Lines of one batch.
const MOST: usize = 100;

struct GrowingFile {
    path: PathBuf,
    at: u64,
}

impl Feed for GrowingFile {
    type Body = String;
    type Checkpoint = u64;

    async fn open(&mut self, from: Option<u64>) -> Result<(), Failure> {
        self.at = from.unwrap_or(0);
        Ok(())
    }

    async fn next(&mut self) -> Result<Batch<String, u64>, Failure> {
        loop {
            let lines = self.read()?;
            if !lines.is_empty() {
                return Ok(Batch::new(lines).checkpoint(self.at));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl GrowingFile {
    /// Reads complete lines. The last line may still be growing.
    fn read(&mut self) -> Result<Vec<String>, Failure> {
        let mut file = BufReader::new(std::fs::File::open(&self.path)?);
        file.seek(SeekFrom::Start(self.at))?;
        let mut lines = Vec::new();
        while lines.len() < MOST {
            let mut line = String::new();
            let bytes = file.read_line(&mut line)? as u64;
            if !line.ends_with('\n') {
                break;
            }
            self.at += bytes;
            lines.push(line.trim_end().to_owned());
        }
        Ok(lines)
    }
}

async fn print(job: Job<String>) -> Result<(), Failure> {
    println!("{}", job.body);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let redis = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let path = std::env::args_os().nth(1).expect("the path of a file").into();
    Node::on(&redis, "lines")?.generate(GrowingFile { path, at: 0 }).handle(print).run().await
}
