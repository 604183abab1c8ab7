//! Terraform and OpenTofu: which binary to run ([`install`]), what their output means ([`summary`],
//! [`state_lock`]), what a plan changes ([`changes`]), and which plans are of a part
//! of a project ([`parts`]).

pub mod changes;
pub mod install;
pub mod parts;
pub mod state_lock;
pub mod summary;
