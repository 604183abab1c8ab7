//! Tests of the double itself with plain JSON requests: it has to be as strict as the service, or the other tests prove nothing.

use super::BUCKET;
use bytes::Bytes;
use serde_json::Value;
use tidelock_storage_double::{Settings, StorageDouble};

/// Sends one request. Returns the status, and the body if it is JSON.
async fn send_request(double: &StorageDouble, method: &str, path: &str, body: &str) -> (u16, Value) {
    ask_with(double, method, path, &[], body).await
}

pub(super) async fn ask_with(
    double: &StorageDouble,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Value) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = if path.starts_with("http") { path.to_owned() } else { format!("{}{path}", double.endpoint()) };
    let mut request = client.request(method.parse().unwrap(), url).body(body.to_owned());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let location = response.headers().get("location").map(|l| Value::from(l.to_str().unwrap()));
    let bytes: Bytes = response.bytes().await.unwrap();
    (status, location.unwrap_or_else(|| serde_json::from_slice(&bytes).unwrap_or_default()))
}

async fn start() -> StorageDouble {
    let double = StorageDouble::start().await.unwrap();
    double.bucket(BUCKET, Settings::default());
    double.limit_mutations(false);
    double
}

const UPLOAD: &str = "/upload/storage/v1/b/acme-tidelock/o?uploadType=media&name=a/b";
const OBJECT: &str = "/storage/v1/b/acme-tidelock/o/a%2Fb";

#[tokio::test(flavor = "multi_thread")]
async fn every_precondition_is_held() {
    let double = start().await;
    let (status, first) = send_request(&double, "POST", &format!("{UPLOAD}&ifGenerationMatch=0"), "one").await;
    assert_eq!(status, 200);
    let generation = first["generation"].as_str().unwrap().to_owned();
    for (method, path, body, expected) in [
        ("POST", format!("{UPLOAD}&ifGenerationMatch=0"), "x", 412),
        ("POST", format!("{UPLOAD}&ifGenerationMatch=1"), "x", 412),
        ("POST", format!("{UPLOAD}&ifMetagenerationMatch=2"), "x", 412),
        ("POST", format!("{UPLOAD}&ifGenerationNotMatch={generation}"), "x", 304),
        ("POST", format!("{UPLOAD}&ifGenerationMatch=x"), "x", 400),
        ("GET", format!("{OBJECT}?ifGenerationMatch=1"), "", 412),
        ("GET", format!("{OBJECT}?alt=media&ifGenerationMatch=1"), "", 412),
        ("GET", format!("{OBJECT}?alt=media&ifGenerationNotMatch={generation}"), "", 304),
        ("GET", format!("{OBJECT}?generation=1"), "", 404),
        ("PATCH", format!("{OBJECT}?ifMetagenerationMatch=7"), "{}", 412),
        ("PATCH", format!("{OBJECT}?ifMetagenerationMatch=1"), r#"{"metadata":{"k":"v"}}"#, 200),
        ("PATCH", format!("{OBJECT}?ifMetagenerationMatch=1"), "{}", 412),
        ("DELETE", format!("{OBJECT}?ifGenerationMatch=1"), "", 412),
        ("DELETE", format!("{OBJECT}?generation=1"), "", 404),
        ("DELETE", format!("{OBJECT}?ifGenerationMatch={generation}"), "", 200),
        ("DELETE", format!("{OBJECT}?ifGenerationMatch={generation}"), "", 404),
        ("GET", OBJECT.to_owned(), "", 404),
        ("POST", format!("{UPLOAD}&ifGenerationMatch={generation}"), "x", 412),
    ] {
        let (status, answer) = send_request(&double, method, &path, body).await;
        assert_eq!(status, expected, "{method} {path}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn checksums_names_and_rates_are_held() {
    let double = start().await;
    let hash = |hash: &'static str| [("x-goog-hash", hash)];
    assert_eq!(ask_with(&double, "POST", UPLOAD, &hash("crc32c=AAAAAA=="), "one").await.0, 412);
    assert_eq!(ask_with(&double, "POST", UPLOAD, &hash("md5=1B2M2Y8AsgTpgAmY7PhCfg=="), "one").await.0, 412);
    assert_eq!(ask_with(&double, "POST", UPLOAD, &hash("md5=1B2M2Y8AsgTpgAmY7PhCfg=="), "").await.0, 200);
    let named = |name: &str| format!("/upload/storage/v1/b/acme-tidelock/o?uploadType=media&name={name}");
    assert_eq!(send_request(&double, "POST", &named("a%0Ab"), "x").await.0, 400);
    assert_eq!(send_request(&double, "POST", &named(&"x".repeat(1025)), "x").await.0, 400);
    assert_eq!(
        send_request(&double, "POST", "/upload/storage/v1/b/nobody/o?uploadType=media&name=a", "x").await.0,
        404
    );
    double.limit_mutations(true);
    assert_eq!(send_request(&double, "POST", &named("b"), "x").await.0, 200);
    let (status, answer) = send_request(&double, "POST", &named("b"), "x").await;
    assert_eq!((status, &answer["error"]["errors"][0]["reason"]), (429, &Value::from("rateLimitExceeded")));
    assert_eq!(send_request(&double, "POST", &format!("{}&ifGenerationMatch=0", named("b")), "x").await.0, 412);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_the_words_of_googles_own_emulator() {
    let double = start().await;
    let words = async |method: &str, path: &str| {
        let (status, answer) = send_request(&double, method, path, "x").await;
        let words: Value = serde_json::from_str(answer["error"]["message"].as_str().unwrap()).unwrap();
        (status, words["error"]["errors"][0]["message"].as_str().unwrap().to_owned())
    };
    assert_eq!(send_request(&double, "POST", UPLOAD, "one").await.0, 200);
    let nobody = "/upload/storage/v1/b/nobody/o?uploadType=media&name=a";
    assert_eq!(words("POST", nobody).await, (404, "Bucket nobody does not exist.".into()));
    let none = "/storage/v1/b/acme-tidelock/o/none";
    assert_eq!(words("GET", none).await, (404, "none does not exist.".into()));
    let (status, refused) = words("POST", &format!("{UPLOAD}&ifGenerationMatch=7")).await;
    assert!(status == 412 && refused.starts_with("ifGenerationMatch validation failed. Expected = 7 vs"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn resumable_uploads_keep_count_of_their_bytes() {
    let double = start().await;
    let start = "/upload/storage/v1/b/acme-tidelock/o?uploadType=resumable&name=big&ifGenerationMatch=0";
    let (status, location) = send_request(&double, "POST", start, "{}").await;
    let location = location.as_str().unwrap().to_owned();
    assert_eq!(status, 200);
    let chunk = "x".repeat(256 << 10);
    let range = |range: &'static str| [("content-range", range)];
    for (headers, body, expected) in [
        (range("bytes */*"), "", 308),
        (range("bytes 0-99/*"), &chunk[..100], 400),
        (range("bytes 262144-524287/*"), &chunk[..], 400),
        (range("bytes 0-262143/*"), &chunk[..], 308),
        (range("bytes */*"), "", 308),
        (range("bytes 262144-262144/262145"), "y", 200),
        (range("bytes */*"), "", 200),
    ] {
        let (status, answer) = ask_with(&double, "PUT", &location, &headers, body).await;
        assert_eq!(status, expected, "{headers:?}: {answer}");
    }
    assert_eq!(send_request(&double, "GET", "/storage/v1/b/acme-tidelock/o/big", "").await.1["size"], "262145");
    let (_, again) = send_request(&double, "POST", start, "{}").await;
    let (status, _) = ask_with(&double, "PUT", again.as_str().unwrap(), &range("bytes 0-0/1"), "z").await;
    assert_eq!(status, 412, "the condition of the start holds at the end");
    let (status, _) = ask_with(&double, "PUT", again.as_str().unwrap(), &range("bytes */*"), "").await;
    assert_eq!(status, 404, "a session that is refused at its end is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn multipart_bodies_are_read_to_the_letter() {
    let double = start().await;
    let path = "/upload/storage/v1/b/acme-tidelock/o?uploadType=multipart";
    let post = async |kind: &str, body: &str| ask_with(&double, "POST", path, &[("content-type", kind)], body).await;
    let kind = "multipart/related; boundary=XX";
    let json = r#"{"name":"m","metadata":{"k":"v"}}"#;
    let head = format!("--XX\r\nContent-Type: application/json\r\n\r\n{json}\r\n--XX\r\n");
    let whole = format!("{head}Content-Type: text/x\r\n\r\n--a\r\n\r\nb\r\n\r\n--XX--\r\n");
    let (status, object) = post(kind, &whole).await;
    assert_eq!((status, &object["contentType"], &object["metadata"]["k"]), (200, &"text/x".into(), &"v".into()));
    assert_eq!(object["size"], "10", "the last line end belongs to the boundary");
    let third = "--XX\r\nContent-Type: application/json\r\n\r\n{\"crc32c\":\"AAAAAA==\"}\r\n--XX--\r\n";
    let (status, refused) = post(kind, &format!("{head}Content-Type: text/x\r\n\r\n\r\n{third}")).await;
    assert_eq!(status, 400, "a third part");
    assert!(refused["error"]["message"].as_str().unwrap().contains("Multipart body is malformed"), "{refused}");
    assert_eq!(post(kind, &format!("{head}\r\na\r\n--XX--\r\n")).await.0, 200, "a part without a content type");
    assert_eq!(post(kind, &head).await.0, 400, "cut off");
    assert_eq!(post("text/plain", &whole).await.0, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_paged_and_tokens_belong_to_their_list() {
    let double = start().await;
    for name in ["a/1", "a/2", "a/b/1", "a/b/2", "a/c/1", "b/1"] {
        let path = format!("/upload/storage/v1/b/acme-tidelock/o?uploadType=media&name={name}");
        assert_eq!(send_request(&double, "POST", &path, "x").await.0, 200);
    }
    let list = "/storage/v1/b/acme-tidelock/o";
    let (_, page) = send_request(&double, "GET", &format!("{list}?prefix=a/&delimiter=/&maxResults=3"), "").await;
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    assert_eq!(page["prefixes"], serde_json::json!(["a/b/"]));
    let token = page["nextPageToken"].as_str().unwrap();
    let (_, rest) = send_request(&double, "GET", &format!("{list}?prefix=a/&delimiter=/&pageToken={token}"), "").await;
    assert_eq!((&rest["prefixes"], &rest["items"]), (&serde_json::json!(["a/c/"]), &Value::Null));
    assert_eq!(rest["nextPageToken"], Value::Null);
    assert_eq!(send_request(&double, "GET", &format!("{list}?prefix=b/&pageToken={token}"), "").await.0, 400);
    let (_, page) = send_request(&double, "GET", &format!("{list}?startOffset=a/2&endOffset=a/c"), "").await;
    assert_eq!(page["items"].as_array().unwrap().len(), 3);
}
