//! Runs the steps of one job: a [`spec::JobSpec`] goes in, a [`result::Ran`] comes back. Both are plain data that survive JSON, so
//! that a job can be run by another process or on another machine.
//!
//! [`local`] runs jobs on this machine. A runner decides nothing and words nothing: which jobs run, what is recorded of them and what
//! people read is the business of `execute`.

pub mod local;
pub mod result;
pub mod spec;
