//! What differs between the kernels that the server runs on: Linux, and macOS. Nothing else asks which one it is.

#[cfg_attr(target_os = "linux", path = "platform/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "platform/macos.rs")]
mod kernel;
#[cfg(any(test, not(target_os = "linux")))]
mod refilled;

pub(crate) use kernel::{
    CREDENTIAL_HELPER, change_owner, close_to_others, entry_to_give, ignores, is_in_memory, mode, secret_file,
    this_machine,
};
