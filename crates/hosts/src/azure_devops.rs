//! Azure DevOps Services and Server.
//!
//! - `webhook`: the [`AzureDevOpsDoor`] for service hooks. It checks the password and reads events.
//! - `api`: [`AzureDevOps`], the implementation of `Host` over REST, and the doctor's requests.
//! - `address`, `shapes`: addresses and JSON, which deliveries and answers of the API have in common.
//!
//! Facts about the host come from learn.microsoft.com. A fact that is not obvious names its page where it is used.

mod address;
mod api;
mod shapes;
mod webhook;

pub use address::AzureDevOpsAddress;
pub use api::{Account, AzureDevOps, AzureDevOpsOptions, Scope, Subscription, profile};
pub use webhook::AzureDevOpsDoor;
