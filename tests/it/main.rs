//! Behaviour through the front door: a real server, real git, real Terraform, a fake host on the wire.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the answer")]

mod after_merge;
mod apply;
mod arguments;
mod autoplan;
mod azure_devops;
mod bad_moments;
mod bases;
mod cloud;
mod doctor;
mod examples;
mod first_hour;
mod flow;
mod history;
mod left;
mod locking;
mod merge_queue;
mod missed;
mod modules;
mod moved;
mod moving;
mod pages;
mod permissions;
mod plan_age;
mod refused;
mod restart;
mod resumed;
mod roles;
mod rollout;
mod room;
mod rotation;
mod second_host;
mod state_locks;
mod steps;
mod strict;
mod support;
mod terminal;
mod terragrunt;
mod tidy;
mod vault_cli;
mod workflows;
