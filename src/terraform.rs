//! Terraform and OpenTofu: which binary ([`install`]), and what their output says ([`summary`]).

pub mod install;
pub mod summary;
