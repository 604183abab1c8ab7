//! GitLab: GitLab.com, Self-Managed and Dedicated.
//!
//! - `address`: addresses of projects and merge requests.
//!
//! Facts about the host come from docs.gitlab.com. A fact that is not obvious names its page where it is used.

mod address;

pub use address::GitlabAddress;
