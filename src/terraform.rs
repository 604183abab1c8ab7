//! Terraform and OpenTofu: which binary to run ([`install`]), what their output means ([`summary`],
//! [`state_lock`]), and what a plan changes ([`changes`]).

pub mod changes;
pub mod install;
pub mod state_lock;
pub mod summary;
