//! The story of `tidelock sandbox`, played on the forge: a sample repository, its first pull requests, the tour, and the required
//! programs. `app` starts the server beside it.

pub(crate) mod demo;
mod executor;
mod tools;
pub(crate) mod tour;

pub(crate) use executor::SandboxExecutor;
pub(crate) use tidelock_forge::*;
pub(crate) use tools::missing_tools;
