//! Gitea and Forgejo: instances of one's own, gitea.com and Codeberg.
//!
//! - `webhook`: the [`GiteaDoor`] for webhooks. It checks the signature and reads events.
//! - `api`: [`Gitea`], the implementation of `Host` over REST, and the doctor's requests.
//! - `address`, `times`: addresses and times, which deliveries and answers of the API have in common.
//!
//! Facts about the host come from the source of Gitea 1.26. A fact that is not obvious names its file where it is used.

mod address;
mod api;
mod times;
mod webhook;

pub use address::GiteaAddress;
pub use api::{
    Gitea, GiteaAccount, GiteaHook, GiteaOptions, GiteaRepository, GiteaVersion, TokenScopes, profile, scopes_in,
};
pub use webhook::GiteaDoor;
