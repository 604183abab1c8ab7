//! Sends spans to a collector, in batches and outside of the work (opentelemetry.io/docs/specs/otlp, OTLP/HTTP).

use anyhow::{Context as _, Result, bail};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of spans that wait. Further ones are dropped: no work waits for a collector.
const MAX_WAITING: usize = 4096;
/// Maximum number of spans in one request.
const BATCH: usize = 512;
/// Time that spans wait for others of their batch.
const GATHERING: Duration = Duration::from_secs(2);
/// Time limit of a request.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest response that is read, in bytes.
const MAX_RESPONSE: usize = 64 << 10;

enum ExportStep {
    Span(Box<Span>),
    Flush(oneshot::Sender<()>),
}

/// Handle of the task that exports.
#[derive(Debug, Clone)]
pub(super) struct Exporter {
    work: mpsc::Sender<ExportStep>,
    /// Spans that had no place in the queue, since it was last told.
    dropped: Arc<AtomicU64>,
}

impl Exporter {
    pub(super) fn start(endpoint: &str, headers: &[(HeaderName, HeaderValue)]) -> Result<Exporter> {
        // Somebody may have chosen one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().timeout(LIMIT).redirect(reqwest::redirect::Policy::none()).build()?;
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(name, value.clone());
        }
        all.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let collector =
            Collector { client, address: format!("{}/v1/traces", endpoint.trim_end_matches('/')), headers: all };
        let (work, queue) = mpsc::channel(MAX_WAITING);
        let dropped = Arc::<AtomicU64>::default();
        tokio::spawn(export(collector, queue, Arc::clone(&dropped)));
        Ok(Exporter { work, dropped })
    }

    pub(super) fn add(&self, span: Span) {
        if self.work.try_send(ExportStep::Span(Box::new(span))).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) async fn flush(&self, limit: Duration) {
        let (done, flushed) = oneshot::channel();
        let flush = async {
            if self.work.send(ExportStep::Flush(done)).await.is_ok() {
                let _ = flushed.await;
            }
        };
        if tokio::time::timeout(limit, flush).await.is_err() {
            tracing::warn!("the last traces could not be exported in time");
        }
    }
}

struct Collector {
    client: reqwest::Client,
    address: String,
    headers: HeaderMap,
}

impl Collector {
    /// Sends a batch. Returns the number of spans that the collector rejected.
    async fn send(&self, spans: Vec<Span>) -> Result<u64> {
        let body = request(spans).encode_to_vec();
        let request = self.client.post(&self.address).headers(self.headers.clone()).body(body);
        // Its address is the operator's, and told by the settings.
        let mut response = request.send().await.map_err(reqwest::Error::without_url)?;
        if !response.status().is_success() {
            bail!("the collector answers {}", response.status());
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(reqwest::Error::without_url)? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_RESPONSE {
                bail!("the collector answers with more than {MAX_RESPONSE} bytes");
            }
        }
        let answer = ExportTraceServiceResponse::decode(&body[..]).context("the collector's answer is not OTLP")?;
        let rejected = answer.partial_success.map_or(0, |partial| partial.rejected_spans);
        Ok(u64::try_from(rejected).unwrap_or_default())
    }
}

fn request(spans: Vec<Span>) -> ExportTraceServiceRequest {
    let attribute = |key: &str, value: &str| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(Value::StringValue(value.to_owned())) }),
        ..KeyValue::default()
    };
    let version = env!("CARGO_PKG_VERSION");
    let attributes = vec![attribute("service.name", "tidelock"), attribute("service.version", version)];
    let scope = InstrumentationScope { name: "tidelock".into(), version: version.into(), ..Default::default() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, schema_url: String::new() }];
    let resource = Some(Resource { attributes, ..Resource::default() });
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { resource, scope_spans, schema_url: String::new() }],
    }
}

/// Exports batches until all handles are gone. Tells once when spans begin to be lost, and when they arrive again.
async fn export(collector: Collector, mut queue: mpsc::Receiver<ExportStep>, dropped: Arc<AtomicU64>) {
    let (mut lost, mut is_losing) = (0, false);
    while let Some(first) = queue.recv().await {
        let (mut batch, mut flushes) = (Vec::new(), Vec::new());
        gather(first, &mut queue, &mut batch, &mut flushes).await;
        let count = batch.len() as u64;
        let problem = match batch.is_empty() {
            true => None,
            false => match collector.send(batch).await {
                Ok(0) => None,
                Ok(rejected) => Some((rejected, "the collector rejects some of them".to_owned())),
                Err(error) => Some((count, format!("{error:#}"))),
            },
        };
        let without_place = dropped.swap(0, Ordering::Relaxed);
        let slow = || (0, "the collector is too slow".to_owned());
        let problem = problem.or_else(|| (without_place > 0).then(slow));
        lost += without_place + problem.as_ref().map_or(0, |(lost, _)| *lost);
        match problem {
            Some((_, why)) if !is_losing => tracing::warn!(lost, "traces are lost: {why}"),
            None if is_losing && count > 0 => {
                tracing::info!(lost, "traces are exported again");
                lost = 0;
            }
            _ => {}
        }
        is_losing = lost > 0;
        for flush in flushes {
            let _ = flush.send(());
        }
    }
}

/// Collects a batch, until it is full, old enough, or asked for.
async fn gather(
    first: ExportStep,
    queue: &mut mpsc::Receiver<ExportStep>,
    batch: &mut Vec<Span>,
    flushes: &mut Vec<oneshot::Sender<()>>,
) {
    let gathered = tokio::time::sleep(GATHERING);
    tokio::pin!(gathered);
    let mut next = Some(first);
    while let Some(work) = next {
        match work {
            ExportStep::Span(span) => batch.push(*span),
            ExportStep::Flush(done) => flushes.push(done),
        }
        if batch.len() >= BATCH || !flushes.is_empty() {
            return;
        }
        next = tokio::select! {
            work = queue.recv() => work,
            () = &mut gathered => return,
        };
    }
}
