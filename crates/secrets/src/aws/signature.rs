//! Signature Version 4 of AWS, for requests whose headers are all signed:
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>

use super::credentials::AwsCredentials;
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use ring::{digest, hmac};
use secrecy::ExposeSecret;
use url::Url;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// A request to sign.
pub(crate) struct SignedRequest<'a> {
    pub(crate) method: &'static str,
    /// An address whose path and query need no more escaping.
    pub(crate) url: &'a Url,
    /// Headers besides those of the signature, by names in lower case.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a [u8],
}

impl SignedRequest<'_> {
    /// Returns the headers of the signature.
    pub(crate) fn headers(
        &self,
        credentials: &AwsCredentials,
        region: &str,
        service: &str,
        now: Timestamp,
    ) -> HeaderMap {
        let now = now.to_zoned(TimeZone::UTC);
        let (date, day) = (now.strftime("%Y%m%dT%H%M%SZ").to_string(), now.strftime("%Y%m%d").to_string());
        let token = credentials.session_token.as_ref().map(|token| token.expose_secret());
        let host = match (self.url.host_str().unwrap_or_default(), self.url.port()) {
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_owned(),
        };
        let mut all = self.headers.to_vec();
        all.extend([("host", host.as_str()), ("x-amz-date", &date)]);
        all.extend(token.map(|token| ("x-amz-security-token", token)));
        all.sort_unstable();
        let names = all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let scope = format!("{day}/{region}/{service}/aws4_request");
        let request = [
            self.method,
            self.url.path(),
            self.url.query().unwrap_or_default(),
            &all.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect::<String>(),
            &names,
            &sha256(self.body),
        ];
        let text = format!("{ALGORITHM}\n{date}\n{scope}\n{}", sha256(request.join("\n").as_bytes()));
        let first = format!("AWS4{}", credentials.secret_key.expose_secret()).into_bytes();
        let key = [&day, region, service, "aws4_request"].into_iter().fold(first, |key, part| mac(&key, part));
        let signature = hex::encode(mac(&key, &text));
        let value = format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            credentials.key_id
        );
        let mut headers = HeaderMap::new();
        let mut add = |name, value: &str| {
            // A value that no header can have makes a request that is refused.
            if let Ok(mut value) = HeaderValue::from_str(value) {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        };
        add("x-amz-date", &date);
        token.iter().for_each(|token| add("x-amz-security-token", token));
        add("authorization", &value);
        headers
    }
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, bytes))
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Token of the test suite.
    const TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

    fn signature(method: &'static str, headers: &[(&str, &str)], body: &str, token: Option<&str>) -> String {
        let credentials = AwsCredentials {
            key_id: "AKIDEXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            session_token: token.map(Into::into),
        };
        let url = Url::parse("https://example.amazonaws.com/").unwrap();
        let signed = SignedRequest { method, url: &url, headers, body: body.as_bytes() };
        let headers = signed.headers(&credentials, "us-east-1", "service", "2015-08-30T12:36:00Z".parse().unwrap());
        let value = headers["authorization"].to_str().unwrap();
        value.split_once("aws4_request, SignedHeaders=").unwrap().1.replace(", Signature=", " ")
    }

    /// The test suite of AWS: <https://github.com/awslabs/aws-c-auth/tree/main/tests/aws-signing-test-suite>
    #[test]
    fn signatures_are_those_of_the_test_suite_of_aws() {
        let form = [("content-type", "application/x-www-form-urlencoded")];
        for (name, made, wanted) in [
            (
                "get-vanilla",
                signature("GET", &[], "", None),
                "host;x-amz-date 5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "post-vanilla",
                signature("POST", &[], "", None),
                "host;x-amz-date 5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "post-x-www-form-urlencoded",
                signature("POST", &form, "Param1=value1", None),
                "content-type;host;x-amz-date ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
            (
                "post-sts-header-before",
                signature("POST", &[], "", Some(TOKEN)),
                "host;x-amz-date;x-amz-security-token 85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
            ),
        ] {
            assert_eq!(made, wanted, "{name}");
        }
    }
}
