//! `/metrics` for Prometheus: role and lease, commits, the journal, the bucket, the inbox, deliveries; runs, jobs, phases and waits; locks,
//! owners, plans and drift. A scrape never asks the bucket. Counters are in memory, and the state is read only after a commit.

mod atlantis;
#[cfg(test)]
mod documented_tests;
mod exposition;
mod families;
mod gauges;
mod server;
pub(crate) mod statsd;
mod work;

pub(crate) use gauges::GaugeCache;

use super::answer::{HttpProblem, typed};
use super::{Site, WebState};
use crate::meters::WorkMeters;
use axum::extract::State;
use axum::response::Response;
use exposition::Exposition;
use families::MetricFamily;
use http::HeaderMap;
use jiff::Timestamp;
use server::ServerMetrics;
use std::sync::Arc;

/// What `/metrics` needs besides the server's status.
#[derive(Debug)]
pub struct MetricsSource {
    /// First part of the names of metrics.
    pub namespace: String,
    /// Another path of `/metrics`.
    pub path: Option<String>,
    /// True if the names of Atlantis are served as well.
    pub atlantis_names: bool,
    /// Counters of the work.
    pub work: Arc<WorkMeters>,
    /// Figures of the state.
    pub gauges: GaugeCache,
}

/// Serves the page, in the format that the scraper prefers.
pub(super) async fn page(State(site): State<Arc<Site>>, headers: HeaderMap) -> Result<Response, HttpProblem> {
    let format = Exposition::preferred(&headers);
    let families = collect(&site.state).await;
    Ok(typed(format.content_type(), format.write(&families, &site.state.metrics.namespace)))
}

/// Returns the present metrics of this server.
async fn collect(state: &WebState) -> Vec<MetricFamily> {
    let server_status = state.server_status.borrow().clone();
    let (source, now) = (&state.metrics, Timestamp::now());
    let mut families = ServerMetrics::new(state, &server_status, now).families();
    source.work.read(|counts| {
        work::families(counts, &mut families);
        if source.atlantis_names {
            atlantis::families(counts, &mut families);
        }
    });
    if let Some(services) = &server_status.services
        && let Some(figures) = source.gauges.read(services).await
    {
        gauges::families(&figures, now, &mut families);
    }
    families.into_vec()
}
