//! The binary: hands the command line to [`tidelock::app`].

use std::process::ExitCode;

fn main() -> ExitCode {
    tidelock::app::run(std::env::args_os().collect())
}
