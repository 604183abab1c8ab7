//! Runs Terraform and OpenTofu on this machine, in trees whose contents nobody has vouched for.
//!
//! [`process`] starts children and confines them, [`checkout`] makes trees out of repositories, [`terraform`] installs versions and reads
//! what they print, [`policy`] evaluates policies; [`runner`] runs the steps of a job with all of them.

pub mod checkout;
mod platform;
pub mod policy;
pub mod process;
pub mod runner;
pub mod terraform;
