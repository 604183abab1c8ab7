//! Tidelock: pull-request automation for Terraform and OpenTofu.
//!
//! A delivery becomes a comment in one line of steps (see ARCHITECTURE.md):
//!
//! ```text
//! headers+bytes ─webhook─▶ Verified<Event> ─dispatch─▶ Command ─schedule─▶ Schedule ─execute─▶ outcomes ─store─▶ durable ─reply─▶ comment, status
//! ```
//!
//! This is the application. Only what the binary and the tests need is public.

pub mod app;
pub mod settings;
pub mod web;

mod dispatch;
mod execute;
mod executors;
mod google_api;
mod meters;
mod notifications;
mod reply;
mod sandbox;
mod server_status;
mod traces;
mod wake;

use tidelock_core::{comment, config, domain, guards, inputs, locks, plan_text, render, schedule, wording};
use tidelock_hosts::{vcs, webhook};
use tidelock_runner::{checkout, policy, process, runner, terraform};
use tidelock_store as store;
use tidelock_vault as vault;
