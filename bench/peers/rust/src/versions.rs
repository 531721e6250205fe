//! The versions of the measured crates.

/// Returns the version of a crate. It comes from the lock file, so every figure is published with the version that was
/// measured.
pub fn locked_version(package: &str) -> &'static str {
    let entry = format!("name = \"{package}\"\nversion = \"");
    let (_, rest) = include_str!("../Cargo.lock").split_once(&entry).expect("the crate is in the lock file");
    rest.split('"').next().expect("a version ends with a quote")
}
