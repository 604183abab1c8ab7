//! Whether children are confined on this machine.

use crate::platform;
use anyhow::{Result, bail};
use std::fmt;

/// Whether steps have to be confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StepConfinement {
    /// They are, where the kernel can do it.
    #[default]
    Auto,
    /// They are, or the server does not start.
    Required,
    /// They are not.
    Off,
}

/// What keeps steps from what is not theirs, besides their user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protection {
    /// Landlock, in this version of its interface.
    Landlock(u8),
    /// Nothing, and why.
    None(String),
}

impl Protection {
    /// What there is on this machine. Blocks.
    ///
    /// # Errors
    ///
    /// When there is none and it is required.
    pub fn of_steps(confinement: StepConfinement) -> Result<Protection> {
        let version = match confinement {
            StepConfinement::Off => Err("--step-confinement is off".to_owned()),
            StepConfinement::Auto | StepConfinement::Required => platform::landlock_version(),
        };
        match version {
            Ok(version) => Ok(Protection::Landlock(version)),
            Err(why) if confinement == StepConfinement::Required => {
                bail!("steps cannot be confined, which --step-confinement=required asks for: {why}")
            }
            Err(why) => Ok(Protection::None(why)),
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Before version 3 (Linux 6.2) truncate(2) is not among its rights, before 6 (Linux 6.12) signals are not.
            Protection::Landlock(version @ ..3) => {
                write!(
                    f,
                    "confined by Landlock {version}, which does not keep them from truncating files and sending signals"
                )
            }
            Protection::Landlock(version @ 3..6) => {
                write!(f, "confined by Landlock {version}, which does not keep them from sending signals")
            }
            Protection::Landlock(version) => write!(f, "confined by Landlock {version}"),
            Protection::None(why) => write!(f, "not confined: {why}"),
        }
    }
}
