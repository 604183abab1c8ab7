//! Calls to the machine's kernel. The only module with separate code for Linux and macOS.

#[cfg_attr(target_os = "linux", path = "machine/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "machine/macos.rs")]
mod kernel;

pub(crate) use kernel::{identity, short_lived, since_boot};
