//! Reads the trace of a request from the headers of Google's load balancers (`X-Cloud-Trace-Context`) and W3C (`traceparent`).

use http::HeaderMap;

/// Returns the trace ID: 32 hex digits. Other values are dropped: they are untrusted text.
pub(super) fn parse_id(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let ours = |text: &'_ str| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let google = text("x-cloud-trace-context").and_then(|text| text.split('/').next()).filter(|id| ours(id));
    google.or_else(|| text("traceparent").and_then(|text| text.split('-').nth(1)).filter(|id| ours(id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    #[test]
    fn traces_are_read_in_both_forms_and_only_if_they_are_ids() {
        let id = "105445aa7843bc8bf206b12000100000";
        let vectors = [
            ("x-cloud-trace-context", format!("{id}/1;o=1"), Some(id)),
            ("x-cloud-trace-context", id.to_owned(), Some(id)),
            ("traceparent", format!("00-{id}-00f067aa0ba902b7-01"), Some(id)),
            ("traceparent", id.to_owned(), None),
            ("x-cloud-trace-context", "\"}/1".to_owned(), None),
            ("x-cloud-trace-context", format!("{id}0/1"), None),
        ];
        for (name, value, expected) in vectors {
            let header = (HeaderName::from_static(name), HeaderValue::from_str(&value).unwrap());
            assert_eq!(parse_id(&HeaderMap::from_iter([header])), expected, "{name}: {value}");
        }
    }
}
