//! What the server must withstand: bad input through the front door, and steps that look for its secrets.

mod bad_input;
mod place;
mod secrets;
