//! GitHub.com and GitHub Enterprise Server.
//!
//! - `webhook`: the [`GithubDoor`] for deliveries. It verifies signatures and reads payloads.
//! - `api`: [`Github`], the implementation of `Host` over REST and GraphQL; a GitHub App's tokens; requests of the doctor and of the setup.
//!
//! Facts about the host come from docs.github.com and from the payloads in `tests/fixtures/webhooks/github`. A fact that is not obvious
//! names its page where it is used.

mod api;
mod webhook;

pub use api::{
    AppFacts, AppOptions, BypassedStatuses, CodeError, Github, GithubOptions, Installation, NewApp, OauthApp, Serves,
    SignedInAccount, convert_manifest, pages_url, profile,
};
pub use webhook::{GithubDoor, KnownChecks};
