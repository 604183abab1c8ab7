//! Runs the steps of one job: takes a [`spec::JobSpec`] and returns a [`result::Ran`]. Both are plain data that survive JSON, so that a job
//! can be run by another process or on another machine.
//!
//! [`local`] runs jobs on this machine. A runner makes no decisions and words no replies: `execute` decides which jobs run, what is
//! recorded of them and what people read.

pub mod local;
pub mod result;
pub mod spec;
