//! Terraform and OpenTofu: which binary to run ([`install`]), and what their output means ([`summary`],
//! [`state_lock`]).

pub mod install;
pub mod state_lock;
pub mod summary;
