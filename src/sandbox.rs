//! The story of `tidelock sandbox`, played on the forge: a sample repository, its first pull requests, the tour, and what the machine
//! needs for them. `app` starts the server beside it.

pub mod demo;
mod tools;
pub mod tour;

pub use tidelock_forge::*;
pub use tools::missing_tools;
