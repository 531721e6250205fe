//! Whether the append-only file of a server that ended holds data.
//!
//! The append-only file is a directory. Its manifest names a base file, and a file with the commands that the server
//! executed since it wrote the base file. Every server leaves both. Without data, the latter is empty, and the former
//! ends right after its header. Anything else counts as data, even if this code does not understand it. The server then
//! starts and reports what is wrong.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// The opcode before a fact about the server that wrote a base file, such as its version.
const FACT: u8 = 0xFA;
/// The opcode after everything else.
const END: u8 = 0xFF;

pub(super) fn holds_data(directory: &Path) -> bool {
    let files = directory.join("appendonlydir");
    let manifest = fs::read_to_string(files.join("appendonly.aof.manifest")).unwrap_or_default();
    manifest.lines().any(|line| match line.split(' ').collect::<Vec<_>>()[..] {
        ["file", name, "seq", _, "type", "b"] => base_holds_data(&files.join(name)),
        ["file", name, "seq", _, "type", "i"] => !is_empty_file(&files.join(name)),
        // Files that a newer base file has replaced.
        _ => false,
    })
}

fn is_empty_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.len() == 0)
}

fn base_holds_data(path: &Path) -> bool {
    !File::open(path).and_then(|file| is_empty_base(BufReader::new(file))).unwrap_or(false)
}

/// Whether a base file has the format of a snapshot, and holds nothing but facts.
fn is_empty_base(mut base: impl BufRead) -> io::Result<bool> {
    let [magic @ .., _, _, _] = bytes::<9>(&mut base)?;
    if !magic.starts_with(b"REDIS") && &magic != b"VALKEY" {
        return Ok(false);
    }
    loop {
        match bytes(&mut base)? {
            [FACT] => {
                skip_string(&mut base)?;
                skip_string(&mut base)?;
            }
            [opcode] => return Ok(opcode == END),
        }
    }
}

/// Skips the name or the value of a fact. It is a text, or an integer of 1, 2 or 4 bytes.
fn skip_string(base: &mut impl Read) -> io::Result<()> {
    let [first] = bytes(base)?;
    let low = first & 0x3F;
    let length = match first >> 6 {
        0 => u64::from(low),
        1 => u64::from(u16::from_be_bytes([low, bytes::<1>(base)?[0]])),
        3 if low < 3 => 1 << low,
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    // If the file ends before that, the next read fails.
    io::copy(&mut base.take(length), &mut io::sink())?;
    Ok(())
}

fn bytes<const N: usize>(base: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    base.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: &[u8] = b"REDIS0010\xFA\x09redis-ver\x067.0.15\xFA\x05ctime\xC2\x01\x02\x03\x04\xFA\x41\x00";

    /// A base file with facts, one of which has a long name, and these bytes after them.
    fn base(rest: &[u8]) -> Vec<u8> {
        [FACTS, &[b'x'; 256], b"\xC0\x07", rest].concat()
    }

    #[test]
    fn only_a_base_file_that_ends_after_its_facts_is_empty() {
        let checksum = [0; 8];
        let end = [&[END], &checksum[..]].concat();
        assert!(is_empty_base(&base(&end)[..]).unwrap());
        assert!(is_empty_base(&[b"VALKEY080", &end[..]].concat()[..]).unwrap(), "of Valkey");
        let database = [b"\xFE\x00\xFB\x01\x00\x00\x01k\xC0\x01", &end[..]].concat();
        assert!(!is_empty_base(&base(&database)[..]).unwrap(), "a key");
        assert!(!is_empty_base(&b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"[..]).unwrap(), "a file of commands");
    }

    #[test]
    fn files_that_a_newer_base_file_replaced_do_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let files = directory.path().join("appendonlydir");
        fs::create_dir(&files).unwrap();
        let write = |name: &str, content: &[u8]| fs::write(files.join(name), content).unwrap();
        write("old", b"commands");
        write("base", &base(&[END]));
        write("commands", b"");
        let manifest = |old: &str| {
            format!("file base seq 2 type b\nfile old seq 1 type {old}\nfile commands seq 2 type i\n")
        };
        write("appendonly.aof.manifest", manifest("h").as_bytes());
        assert!(!holds_data(directory.path()));
        write("appendonly.aof.manifest", manifest("i").as_bytes());
        assert!(holds_data(directory.path()));
    }

    #[test]
    fn a_base_file_that_is_cut_anywhere_is_not_taken_for_an_empty_one() {
        let whole = base(&[END]);
        for length in 0..whole.len() {
            assert!(is_empty_base(&whole[..length]).is_err(), "the first {length} bytes");
        }
        let compressed = b"REDIS0010\xFA\x07repl-id\xC3\x05\x28abcde\xFF";
        assert!(is_empty_base(&compressed[..]).is_err(), "a text that this code cannot read");
    }
}
