//! Attacks that the server must withstand: bad input through the front door, and steps that look for its secrets.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests are outside of test functions")]

mod access;
mod bad_input;
mod chaos;
mod confined;
mod isolation;
mod place;
mod sealed;
mod secrets;
mod strangers;
mod tree;
