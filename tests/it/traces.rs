//! Traces of the work, received as a collector receives them: OTLP over HTTP, with the messages of OpenTelemetry's own definitions.

use crate::support::*;
use axum::body::Bytes;
use axum::extract::State;
use http::{HeaderMap, StatusCode, Uri};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use prost::Message as _;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Collects spans on loopback.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
    /// What was wrong with requests.
    wrong: Arc<Mutex<Vec<String>>>,
}

impl Collector {
    /// Returns it with its address, and the listener to serve.
    fn bound() -> (Collector, String, std::net::TcpListener) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        (Collector::default(), url, listener)
    }

    fn serve(&self, listener: std::net::TcpListener) {
        async fn take(
            State(collector): State<Collector>,
            uri: Uri,
            headers: HeaderMap,
            body: Bytes,
        ) -> (StatusCode, Vec<u8>) {
            let problem = collector.take(&uri, &headers, &body).err();
            let status = problem.map_or(StatusCode::OK, |problem| {
                collector.wrong.lock().unwrap().push(problem);
                StatusCode::BAD_REQUEST
            });
            (status, ExportTraceServiceResponse::default().encode_to_vec())
        }
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let app = axum::Router::new().fallback(take).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
    }

    /// Takes the spans of a request, if it is one that the specification allows (opentelemetry.io/docs/specs/otlp, OTLP/HTTP).
    fn take(&self, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
        if uri.path() != "/v1/traces" || headers["content-type"] != "application/x-protobuf" {
            return Err(format!("{uri} {headers:?}"));
        }
        if headers.get("x-key").is_none_or(|key| key != "of the collector") {
            return Err(format!("it lacks its header: {headers:?}"));
        }
        let request = ExportTraceServiceRequest::decode(body).map_err(|error| error.to_string())?;
        for of_resource in request.resource_spans {
            let resource = of_resource.resource.unwrap_or_default();
            let name = resource.attributes.iter().find(|attribute| attribute.key == "service.name");
            if !name.is_some_and(|name| format!("{:?}", name.value).contains("\"tidelock\"")) {
                return Err(format!("no name of the service: {resource:?}"));
            }
            for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                let ids_are_set = |id: &[u8], length| id.len() == length && id.iter().any(|byte| *byte != 0);
                if !ids_are_set(&span.trace_id, 16) || !ids_are_set(&span.span_id, 8) {
                    return Err(format!("invalid ids: {span:?}"));
                }
                if span.end_time_unix_nano < span.start_time_unix_nano || span.start_time_unix_nano == 0 {
                    return Err(format!("it ends before it begins: {span:?}"));
                }
                self.spans.lock().unwrap().push(span);
            }
        }
        Ok(())
    }

    /// Returns the trace of a run, once a comment was posted in it.
    async fn trace(&self, ctx: &Ctx, run: &str) -> Trace {
        let of_run = || {
            let spans = self.spans.lock().unwrap();
            spans.iter().filter(|span| hex::encode(&span.trace_id) == run).cloned().collect::<Vec<_>>()
        };
        ctx.until("the trace has arrived", async || of_run().iter().any(|span| span.name == "post comment")).await;
        assert_eq!(*self.wrong.lock().unwrap(), Vec::<String>::new());
        Trace(of_run())
    }
}

/// The spans of one trace.
struct Trace(Vec<Span>);

impl Trace {
    /// Checks that there is one root, that each other span has its parent in the trace, and that no span begins before its parent or, unless
    /// it is a post, ends after it. Returns the numbers of spans by their path of names.
    fn tree(&self) -> BTreeMap<String, usize> {
        let by_id: BTreeMap<_, _> = self.0.iter().map(|span| (span.span_id.clone(), span)).collect();
        assert_eq!(by_id.len(), self.0.len(), "ids are unique: {:?}", self.0);
        let mut paths = BTreeMap::new();
        for span in &self.0 {
            let (mut path, mut at) = (span.name.clone(), span);
            while !at.parent_span_id.is_empty() {
                let parent = by_id.get(&at.parent_span_id).unwrap_or_else(|| panic!("{path} has no parent"));
                assert!(parent.start_time_unix_nano <= at.start_time_unix_nano, "{path} begins too early");
                let ends_within = parent.end_time_unix_nano >= at.end_time_unix_nano;
                assert!(ends_within || span.name == "post comment", "{path} ends too late");
                path = format!("{} > {path}", parent.name);
                at = parent;
            }
            *paths.entry(path).or_default() += 1;
        }
        paths
    }

    fn one(&self, name: &str) -> &Span {
        let mut named = self.0.iter().filter(|span| span.name == name);
        let (Some(one), None) = (named.next(), named.next()) else { panic!("not one {name}: {:?}", self.0) };
        one
    }

    /// Returns a text attribute of a span.
    fn attribute(&self, span: &str, name: &str) -> String {
        let found = self.one(span).attributes.iter().find(|attribute| attribute.key == name);
        let value = found.and_then(|attribute| attribute.value.clone()).and_then(|value| value.value);
        match value {
            Some(opentelemetry_proto::tonic::common::v1::any_value::Value::StringValue(text)) => text,
            other => panic!("{span} has {other:?} as {name}"),
        }
    }
}

fn run_of(said: &Said) -> String {
    said.marker["run"].as_str().unwrap().to_owned()
}

fn traced(url: &str, steps: &[&str]) -> Setup {
    let endpoint = format!("--otlp-endpoint={url}/");
    let setup = Setup::one_project().repos_yaml(&workflow("", steps, &["false"]));
    setup
        .flags(&[&endpoint, "--trace-page=https://traces.example/{trace}?from=tidelock"])
        .variable("TIDELOCK_OTLP_HEADERS", r#"{"x-key": "of the collector"}"#)
}

#[test]
fn a_run_is_a_trace_from_its_delivery_to_its_comment() {
    let (collector, url, listener) = Collector::bound();
    run_test(traced(&url, &[PLANNED]), async |ctx| {
        collector.serve(listener);
        let pull = ctx.open_input("change", "2").await;
        let planned = ctx.next(&pull).await;
        let trace = collector.trace(ctx, &run_of(&planned)).await;
        let paths = trace.tree();
        for path in [
            "delivery",
            "delivery > queue",
            "delivery > plan",
            "delivery > plan > checkout",
            "delivery > plan > wait",
            "delivery > plan > job plan",
            "delivery > plan > job plan > run",
            "delivery > plan > post comment",
        ] {
            assert_eq!(paths.get(path), Some(&1), "{path}: {paths:?}");
        }
        assert_eq!(trace.attribute("plan", "tidelock.pull"), pull.number().to_string());
        assert!(trace.attribute("plan", "tidelock.repository").ends_with("/acme/infra"));
        assert_eq!(trace.attribute("plan", "tidelock.trigger"), "autoplan");
        assert_eq!(trace.attribute("job plan", "tidelock.project.workspace"), "default");
        let run = run_of(&planned);
        let (_, page) = ctx.request("GET", &format!("/runs/{run}"), &[]).await;
        let page = page.replace("&#x2f;", "/");
        assert!(page.contains(&format!("href=\"https://traces.example/{run}?from=tidelock\"")), "{page}");
        assert!(trace.one("plan").status.as_ref().is_none_or(|status| status.code() == SpanStatus::Unset));
        let failed = ctx.say(&pull, "atlantis apply").await;
        failed.is("apply", "error");
        let trace = collector.trace(ctx, &run_of(&failed)).await;
        assert_eq!(trace.tree().get("delivery > apply > job apply"), Some(&1));
        for span in ["apply", "job apply"] {
            let status = trace.one(span).status.clone().unwrap();
            assert_eq!((status.code(), status.message.as_str()), (SpanStatus::Error, "error"), "{span}");
        }
    });
}

/// The second server adds to the trace of the first, of which nothing had arrived.
#[test]
fn a_run_that_outlives_its_server_stays_one_trace() {
    let (collector, url, listener) = Collector::bound();
    run_test(traced(&url, &[&gate("plan"), PLANNED]).own_process(), async |ctx| {
        collector.serve(listener);
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("plan", 1).await;
        ctx.server.kill().await;
        ctx.open_gate("plan");
        ctx.server.start().await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success");
        let trace = collector.trace(ctx, &run_of(&said)).await;
        assert!(trace.tree().contains_key("delivery > plan > job plan"));
    });
}

#[test]
fn a_collector_that_refuses_or_is_gone_holds_up_nothing_and_is_told_once() {
    // Nobody accepts.
    let (_collector, url, listener) = Collector::bound();
    drop(listener);
    run_test(traced(&url, &[PLANNED]).own_process(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let told = "traces are lost: ";
        ctx.until("it is told", async || ctx.server.log().contains(told)).await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.server.stop().await;
        assert_eq!(ctx.server.log().matches(told).count(), 1);
        ctx.server.start().await;
    });
}
