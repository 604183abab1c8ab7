//! The hosts of repositories, such as GitHub.
//!
//! Each host has a module of its own, which imports no other host. They share [`webhook`], which verifies deliveries and turns them into
//! events, and [`vcs`], which is what the server asks of every host.

pub mod azure_devops;
pub mod bitbucket_cloud;
pub mod bitbucket_data_center;
pub mod gitea;
pub mod github;
pub mod gitlab;
pub mod vcs;
pub mod webhook;
