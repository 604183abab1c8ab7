//! The protection of steps on this machine.

use crate::platform;
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Setting for the confinement of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepConfinement {
    /// Steps are confined if the kernel supports it.
    #[default]
    Auto,
    /// Steps are confined, or the server does not start.
    Required,
    /// Steps are not confined.
    Off,
}

/// Protection of files and processes from steps, besides their user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protection {
    /// Landlock, with the version of its interface.
    Landlock(u8),
    /// No protection, with the reason.
    None(String),
}

impl Protection {
    /// Returns the protection that this machine has. Blocks.
    ///
    /// # Errors
    ///
    /// If there is none and it is required.
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
            // Before version 3 (Linux 6.2) Landlock has no right for truncate(2), and before version 6 (Linux 6.12) none for signals.
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
