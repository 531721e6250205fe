//! Who generates: one copy at a time, whatever happens to it.
