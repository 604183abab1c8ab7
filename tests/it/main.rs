//! Behaviour through the front door: a real server, real git, real Terraform, a fake host on the wire.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the answer")]

mod apply;
mod autoplan;
mod locking;
mod pages;
mod restart;
mod state_locks;
mod support;
mod tidy;
mod workflows;
