//! Behaviour through the front door: a real server, real git, real Terraform, a fake host on the wire.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the answer")]

mod apply;
mod autoplan;
mod bad_moments;
mod cloud;
mod doctor;
mod left;
mod locking;
mod missed;
mod pages;
mod restart;
mod roles;
mod rollout;
mod room;
mod state_locks;
#[path = "../storage_double/storage_double.rs"]
#[expect(dead_code, reason = "the library's tests use the rest of it")]
mod storage_double;
mod support;
mod tidy;
mod vault_cli;
mod workflows;
