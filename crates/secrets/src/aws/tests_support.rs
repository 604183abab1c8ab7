//! Signs a request again as a service does to check it. The signatures themselves are checked with AWS's test suite.

use super::credentials::AwsCredentials;
use super::signature::SignedRequest;
use http::HeaderMap;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use url::Url;

/// Returns the header `Authorization` that a request with these headers and this body has to have.
pub(crate) fn authorization(headers: HeaderMap, body: &str, region: &str, service: &str) -> String {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let credentials = AwsCredentials {
        key_id: "AKIDEXAMPLE".to_owned(),
        secret_key: "example-key".into(),
        session_token: headers.contains_key("x-amz-security-token").then(|| "session".into()),
    };
    let url = Url::parse(&format!("http://{}/", header("host"))).unwrap();
    let signed = [("content-type", header("content-type")), ("x-amz-target", header("x-amz-target"))];
    let signed = SignedRequest { method: "POST", url: &url, headers: &signed, body: body.as_bytes() };
    let now = DateTime::strptime("%Y%m%dT%H%M%SZ", header("x-amz-date")).unwrap();
    let now = now.to_zoned(TimeZone::UTC).unwrap().timestamp();
    signed.headers(&credentials, region, service, now)["authorization"].to_str().unwrap().to_owned()
}
