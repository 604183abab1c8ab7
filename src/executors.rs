//! Executors: where jobs run. A remote job is this program again, as `tidelock run-job`, on an engine that the operator names; both sides
//! exchange objects of the bucket (`vault::jobs`).

pub(crate) mod run_job;
pub(crate) mod spec;
