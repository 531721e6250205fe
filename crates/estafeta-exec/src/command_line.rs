//! A command as a user writes it, and the program that it names.

use std::ffi::CString;
use std::fmt;
use std::path::{Path, PathBuf};

/// A program and its arguments. They are split like a shell would split them, but no shell runs: variables, pipes and
/// patterns mean nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct CommandLine {
    text: String,
    words: Vec<CString>,
}

impl fmt::Debug for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl CommandLine {
    /// Splits the text. Fails with what was expected instead, if it is empty, has an open quote or a NUL byte.
    pub fn parse(text: &str) -> Result<Self, String> {
        let words = shell_words::split(text).map_err(|_| "a command whose quotes are closed".to_owned())?;
        let words: Result<Vec<_>, _> = words.into_iter().map(CString::new).collect();
        let words = words.map_err(|_| "a command without NUL bytes".to_owned())?;
        match words.first() {
            Some(program) if !program.is_empty() => Ok(Self { text: text.to_owned(), words }),
            _ => Err("a command such as 'python3 worker.py'".to_owned()),
        }
    }

    /// The words, the program first.
    pub(crate) fn words(&self) -> &[CString] {
        &self.words
    }

    /// Finds the file of the program, in the directories of PATH if its name has no slash. Fails with the reason if there
    /// is none that may be executed.
    pub fn find(&self) -> Result<PathBuf, String> {
        let name = self.words[0].to_string_lossy().into_owned();
        if name.contains('/') {
            return check(Path::new(&name)).map(|()| name.clone().into());
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut found = Err(format!("there is no program {name} in the directories of PATH"));
        for directory in std::env::split_paths(&path) {
            let file = directory.join(&name);
            if file.exists() {
                match check(&file) {
                    Ok(()) => return Ok(file),
                    Err(reason) => found = Err(reason),
                }
            }
        }
        found
    }
}

/// Whether a file can be executed by this user.
fn check(file: &Path) -> Result<(), String> {
    let shown = file.display();
    match std::fs::metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(format!("there is no file {shown}"))
        }
        Err(error) => Err(format!("{shown}: {error}")),
        Ok(data) if data.is_dir() => Err(format!("{shown} is a directory")),
        Ok(_) => nix::unistd::access(file, nix::unistd::AccessFlags::X_OK)
            .map_err(|_| format!("{shown} is not executable (chmod +x {shown})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_like_a_shell_would_and_no_shell_runs() {
        let words = |text: &str| {
            let line = CommandLine::parse(text).unwrap();
            line.words().iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(words("python3 worker.py --fast"), ["python3", "worker.py", "--fast"]);
        assert_eq!(words(r#"sh -c 'echo "$HOME" | wc'"#), ["sh", "-c", r#"echo "$HOME" | wc"#]);
        assert_eq!(words(r#"a\ b "" $HOME *.c"#), ["a b", "", "$HOME", "*.c"]);
        for (text, expected) in [
            ("", "a command such as"),
            ("  ", "a command such as"),
            ("''", "a command such as"),
            ("sh 'open", "a command whose quotes are closed"),
            ("a\0b", "a command without NUL bytes"),
        ] {
            assert!(CommandLine::parse(text).unwrap_err().starts_with(expected), "{text:?}");
        }
    }

    #[test]
    fn a_program_is_found_or_the_reason_says_why_not() {
        let find = |text: &str| CommandLine::parse(text).unwrap().find();
        assert!(find("sh -c true").unwrap().ends_with("sh"));
        assert_eq!(find("/bin/sh").unwrap(), Path::new("/bin/sh"));
        for (text, reason) in [
            (
                "no-such-program-anywhere",
                "there is no program no-such-program-anywhere in the directories of PATH",
            ),
            ("/no/such/file", "there is no file /no/such/file"),
            ("/", "/ is a directory"),
        ] {
            assert_eq!(find(text).unwrap_err(), reason);
        }
        let plain = tempfile::NamedTempFile::new().unwrap();
        let shown = plain.path().display();
        assert_eq!(
            find(&shown.to_string()).unwrap_err(),
            format!("{shown} is not executable (chmod +x {shown})")
        );
    }
}
