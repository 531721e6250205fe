//! What the program that started a copy may tell it: JSON objects on stdin, one a line, LF or CRLF.
//!
//! `{"msg":"stop"}` is the only one so far. The end of stdin is a message as well: whoever started the copy is gone, by
//! whatever death, and a copy that nobody knows of any more must not work on for ever.

use std::io::{self, BufRead};

use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::escape::escape;

/// The longest line that is kept in memory.
const LONGEST: usize = 64 * 1024;
/// How much of a line that was not understood is shown, in bytes.
const SHOWN: usize = 100;

#[derive(Deserialize)]
#[serde(tag = "msg", rename_all = "camelCase")]
enum Order {
    Stop,
}

/// One line of input.
#[derive(Debug, PartialEq)]
enum Line {
    Whole(Vec<u8>),
    TooLong,
    /// There will be no more.
    End,
}

/// Obeys on a thread of its own. It is never joined: a read that blocks ends with the process.
pub fn listen(stop: CancellationToken) {
    std::thread::spawn(move || obey(io::stdin().lock(), &stop));
}

fn obey(mut input: impl BufRead, stop: &CancellationToken) {
    loop {
        match read_line(&mut input) {
            Ok(Line::Whole(line)) if line.is_empty() => {}
            Ok(Line::Whole(line)) => match serde_json::from_slice(&line) {
                Ok(Order::Stop) => stop.cancel(),
                Err(_) => {
                    let start = escape(&line[..line.len().min(SHOWN)]);
                    tracing::warn!(r#"ignored on stdin: expected {{"msg":"stop"}}, got {start}"#);
                }
            },
            Ok(Line::TooLong) => {
                tracing::warn!("ignored on stdin: expected at most {LONGEST} bytes, got a longer line");
            }
            // An input that cannot be read tells as much as one that has ended.
            Ok(Line::End) | Err(_) => return stop.cancel(),
        }
    }
}

/// The next line without its end. A longer one than allowed is read over, piece by piece.
fn read_line(input: &mut impl BufRead) -> io::Result<Line> {
    let (mut line, mut too_long) = (Vec::new(), false);
    loop {
        let piece = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            piece => piece?,
        };
        if piece.is_empty() {
            return Ok(Line::End);
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
            return Ok(Line::TooLong);
        }
        if end.is_some() {
            line.pop_if(|byte| *byte == b'\r');
            return Ok(Line::Whole(line));
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
        let whole = |text: &[u8]| Line::Whole(text.to_vec());
        assert_eq!([next(), next(), next()], [whole(b"one"), whole(b"two"), whole(b"")]);
        assert_eq!(next(), whole(&[b'x'; LONGEST]));
        assert_eq!([next(), next(), next()], [Line::TooLong, whole(b"last"), Line::End]);
    }

    #[test]
    fn only_an_order_stops_the_copy_until_the_input_ends() {
        struct Endless<'a>(&'a [u8], &'a CancellationToken, bool);
        impl io::Read for Endless<'_> {
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
            obey(BufReader::new(Endless(text, &stop, stops)), &stop);
            assert!(stop.is_cancelled(), "the end of the input stops it in any case");
        }
    }
}
