//! Gitea and GitHub in one server: the story of the front door on a forge that speaks as Gitea over HTTP, and on a real Gitea.

mod real;

use crate::forge_host::{ForgeHost, ForgeKind};
pub(crate) use real::RealGitea;
use tidelock_forge::HostKind;

/// Gitea, with a repository of an organization.
pub(crate) struct OnGitea;

pub(crate) type GiteaFake = ForgeHost<OnGitea>;

impl ForgeKind for OnGitea {
    const KIND: HostKind = HostKind::Gitea;
    const MARK: char = '#';
    const FULL_NAME: &'static str = "acme/live";
    const REFUSAL: (&'static str, &'static str) = ("blocked", "1 more approval is required");
    const AUTHORS_APPROVE: bool = false;
    const WAITING: &'static [&'static str] = &["pending"];

    fn forged_headers(event: &str) -> Vec<(&'static str, String)> {
        vec![("x-gitea-event", event.to_owned()), ("x-gitea-signature", "0".repeat(64))]
    }
}
