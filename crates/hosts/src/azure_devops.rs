//! Azure DevOps Services and Server.
//!
//! - `webhook`: the [`AzureDevopsDoor`] for service hooks. It checks the password and reads events.
//! - `api`: [`AzureDevops`], the implementation of `Host` over REST, and the doctor's requests.
//! - `address`, `shapes`: addresses and JSON, which deliveries and answers of the API have in common.
//!
//! Facts about the host come from learn.microsoft.com. A fact that is not obvious names its page where it is used.

mod address;
mod api;
mod shapes;
mod webhook;

pub use address::AzureAddress;
pub use api::{Account, AzureDevops, AzureDevopsOptions, Scope, Subscription, profile};
pub use webhook::AzureDevopsDoor;
