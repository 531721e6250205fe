//! Runs a test a second time, in a child process with other environment variables.

use std::process::Command;

/// Set in the second run, and only there.
const SECOND_RUN: &str = "ESTAFETA_TEST_AGAIN";

/// Returns true if the caller runs with these variables. Otherwise runs the caller again with them in a child process,
/// asserts that it passes, and returns false. The caller then has nothing more to do. `name` is the name of the test
/// with its modules.
#[track_caller]
pub(crate) fn with_environment(name: &str, envs: &[(&str, &str)]) -> bool {
    if std::env::var_os(SECOND_RUN).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name]).env(SECOND_RUN, "1").envs(envs.iter().copied());
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
    false
}
