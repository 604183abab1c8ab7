//! GitLab: GitLab.com, Self-Managed and Dedicated.
//!
//! - `webhook`: the [`GitlabDoor`] for webhooks and system hooks. It checks the secret token or the signature and reads events.
//! - `api`: [`Gitlab`], the implementation of `Host` over REST, and the doctor's requests.
//! - `address`, `times`: addresses and times, which deliveries and answers of the API have in common.
//!
//! Facts about the host come from docs.gitlab.com. A fact that is not obvious names its page where it is used.

mod address;
mod api;
mod times;
mod webhook;

pub use address::GitlabAddress;
pub use api::{AccessToken, Gitlab, GitlabAccount, GitlabOptions, HookAnswer, ProjectHook, profile};
pub use webhook::GitlabDoor;
