//! Reads commands for a node from its stdin: one JSON object per line, which ends with LF or CRLF.
//!
//! `{"msg":"stop"}` is the only command so far. The end of stdin stops the node too. It shows that the program that
//! started the node has ended, even if it was killed. A node that no program controls any more must not work on for
//! ever. Any other line is ignored with a warning. A last line without its line end is ignored too.

use std::io::{self, BufRead};

use tokio_util::sync::CancellationToken;

use estafeta_lab::escape::escape;
use estafeta_lab::report::Control;

/// The longest line that is kept in memory.
const LONGEST: usize = 64 * 1024;
/// How many bytes of a refused line are shown.
const SHOWN: usize = 100;

/// One line of input.
#[derive(Debug, PartialEq)]
enum InputLine {
    Whole(Vec<u8>),
    TooLong,
    /// The input has ended.
    End,
}

/// Obeys stdin on a separate thread. It is never joined: a read that blocks ends with the process.
pub fn listen(stop: CancellationToken) {
    std::thread::spawn(move || obey(io::stdin().lock(), &stop));
}

fn obey(mut input: impl BufRead, stop: &CancellationToken) {
    loop {
        match read_line(&mut input) {
            Ok(InputLine::Whole(line)) if line.is_empty() => {}
            Ok(InputLine::Whole(line)) => match serde_json::from_slice(&line) {
                Ok(Control::Stop) => stop.cancel(),
                Err(_) => {
                    let start = escape(&line[..line.len().min(SHOWN)]);
                    tracing::warn!(r#"ignored on stdin: expected {{"msg":"stop"}}, got {start}"#);
                }
            },
            Ok(InputLine::TooLong) => {
                tracing::warn!("ignored on stdin: expected at most {LONGEST} bytes, got a longer line");
            }
            // An input that cannot be read counts as one that has ended.
            Ok(InputLine::End) | Err(_) => return stop.cancel(),
        }
    }
}

/// The next line without its line end. A line that is too long is skipped, piece by piece.
fn read_line(input: &mut impl BufRead) -> io::Result<InputLine> {
    let (mut line, mut too_long) = (Vec::new(), false);
    loop {
        let piece = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            piece => piece?,
        };
        if piece.is_empty() {
            return Ok(InputLine::End);
        }
        let end = piece.iter().position(|byte| *byte == b'\n');
        let text = &piece[..end.unwrap_or(piece.len())];
        too_long |= line.len() + text.len() > LONGEST;
        if !too_long {
            line.extend_from_slice(text);
        }
        let read = end.map_or(piece.len(), |end| end + 1);
        input.consume(read);
        if end.is_some() && too_long {
            return Ok(InputLine::TooLong);
        }
        if end.is_some() {
            line.pop_if(|byte| *byte == b'\r');
            return Ok(InputLine::Whole(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn lines_end_with_lf_or_crlf_and_are_kept_up_to_a_limit() {
        let input = [b"one\ntwo\r\n\n", vec![b'x'; LONGEST].as_slice(), b"\n"].concat();
        let input = [input.as_slice(), &vec![b'y'; 10 * LONGEST], b"\nlast\nhalf"].concat();
        let mut input = BufReader::with_capacity(1000, input.as_slice());
        let mut next = || read_line(&mut input).unwrap();
        let whole = |text: &[u8]| InputLine::Whole(text.to_vec());
        assert_eq!([next(), next(), next()], [whole(b"one"), whole(b"two"), whole(b"")]);
        assert_eq!(next(), whole(&[b'x'; LONGEST]));
        assert_eq!([next(), next(), next()], [InputLine::TooLong, whole(b"last"), InputLine::End]);
    }

    #[test]
    fn only_a_stop_command_stops_the_node_before_the_input_ends() {
        /// An input that checks, when all of it is read, whether the node was stopped as expected.
        struct ChecksAtEnd<'a>(&'a [u8], &'a CancellationToken, bool);
        impl io::Read for ChecksAtEnd<'_> {
            fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
                if self.0.is_empty() {
                    assert_eq!(self.1.is_cancelled(), self.2, "before the end");
                }
                self.0.read(bytes)
            }
        }
        let cases: [(&[u8], bool); 7] = [
            (b"{\"msg\":\"stop\"}\n", true),
            (b"{\"msg\":\"stop\",\"why\":1}\r\n", true),
            (b"{\"msg\":\"dance\"}\n", false),
            (b"{\"msg\":1}\n[]\nstop\n{}\n\n", false),
            (b"\xff\0\x1b[2J\n", false),
            (b"nonsense\n{\"msg\":\"stop\"}\n", true),
            (b"{\"msg\":\"stop\"}", false),
        ];
        for (text, stops) in cases {
            let stop = CancellationToken::new();
            obey(BufReader::new(ChecksAtEnd(text, &stop, stops)), &stop);
            assert!(stop.is_cancelled(), "the end of the input stops it in any case");
        }
    }
}
