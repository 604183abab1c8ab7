//! Tidelock: pull-request automation for Terraform and OpenTofu.
//!
//! A delivery becomes a comment in one line of steps (see ARCHITECTURE.md):
//!
//! ```text
//! headers+bytes ─webhook─▶ Verified<Event> ─dispatch─▶ Command ─schedule─▶ Schedule ─execute─▶ outcomes ─store─▶ durable ─reply─▶ comment, status
//! ```

pub use tidelock_core::{comment, config, domain, inputs, locks, schedule};

pub mod settings;

pub mod webhook;

mod platform;
pub mod process;
mod retry;

pub mod checkout;
pub mod policy;
pub mod terraform;

pub mod runner;

pub mod store;
pub mod vcs;

pub mod dispatch;
pub mod execute;
pub mod notifications;
pub mod reply;
pub mod server_status;

pub mod sandbox;
pub mod web;
pub use tidelock_vault as vault;

pub mod app;

#[cfg(test)]
use tidelock_core::mutation;
