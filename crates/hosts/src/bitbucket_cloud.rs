//! Bitbucket Cloud: bitbucket.org.
//!
//! - `webhook`: the [`BitbucketCloudDoor`] for webhooks. It checks the signature and reads events.
//! - `api`: [`BitbucketCloud`], the implementation of `Host` over REST, and the doctor's requests.
//! - `address`, `credentials`: what the settings tell of the host and of our account.
//! - `commit_start`, `person`, `times`: cut commits, people and times, which deliveries and answers of the API have in common.
//!
//! Facts about the host come from Atlassian's OpenAPI as typed in npm @coderabbitai/bitbucket 1.1.4, and from support.atlassian.com. A fact
//! that is not obvious names its source where it is used.

mod address;
mod api;
mod commit_start;
mod credentials;
mod person;
mod times;
mod webhook;

pub use address::BitbucketCloudAddress;
pub use api::{
    BitbucketCloud, BitbucketCloudAccount, BitbucketCloudHook, BitbucketCloudOptions, BitbucketCloudRepository, profile,
};
pub use credentials::BitbucketCloudCredentials;
pub use webhook::BitbucketCloudDoor;
