//! Bitbucket Data Center: an instance of one's own, formerly Bitbucket Server and Stash.
//!
//! - `webhook`: the [`BitbucketDataCenterDoor`] for webhooks. It checks the signature and reads events.
//! - `api`: [`BitbucketDataCenter`], the implementation of `Host` over REST, and the doctor's requests.
//! - `address`: addresses of repositories and of the API.
//! - `person`, `times`: people and times, which deliveries and answers of the API have in common.
//!
//! Facts about the host come from Atlassian's OpenAPI as typed in npm @coderabbitai/bitbucket 1.1.4, and from confluence.atlassian.com. A
//! fact that is not obvious names its source where it is used.

mod address;
mod api;
mod person;
mod times;
mod webhook;

pub use address::BitbucketDataCenterAddress;
pub use api::{
    BitbucketDataCenter, BitbucketDataCenterDeliveries, BitbucketDataCenterDelivery, BitbucketDataCenterHook,
    BitbucketDataCenterInstance, BitbucketDataCenterOptions, BitbucketDataCenterRepository, profile,
};
pub use webhook::BitbucketDataCenterDoor;
