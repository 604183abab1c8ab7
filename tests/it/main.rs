//! Behaviour through the front door: a real server, real git, real Terraform, a fake host on the wire.

mod autoplan;
mod support;
mod tidy;
