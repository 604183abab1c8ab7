//! The hosts of repositories: GitHub and Azure DevOps.
//!
//! [`webhook`] verifies their deliveries and turns them into events; [`vcs`] calls their APIs.

pub mod vcs;
pub mod webhook;
