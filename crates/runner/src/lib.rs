//! Runs Terraform and OpenTofu on this machine, in working trees whose contents are not trusted.
//!
//! [`process`] starts and confines children, [`checkout`] makes working trees from repositories, [`terraform`] installs versions and parses
//! their output. [`policy`] evaluates policies, and [`runner`] runs the steps of a job with all of them.

pub mod checkout;
mod platform;
pub mod policy;
pub mod process;
pub mod runner;
pub mod terraform;
