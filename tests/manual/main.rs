//! The manual: its links lead somewhere, its configuration files are valid, its commands do what the pages show, and the settings, metrics
//! and addresses that it names exist.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod configuration;
mod console;
mod links;
mod names;
mod page;
mod sessions;
mod shell;
