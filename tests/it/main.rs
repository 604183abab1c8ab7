//! Behaviour through the front door: a real server, real git, real Terraform, a fake host on the wire.

mod apply;
mod autoplan;
mod locking;
mod pages;
mod restart;
mod support;
mod tidy;
mod workflows;
