//! How long to wait between tries of what failed and may succeed. The policy is the vault's, so that all of the server has one.

pub(crate) use tidelock_vault::retry::jittered;
