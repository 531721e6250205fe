//! Nothing. The tests of this crate compile programs with mistakes that users make, and compare what the compiler
//! answers.
