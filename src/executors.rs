//! Executors: where jobs run. A remote job is this program again, as `tidelock run-job`, on an engine that the operator names; both sides
//! exchange objects of the bucket (`vault::jobs`).

#[expect(dead_code, reason = "the two sides follow in the next commits")]
pub(crate) mod spec;
