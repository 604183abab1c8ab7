//! Stub, to be written.
