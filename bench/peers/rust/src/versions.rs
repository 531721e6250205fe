//! What the programs here were built with.

/// The version of a crate.
///
/// Taken from the lock file, so that no figure is ever published under a version that was not measured.
pub fn locked_version(package: &str) -> &'static str {
    let entry = format!("name = \"{package}\"\nversion = \"");
    let (_, rest) = include_str!("../Cargo.lock").split_once(&entry).expect("the crate is in the lock file");
    rest.split('"').next().expect("a version ends with a quote")
}
