//! Terraform and OpenTofu: chooses and installs binaries ([`install`]), parses their output ([`summary`], [`state_lock`]), digests the
//! changes of plans ([`changes`]), and recognises plans of a part of a project ([`parts`]).

pub mod changes;
pub mod install;
pub mod parts;
pub mod state_lock;
pub mod summary;
