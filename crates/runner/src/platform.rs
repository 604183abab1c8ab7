//! The differences between Linux and macOS. No other module depends on the kernel.

#[cfg_attr(target_os = "linux", path = "platform/children.rs")]
#[cfg_attr(not(target_os = "linux"), path = "platform/no_children.rs")]
mod children;
#[cfg_attr(target_os = "linux", path = "platform/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "platform/macos.rs")]
mod kernel;
#[cfg_attr(target_os = "linux", path = "platform/landlock.rs")]
#[cfg_attr(not(target_os = "linux"), path = "platform/no_landlock.rs")]
mod landlock;
#[cfg(any(test, not(target_os = "linux")))]
mod refilled;

pub(crate) use children::{adopt_orphans, adopted, await_end, children, children_of, variable_of};

pub use kernel::is_in_memory;
pub(crate) use kernel::{
    CREDENTIAL_HELPER, IGNORES_CASE, change_owner, close_to_others, entry_to_give, ignores, mode,
    numbered_credential_helper, open_beneath, sealed_file, secret_file, this_machine,
};
pub(crate) use landlock::{RuleTarget, Rules, landlock_version};

/// Access of a confined process to the files below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Read, list and execute them.
    Read,
    /// Change, make and remove them, too.
    Write,
}
