//! Tidelock: pull-request automation for Terraform and OpenTofu.
//!
//! A delivery becomes a comment in one line of steps (see ARCHITECTURE.md):
//!
//! ```text
//! headers+bytes ─webhook─▶ Verified<Event> ─dispatch─▶ Command ─schedule─▶ Schedule ─execute─▶ outcomes ─store─▶ durable ─reply─▶ comment, status
//! ```

pub use tidelock_core::{comment, config, domain, inputs, locks, schedule};
pub use tidelock_hosts::{vcs, webhook};
pub use tidelock_runner::{checkout, policy, process, runner, terraform};
pub use tidelock_store as store;
pub use tidelock_vault as vault;

pub mod settings;

pub mod dispatch;
pub mod execute;
pub mod notifications;
pub mod reply;
pub mod server_status;

pub mod sandbox;
pub mod web;

pub mod app;

#[cfg(test)]
use tidelock_core::mutation;
