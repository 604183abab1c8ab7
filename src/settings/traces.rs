//! Settings of traces.

use super::check::optional_address;
use super::notifications::headers;
use super::typed::Reader;
use http::{HeaderName, HeaderValue};

settings! {
    /// Settings of traces for a collector of OpenTelemetry.
    #[derive(Debug, Clone, Default)]
    pub struct TraceSettings, static TRACES {
        [
            /// `otlp-headers`.
            headers: Vec<(HeaderName, HeaderValue)> = otlp_headers,
        ]
        Tidelock {
            /// Export traces to this collector, by OTLP over HTTP: http://HOST:4318. By default there are none; docs/traces.md.
            endpoint as "otlp-endpoint": Text -> Option<String> => optional_address,
            /// Headers of these requests, as a JSON object of texts or lists of texts.
            otlp_headers: Secret,
            /// Address of a trace in your tool, with {trace} in the place of its id: runs link to it.
            page as "trace-page": Text -> Option<String> => page,
        }
    }
}

fn otlp_headers(r: &mut Reader) -> Vec<(HeaderName, HeaderValue)> {
    headers(r, "otlp-headers")
}

/// Reads an address with `{trace}`.
fn page(r: &mut Reader, name: &str) -> Option<String> {
    let page = optional_address(r, name)?;
    if !page.contains("{trace}") {
        r.wrong(name, "has no {trace} in it, where the id of the trace belongs");
    }
    Some(page)
}
