//! Tidelock: pull-request automation for Terraform and OpenTofu.
//!
//! One line carries everything (DESIGN.md §1, ARCHITECTURE.md):
//!
//! ```text
//! headers+bytes ─webhook─▶ Verified<Event> ─dispatch─▶ Command ─schedule─▶ Schedule ─execute─▶ outcomes ─store─▶ durable ─reply─▶ comment, status
//! ```

pub mod domain;

pub mod settings;

pub mod comment;
pub mod webhook;

pub mod config;
pub mod inputs;
pub mod locks;
pub mod schedule;

mod platform;
pub mod process;

pub mod checkout;
pub mod terraform;

pub mod store;
pub mod vcs;

pub mod dispatch;
pub mod execute;
pub mod reply;

pub mod sandbox;
pub mod vault;
pub mod web;

pub mod app;
