//! Terraform and OpenTofu: which binary ([`install`]), and what their output says ([`summary`], [`state_lock`]).

pub mod install;
pub mod state_lock;
pub mod summary;
