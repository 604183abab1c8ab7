//! The binary: hands the command line to [`tidelock::app`].

use std::process::ExitCode;

/// Returns free memory to the system: glibc's allocator keeps an arena for each of many threads, which grow as long as the server runs.
/// SQLite and zstd use it as well. `.cargo/config.toml` has its settings.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    tidelock::app::run(std::env::args_os().collect())
}
