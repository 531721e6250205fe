//! The monitor in a terminal: reads the keys and draws the screen.

pub mod draw;
pub mod keys;
pub mod screen;
