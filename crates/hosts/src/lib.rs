//! The hosts of repositories: GitHub, Azure DevOps, GitLab, Gitea and Bitbucket Cloud.
//!
//! Each host has a module of its own, [`github`], [`azure_devops`], [`gitlab`], [`gitea`] and [`bitbucket_cloud`], which imports no other host.
//! They share [`webhook`], which verifies deliveries and turns them into events, and [`vcs`], which is what the server asks of every host.

pub mod azure_devops;
pub mod bitbucket_cloud;
pub mod gitea;
pub mod github;
pub mod gitlab;
pub mod vcs;
pub mod webhook;
