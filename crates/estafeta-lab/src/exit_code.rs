//! The exit codes of the program.

/// Something went wrong.
pub const FAILED: u8 = 1;
/// The program was called the wrong way.
pub const USAGE: u8 = 2;
/// Redis cannot be reached or refuses to serve.
pub const REDIS: u8 = 3;
