//! Draws a picture of `estafeta monitor` at work: `picture BINARY OUT.svg [-- OPTION...]`.
//!
//! The monitor runs on a real terminal, with five nodes on its own private Redis. It runs long enough to fill its
//! charts. Meanwhile the generator is killed, a node is frozen and thawed, and the generator is killed again, so that
//! the picture shows some events. The options are passed to the monitor.

mod palette;
mod shapes;
mod svg;

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use estafeta_testbed::Terminal;

const ROWS: u16 = 34;
const COLS: u16 = 120;
const PATIENCE: Duration = Duration::from_secs(30);

/// The keys to type, each after this many seconds. The picture shows the screen just before the last key, which quits
/// the monitor.
const SCRIPT: [(u64, &str); 5] = [(60, "k"), (10, "f"), (8, "f"), (6, "k"), (2, "q")];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (binary, out, options) = match args.as_slice() {
        [binary, out] => (binary, out, &[][..]),
        [binary, out, dashes, options @ ..] if dashes == "--" => (binary, out, options),
        _ => bail!("expected: picture BINARY OUT.svg [-- OPTION...]"),
    };
    let fixed = ["monitor", "-n", "5", "--ring", "demo"].map(str::to_owned);
    // The picture shows where Redis is. The same path each time keeps the pictures alike.
    let data = std::env::temp_dir().join("estafeta");
    std::fs::create_dir(&data).with_context(|| format!("{} must not be there yet", data.display()))?;
    let envs = [("ESTAFETA_DATA", &data)];
    let terminal = Terminal::start(Path::new(binary), fixed.iter().chain(options), envs, ROWS, COLS);
    terminal.wait_for(PATIENCE, "anything", |screen| !screen.is_empty());
    let mut picture = String::new();
    for (seconds, keys) in SCRIPT {
        sleep(Duration::from_secs(seconds));
        ensure!(terminal.is_running(), "it ended before the picture was taken\n{terminal:?}");
        picture = terminal.cells(|screen| svg::draw(screen, "estafeta monitor"));
        terminal.type_keys(keys);
    }
    terminal.wait(PATIENCE);
    std::fs::remove_dir_all(&data)?;
    std::fs::write(out, picture).with_context(|| format!("cannot write {out}"))
}
