//! A test that needs an environment of its own starts itself again in it.

use std::process::Command;

/// Tells the second run from the first.
const AGAIN: &str = "ESTAFETA_TEST_AGAIN";

/// Whether the caller runs with these variables. If not, it is run with them, must succeed, and has nothing more to do.
/// `name` is that of the test, with its modules.
#[track_caller]
pub(crate) fn with_environment(name: &str, envs: &[(&str, &str)]) -> bool {
    if std::env::var_os(AGAIN).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name]).env(AGAIN, "1").envs(envs.iter().copied());
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
    false
}
