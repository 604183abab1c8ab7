//! Traces of the work, for a collector of OpenTelemetry: delivery, command, jobs, phases and posts.
//!
//! The trace of a run has the run's id, and spans of runs and jobs have ids that follow from theirs. So nothing has to be remembered: each
//! server that works on a run adds to the same trace, also after a crash.

mod export;

use crate::domain::{JobId, RunId};
use crate::settings::TraceSettings;
use anyhow::Result;
use export::Exporter;
use jiff::Timestamp;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::time::Duration;

/// Longest value of an attribute, in characters. Pull requests choose names of directories and projects.
const MAX_VALUE: usize = 200;

/// Identity of a span within the trace of its run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SpanKey<'a> {
    /// From the delivery to the end of its run: the root.
    Delivery,
    /// The command.
    Command,
    /// A job of it.
    Job(&'a JobId),
    /// Any other, which is no parent, by a random number.
    Leaf(u64),
}

impl SpanKey<'_> {
    fn id(self, run: &RunId) -> Vec<u8> {
        let text = match self {
            SpanKey::Delivery => format!("delivery {run}"),
            SpanKey::Command => format!("command {run}"),
            SpanKey::Job(job) => format!("job {job}"),
            SpanKey::Leaf(number) => format!("leaf {number} {run}"),
        };
        Sha256::digest(text)[..8].to_vec()
    }
}

/// A part of the work that has ended.
pub(crate) struct WorkSpan<'a> {
    pub run: &'a RunId,
    pub key: SpanKey<'a>,
    /// Absent for the root.
    pub parent: Option<SpanKey<'a>>,
    pub name: Cow<'static, str>,
    pub began: Timestamp,
    pub ended: Timestamp,
    pub attributes: Vec<(&'static str, String)>,
    /// Why it failed, in a word.
    pub failed: Option<&'static str>,
}

/// Collects spans. Without an endpoint it does nothing.
#[derive(Debug, Clone, Default)]
pub struct Traces(Option<Exporter>);

impl Traces {
    /// Starts to export to the endpoint of the settings, if there is one. Needs a runtime.
    ///
    /// # Errors
    ///
    /// If no client can be made for it.
    pub fn start(settings: &TraceSettings) -> Result<Traces> {
        let exporter = settings.endpoint.as_ref().map(|endpoint| Exporter::start(endpoint, &settings.headers));
        exporter.transpose().map(Traces)
    }

    /// Returns true if spans are exported.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Adds a span, which is made only if it is exported.
    pub(crate) fn add<'a>(&self, span: impl FnOnce() -> WorkSpan<'a>) {
        if let Some(exporter) = &self.0 {
            exporter.add(exported(span()));
        }
    }

    /// Exports what was added so far, within this time.
    pub async fn flush(&self, limit: Duration) {
        if let Some(exporter) = &self.0 {
            exporter.flush(limit).await;
        }
    }
}

/// Returns the key of a span that is no parent.
pub(crate) fn leaf() -> SpanKey<'static> {
    SpanKey::Leaf(getrandom::u64().unwrap_or_default())
}

fn exported(span: WorkSpan<'_>) -> Span {
    let WorkSpan { run, key, parent, name, began, ended, attributes, failed } = span;
    let nanoseconds = |time: Timestamp| u64::try_from(time.as_nanosecond()).unwrap_or_default();
    let attribute = |(key, value): (&str, String)| {
        let value = Value::StringValue(value.chars().take(MAX_VALUE).collect());
        KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
    };
    Span {
        trace_id: hex::decode(run.as_str()).unwrap_or_default(),
        span_id: key.id(run),
        parent_span_id: parent.map(|parent| parent.id(run)).unwrap_or_default(),
        name: name.into_owned(),
        kind: if parent.is_none() { SpanKind::Server } else { SpanKind::Internal }.into(),
        start_time_unix_nano: nanoseconds(began),
        // A clock may have been set back.
        end_time_unix_nano: nanoseconds(ended.max(began)),
        attributes: attributes.into_iter().filter(|(_, value)| !value.is_empty()).map(attribute).collect(),
        status: failed.map(|why| Status { message: why.to_owned(), code: StatusCode::Error.into() }),
        ..Span::default()
    }
}
