//! The JSON API: the calls of the official client, of rclone and of gsutil.

use super::accounts::{IamTarget, StorageCaller};
use super::faults::{Effect, Operation};
use super::refusal::Refusal;
use super::state::{Attributes, Conditions, Query, Stored};
use super::{Body, Service, Wire, act, upload};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http::header::{CONTENT_RANGE, CONTENT_TYPE, ETAG, RANGE};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// A request of the JSON API.
pub(crate) struct Call {
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
    pub(crate) query: HashMap<String, String>,
    pub(crate) service: Arc<Service>,
    pub(crate) wire: Arc<Wire>,
    pub(crate) caller: StorageCaller,
}

impl Call {
    /// Runs the effect of the request (see [`act`]).
    pub(crate) async fn act<T, F, R>(&self, operation: Operation, name: &str, effect: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce(Option<Effect>) -> R,
        R: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        act(&self.service, &self.wire, &self.caller, operation, name, effect).await
    }

    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    pub(crate) fn header(&self, name: impl http::header::AsHeaderName) -> Option<&str> {
        self.parts.headers.get(name).and_then(|value| value.to_str().ok())
    }

    fn number(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let given = self.query.get(name).map(|text| text.parse());
        given.transpose().map_err(|_| Refusal::invalid(format!("Invalid value for {name}.")))
    }

    pub(crate) fn conditions(&self) -> Result<Conditions, Refusal> {
        Ok(Conditions {
            generation_match: self.number("ifGenerationMatch")?,
            generation_not_match: self.number("ifGenerationNotMatch")?,
            metageneration_match: self.number("ifMetagenerationMatch")?,
            metageneration_not_match: self.number("ifMetagenerationNotMatch")?,
        })
    }
}

pub(crate) async fn answer(
    parts: Parts,
    body: Bytes,
    service: Arc<Service>,
    wire: Arc<Wire>,
    caller: StorageCaller,
) -> Response<Body> {
    let query = parts.uri.query().unwrap_or_default();
    let query = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let call = Call { parts, body, query, service, wire, caller };
    route(call).await.unwrap_or_else(|refusal| refuse(&refusal))
}

async fn route(call: Call) -> Result<Response<Body>, Refusal> {
    let path = call.parts.uri.path().to_owned();
    let method = call.parts.method.clone();
    let unknown = || Refusal::unknown(&format!("{method} {path}"));
    let (area, rest) = path.split_once("/storage/v1/b/").ok_or_else(unknown)?;
    let (bucket, object) = match rest.split_once('/') {
        None => (decoded(rest), None),
        Some((bucket, "o")) => (decoded(bucket), Some(String::new())),
        Some((bucket, object)) => (decoded(bucket), Some(decoded(object.strip_prefix("o/").ok_or_else(unknown)?))),
    };
    match (area, method.as_str(), object) {
        ("/upload" | "/resumable/upload", "POST" | "PUT", Some(_)) => upload::route(call, bucket).await,
        ("", "GET", None) => get_bucket(call, bucket).await,
        ("", "GET", Some(name)) if name.is_empty() => list(call, bucket).await,
        ("" | "/download", "GET", Some(name)) if area == "/download" || call.parameter("alt") == "media" => {
            read(call, bucket, name).await
        }
        ("", "GET", Some(name)) => stat(call, bucket, name).await,
        ("", "DELETE", Some(name)) if !name.is_empty() => delete(call, bucket, name).await,
        ("", "PATCH", Some(name)) if !name.is_empty() => patch(call, bucket, name).await,
        _ => Err(unknown()),
    }
}

async fn get_bucket(call: Call, bucket: String) -> Result<Response<Body>, Refusal> {
    let (service, caller, name) = (call.service.clone(), call.caller.clone(), bucket.clone());
    let effect = async move |_| {
        service.state().bucket(&caller, "storage.buckets.get", IamTarget::Bucket(&name))?;
        Ok(json!({"kind": "storage#bucket", "id": name, "name": name, "storageClass": "STANDARD", "location": "EU"}))
    };
    Ok(send(StatusCode::OK, &call.act(Operation::GetBucket, &bucket, effect).await?))
}

async fn list(call: Call, bucket: String) -> Result<Response<Body>, Refusal> {
    let page_size = call.number("maxResults")?.unwrap_or_default();
    let query = Query {
        prefix: call.parameter("prefix").to_owned(),
        delimiter: call.parameter("delimiter").to_owned(),
        start: call.parameter("startOffset").to_owned(),
        end: call.parameter("endOffset").to_owned(),
        token: call.parameter("pageToken").to_owned(),
        page_size: usize::try_from(page_size).map_err(|_| Refusal::invalid("Invalid value for maxResults."))?,
    };
    let (service, caller, prefix) = (call.service.clone(), call.caller.clone(), query.prefix.clone());
    let effect = async move |_| {
        let page = service.state().list(&caller, &bucket, &query)?;
        let items: Vec<Value> = page.objects.iter().map(|stored| resource(&service, &bucket, stored)).collect();
        let mut body = json!({"kind": "storage#objects"});
        if !items.is_empty() {
            body["items"] = items.into();
        }
        if !page.prefixes.is_empty() {
            body["prefixes"] = page.prefixes.into();
        }
        if !page.next.is_empty() {
            body["nextPageToken"] = page.next.into();
        }
        Ok(body)
    };
    Ok(send(StatusCode::OK, &call.act(Operation::List, &prefix, effect).await?))
}

async fn stat(call: Call, bucket: String, name: String) -> Result<Response<Body>, Refusal> {
    let (conditions, generation) = (call.conditions()?, call.number("generation")?);
    let (service, caller, object) = (call.service.clone(), call.caller.clone(), name.clone());
    let effect = async move |_| {
        let stored = service.state().read(&caller, &bucket, &object, generation, conditions)?;
        Ok(resource(&service, &bucket, &stored))
    };
    Ok(send(StatusCode::OK, &call.act(Operation::Stat, &name, effect).await?))
}

async fn delete(call: Call, bucket: String, name: String) -> Result<Response<Body>, Refusal> {
    let (conditions, generation) = (call.conditions()?, call.number("generation")?);
    let (service, caller, object) = (call.service.clone(), call.caller.clone(), name.clone());
    let effect = async move |_| service.state().delete(&caller, &bucket, &object, generation, conditions);
    call.act(Operation::Delete, &name, effect).await?;
    // testbench/rest_server.py `object_delete`: an empty 200, where the service says 204.
    Ok(status(StatusCode::OK))
}

async fn patch(call: Call, bucket: String, name: String) -> Result<Response<Body>, Refusal> {
    let conditions = call.conditions()?;
    let wanted: Map<String, Value> = serde_json::from_slice(&call.body).map_err(|_| Refusal::invalid("Parse Error"))?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let metadata = wanted.get("metadata").and_then(Value::as_object);
    let changes = metadata.into_iter().flatten().map(|(key, value)| (key.clone(), text(value)));
    let changes: BTreeMap<_, _> = changes.collect();
    let content_type = wanted.get("contentType").and_then(text);
    let (service, caller, object) = (call.service.clone(), call.caller.clone(), name.clone());
    let effect = async move |_| {
        let stored = service.state().patch(&caller, &bucket, &object, changes, content_type, conditions)?;
        Ok(resource(&service, &bucket, &stored))
    };
    Ok(send(StatusCode::OK, &call.act(Operation::Patch, &name, effect).await?))
}

async fn read(call: Call, bucket: String, name: String) -> Result<Response<Body>, Refusal> {
    let (conditions, generation) = (call.conditions()?, call.number("generation")?);
    let wanted = call.header(RANGE).map(str::to_owned);
    let (service, caller, object) = (call.service.clone(), call.caller.clone(), name.clone());
    let effect = async move |fault| {
        let stored = service.state().read(&caller, &bucket, &object, generation, conditions)?;
        let range = wanted.map(|wanted| range_of(&wanted, stored.content.len())).transpose()?.flatten();
        Ok(content(&stored, range, fault))
    };
    call.act(Operation::Read, &name, effect).await
}

/// Parses a `Range` header. A malformed one is ignored.
fn range_of(header: &str, length: usize) -> Result<Option<Range<usize>>, Refusal> {
    let Some((first, last)) = header.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return Ok(None);
    };
    let range = match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) if first <= last => first..length.min(last.saturating_add(1)),
        (Ok(first), Err(_)) if last.is_empty() => first..length,
        (Err(_), Ok(last)) if first.is_empty() => length.saturating_sub(last)..length,
        _ => return Ok(None),
    };
    if range.start >= length { Err(Refusal::range()) } else { Ok(Some(range)) }
}

fn content(stored: &Stored, range: Option<Range<usize>>, fault: Option<Effect>) -> Response<Body> {
    let length = stored.content.len();
    let bytes = range.clone().map_or_else(|| stored.content.clone(), |range| stored.content.slice(range));
    let mut response = match fault {
        Some(Effect::Truncate(kept)) => {
            let length = bytes.len();
            let sent = stream::iter([Ok(Frame::data(bytes.slice(..kept.min(length))))]);
            // The bytes above are sent before the connection breaks.
            let broken = async {
                tokio::task::yield_now().await;
                Err(std::io::Error::other("cut"))
            };
            let frames = sent.chain(stream::once(broken));
            let mut response = Response::new(BodyExt::boxed_unsync(StreamBody::new(frames)));
            response.headers_mut().insert(http::header::CONTENT_LENGTH, HeaderValue::from(length));
            response
        }
        _ => Response::new(Full::new(bytes).map_err(|never| match never {}).boxed_unsync()),
    };
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    };
    let named = HeaderName::from_static;
    set(CONTENT_TYPE, stored.content_type.clone());
    set(ETAG, format!("\"{}\"", stored.generation));
    set(named("x-goog-generation"), stored.generation.to_string());
    set(named("x-goog-metageneration"), stored.metageneration.to_string());
    set(named("x-goog-storage-class"), "STANDARD".to_owned());
    set(named("x-goog-stored-content-length"), length.to_string());
    set(named("x-goog-stored-content-encoding"), "identity".to_owned());
    let (crc32c, md5) = (stored.crc32c.to_be_bytes(), stored.md5);
    set(named("x-goog-hash"), format!("crc32c={},md5={}", BASE64_STANDARD.encode(crc32c), BASE64_STANDARD.encode(md5)));
    for (key, value) in &stored.metadata {
        if let Ok(name) = HeaderName::try_from(format!("x-goog-meta-{key}")) {
            set(name, value.clone());
        }
    }
    if let Some(range) = range {
        set(CONTENT_RANGE, format!("bytes {}-{}/{length}", range.start, range.end - 1));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    response
}

/// Resource of an object in the JSON API.
pub(crate) fn resource(service: &Service, bucket: &str, stored: &Stored) -> Value {
    let Stored { name, generation, .. } = stored;
    let link = format!("{}/download/storage/v1/b/{bucket}/o/{}", service.endpoint, encoded(name));
    let mut resource = json!({
        "kind": "storage#object",
        "id": format!("{bucket}/{name}/{generation}"),
        "name": name,
        "bucket": bucket,
        "generation": generation.to_string(),
        "metageneration": stored.metageneration.to_string(),
        "contentType": stored.content_type,
        "storageClass": "STANDARD",
        "size": stored.content.len().to_string(),
        "md5Hash": BASE64_STANDARD.encode(stored.md5),
        "crc32c": BASE64_STANDARD.encode(stored.crc32c.to_be_bytes()),
        "etag": generation.to_string(),
        "timeCreated": stored.created.to_string(),
        "timeFinalized": stored.created.to_string(),
        "timeStorageClassUpdated": stored.created.to_string(),
        "updated": stored.updated.to_string(),
        "mediaLink": format!("{link}?generation={generation}&alt=media"),
        "selfLink": format!("{}/storage/v1/b/{bucket}/o/{}", service.endpoint, encoded(name)),
    });
    if !stored.metadata.is_empty() {
        resource["metadata"] = json!(stored.metadata);
    }
    if !stored.content_encoding.is_empty() {
        resource["contentEncoding"] = json!(stored.content_encoding);
    }
    resource
}

/// Parses the JSON of an upload: the name, if any, and the attributes of the object.
pub(crate) fn described(body: &[u8]) -> Result<(Option<String>, Attributes), Refusal> {
    let body: Value = if body.is_empty() { json!({}) } else { serde_json::from_slice(body).unwrap_or(Value::Null) };
    let body = body.as_object().ok_or_else(|| Refusal::invalid("Parse Error"))?;
    let text = |key: &str| body.get(key).and_then(Value::as_str).map(str::to_owned);
    let metadata = body.get("metadata").and_then(Value::as_object).into_iter().flatten();
    let attributes = Attributes {
        content_type: text("contentType").unwrap_or_default(),
        content_encoding: text("contentEncoding").unwrap_or_default(),
        metadata: metadata.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
        crc32c: text("crc32c").map(|text| crc32c_of(&text)).transpose()?,
        md5: text("md5Hash").map(|text| base64_of(&text)).transpose()?,
    };
    Ok((text("name"), attributes))
}

pub(crate) fn crc32c_of(text: &str) -> Result<u32, Refusal> {
    let bytes = base64_of(text)?.try_into().map_err(|_| Refusal::invalid("Invalid crc32c."))?;
    Ok(u32::from_be_bytes(bytes))
}

pub(crate) fn base64_of(text: &str) -> Result<Vec<u8>, Refusal> {
    BASE64_STANDARD.decode(text).map_err(|_| Refusal::invalid("Invalid base64."))
}

pub(crate) fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::default().map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}

pub(crate) fn send(code: StatusCode, body: &Value) -> Response<Body> {
    let mut response = status(code);
    *response.body_mut() = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
    let json = HeaderValue::from_static("application/json; charset=UTF-8");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

pub(crate) fn refuse(refusal: &Refusal) -> Response<Body> {
    let code = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if code == StatusCode::NOT_MODIFIED { status(code) } else { send(code, &refusal.json()) }
}

/// Decodes a segment of a path; `+` is kept.
fn decoded(segment: &str) -> String {
    let plain = segment.replace('+', "%2B");
    url::form_urlencoded::parse(format!("k={plain}").as_bytes())
        .next()
        .map_or_else(String::new, |(_, v)| v.into_owned())
}

fn encoded(name: &str) -> String {
    let byte = |b: u8| match b {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(b).to_string(),
        _ => format!("%{b:02X}"),
    };
    name.bytes().map(byte).collect()
}

/// Returns true if a request begins an upload; otherwise it continues one.
pub(crate) fn is_start(call: &Call) -> bool {
    call.parts.method == Method::POST && call.parameter("upload_id").is_empty()
}
