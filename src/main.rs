//! The binary: hands the command line to [`tidelock::app`].

fn main() {}
