//! Uploads: in one request (media, multipart) and resumable.

use super::accounts::{IamTarget, StorageCaller};
use super::faults::{Effect, Operation};
use super::json::{self, Call, base64_of, crc32c_of, described};
use super::refusal::Refusal;
use super::state::{Attributes, Conditions, Content, Stored};
use super::{Body, Service};
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_RANGE, CONTENT_TYPE, LOCATION, RANGE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Size in bytes; all chunks but the last one are multiples of it.
const QUANTUM: usize = 256 << 10;
/// Bytes at the start and at the end of a multipart body in which the first and the last delimiter must be.
const TAIL: usize = 2 << 10;

/// A resumable upload.
#[derive(Debug)]
struct Session {
    /// Who began it.
    caller: StorageCaller,
    bucket: String,
    name: String,
    attributes: Attributes,
    conditions: Conditions,
    received: BytesMut,
    done: Option<Stored>,
}

/// All resumable uploads that are open or done.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    inner: Mutex<HashMap<String, Session>>,
    begun: AtomicU64,
}

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, id: &str) -> String {
        self.lock().get(id).map(|session| session.name.clone()).unwrap_or_default()
    }
}

pub(crate) async fn route(call: Call, bucket: String) -> Result<Response<Body>, Refusal> {
    if !json::is_start(&call) {
        return proceed(call).await;
    }
    match call.parameter("uploadType") {
        "media" => {
            let content_type = call.header(CONTENT_TYPE).unwrap_or("application/octet-stream").to_owned();
            let attributes = Attributes { content_type, ..Attributes::default() };
            let (name, body) = (call.parameter("name").to_owned(), call.body.clone());
            whole(call, bucket, name, body, attributes).await
        }
        "multipart" => {
            let (said, attributes, content) = parts_of(&call)?;
            let name = Some(call.parameter("name").to_owned()).filter(|name| !name.is_empty()).or(said);
            whole(call, bucket, name.unwrap_or_default(), content, attributes).await
        }
        "resumable" => start(call, bucket).await,
        other => Err(Refusal::invalid(format!("Invalid upload type: {other}"))),
    }
}

async fn whole(
    call: Call,
    bucket: String,
    name: String,
    body: Bytes,
    mut attributes: Attributes,
) -> Result<Response<Body>, Refusal> {
    let conditions = call.conditions()?;
    hashes_of_header(&call, &mut attributes)?;
    let (service, caller, object) = (call.service.clone(), call.caller.clone(), name.clone());
    let effect = async move |_| {
        let content = Content::of(body).await?;
        let stored = service.state().insert(&caller, &bucket, &object, content, attributes, conditions)?;
        Ok(json::resource(&service, &bucket, &stored))
    };
    Ok(json::send(StatusCode::OK, &call.act(Operation::Insert, &name, effect).await?))
}

/// Reads the checksums of `x-goog-hash: crc32c=…,md5=…`.
fn hashes_of_header(call: &Call, attributes: &mut Attributes) -> Result<(), Refusal> {
    for hash in call.header("x-goog-hash").unwrap_or_default().split(',') {
        match hash.trim().split_once('=') {
            Some(("crc32c", text)) => attributes.crc32c = Some(crc32c_of(text)?),
            Some(("md5", text)) => attributes.md5 = Some(base64_of(text)?),
            _ => {}
        }
    }
    Ok(())
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Returns the headers of a part and the offset of its content.
fn part(bytes: &[u8]) -> Option<(String, usize)> {
    let crlf = find(bytes, b"\r\n\r\n").map(|at| (at, at + 4));
    let lf = find(bytes, b"\n\n").map(|at| (at, at + 2));
    let (end, content) = [crlf, lf].into_iter().flatten().min()?;
    Some((String::from_utf8_lossy(bytes.get(..end)?).to_ascii_lowercase(), content))
}

/// Returns name and attributes of the first part, and the content of the second. The emulator (testbench/common.py `parse_multipart`) fails
/// with status 500 if the second has no content type. The service requires none and the official client sends none, so the double accepts
/// that.
fn parts_of(call: &Call) -> Result<(Option<String>, Attributes, Bytes), Refusal> {
    let content_type = call.header(CONTENT_TYPE).unwrap_or_default();
    let boundary = content_type.split_once("boundary=").filter(|_| content_type.starts_with("multipart/related"));
    let (_, boundary) = boundary.ok_or_else(|| Refusal::invalid("multipart/related with a boundary is needed"))?;
    let boundary = boundary.split(';').next().unwrap_or_default().trim().trim_matches(['"', '\'']);
    let delimiter = format!("--{boundary}");
    split(&call.body, delimiter.as_bytes()).unwrap_or_else(|| Err(Refusal::malformed()))
}

type Parsed = Result<(Option<String>, Attributes, Bytes), Refusal>;

/// Length without one line end of the body's kind: content may end with a carriage return of its own.
fn without_line_end(bytes: &[u8], line_end: &[u8]) -> usize {
    bytes.strip_suffix(line_end).unwrap_or(bytes).len()
}

fn split(body: &Bytes, delimiter: &[u8]) -> Option<Parsed> {
    let first = find(body.get(..TAIL.min(body.len()))?, delimiter)? + delimiter.len();
    let (_, offset) = part(body.get(first..)?)?;
    let json_at = first + offset;
    let json_end = json_at + find(body.get(json_at..)?, delimiter)?;
    let (said, mut attributes) = match described(body.get(json_at..json_end)?) {
        Ok(described) => described,
        Err(refusal) => return Some(Err(refusal)),
    };
    let second = json_end + delimiter.len();
    let (headers, offset) = part(body.get(second..)?)?;
    let media_at = second + offset;
    let tail = media_at.max(body.len().saturating_sub(TAIL));
    let media_end = tail + find(body.get(tail..)?, delimiter)?;
    let after = media_end + delimiter.len();
    // The service accepts checksums in a third part, the emulator no third part at all.
    if !body.get(after..)?.starts_with(b"--") {
        return Some(Err(Refusal::malformed()));
    }
    if attributes.content_type.is_empty() {
        let said = headers.lines().find_map(|line| line.strip_prefix("content-type:"));
        attributes.content_type = said.map_or_else(|| "application/octet-stream".to_owned(), |t| t.trim().to_owned());
    }
    // gsutil ends lines with a line feed only.
    let line_end: &[u8] = if body.get(second..)?.starts_with(b"\r\n") { b"\r\n" } else { b"\n" };
    let media_end = media_at + without_line_end(body.get(media_at..media_end)?, line_end);
    Some(Ok((said, attributes, body.slice(media_at..media_end))))
}

async fn start(call: Call, bucket: String) -> Result<Response<Body>, Refusal> {
    let (said, mut attributes) = described(&call.body)?;
    if attributes.content_type.is_empty() {
        attributes.content_type = call.header("x-upload-content-type").unwrap_or("application/octet-stream").to_owned();
    }
    let conditions = call.conditions()?;
    let name = Some(call.parameter("name").to_owned()).filter(|name| !name.is_empty()).or(said).unwrap_or_default();
    let (service, caller, object) = (call.service.clone(), call.caller.clone(), name.clone());
    let effect = async move |_| {
        service.state().bucket(&caller, "storage.objects.create", IamTarget::Object(&bucket, &object))?;
        let id = format!("upload-{}", service.uploads.begun.fetch_add(1, Ordering::Relaxed));
        let mut sessions = service.uploads.lock();
        let path = format!("{}/upload/storage/v1/b/{bucket}/o", service.endpoint);
        let received = BytesMut::new();
        let name = object;
        sessions.insert(id.clone(), Session { caller, bucket, name, attributes, conditions, received, done: None });
        Ok(format!("{path}?uploadType=resumable&upload_id={id}"))
    };
    let location = call.act(Operation::UploadStart, &name, effect).await?;
    let mut response = json::status(StatusCode::OK);
    let location = HeaderValue::try_from(location).map_err(|_| Refusal::invalid("Invalid bucket name."))?;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// `Content-Range` of a chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Chunk {
    /// Absent for a status request, and for the end of an upload whose bytes are all there.
    offset: Option<usize>,
    total: Option<usize>,
}

fn chunk_of(header: Option<&str>, length: usize) -> Result<Chunk, Refusal> {
    let wrong = || Refusal::invalid("Invalid Content-Range.");
    let Some(header) = header else { return Ok(Chunk { offset: Some(0), total: Some(length) }) };
    let (range, total) = header.strip_prefix("bytes ").and_then(|range| range.split_once('/')).ok_or_else(wrong)?;
    let total = if total == "*" { None } else { Some(total.parse().map_err(|_| wrong())?) };
    let Some((first, last)) = range.split_once('-') else {
        return if range == "*" && length == 0 { Ok(Chunk { offset: None, total }) } else { Err(wrong()) };
    };
    let offset: usize = first.parse().map_err(|_| wrong())?;
    if last != "*" && last.parse::<usize>().ok().and_then(|last| last.checked_add(1)) != offset.checked_add(length) {
        return Err(Refusal::invalid("The body is not as long as Content-Range says."));
    }
    Ok(Chunk { offset: Some(offset), total: if last == "*" { Some(offset + length) } else { total } })
}

/// Result of a chunk.
enum Progress {
    Partial(usize),
    Done(serde_json::Value),
}

async fn proceed(call: Call) -> Result<Response<Body>, Refusal> {
    let id = call.parameter("upload_id").to_owned();
    let chunk = chunk_of(call.header(CONTENT_RANGE), call.body.len())?;
    let operation = if chunk.offset.is_none() { Operation::UploadStatus } else { Operation::UploadChunk };
    let mut sums = Attributes::default();
    hashes_of_header(&call, &mut sums)?;
    let name = call.service.uploads.name(&id);
    let (service, body) = (call.service.clone(), call.body.clone());
    let effect = async move |fault| {
        if let Some(Effect::Cut(kept)) = fault {
            let kept = kept.min(body.len()) / QUANTUM * QUANTUM;
            receive(&service, &id, Chunk { total: None, ..chunk }, body.slice(..kept), Attributes::default()).await?;
            return Err(Refusal::fault(503));
        }
        receive(&service, &id, chunk, body, sums).await
    };
    Ok(match call.act(operation, &name, effect).await? {
        Progress::Done(resource) => json::send(StatusCode::OK, &resource),
        Progress::Partial(received) => incomplete(&call, received),
    })
}

fn incomplete(call: &Call, received: usize) -> Response<Body> {
    let mut response = json::status(StatusCode::PERMANENT_REDIRECT);
    if call.header("x-guploader-no-308") == Some("yes") {
        *response.status_mut() = StatusCode::OK;
        let name = HeaderName::from_static("x-http-status-code-override");
        response.headers_mut().insert(name, HeaderValue::from_static("308"));
    }
    if let Some(Ok(range)) = received.checked_sub(1).map(|last| HeaderValue::try_from(format!("bytes=0-{last}"))) {
        response.headers_mut().insert(RANGE, range);
    }
    response
}

/// Appends the new bytes of a chunk, and creates the object once all bytes are there.
async fn receive(
    service: &Service,
    id: &str,
    chunk: Chunk,
    body: Bytes,
    sums: Attributes,
) -> Result<Progress, Refusal> {
    let (caller, bucket, name, attributes, conditions, bytes) = {
        let mut sessions = service.uploads.lock();
        let session = sessions.get_mut(id).ok_or_else(|| Refusal::no_upload(id))?;
        if let Some(done) = &session.done {
            return Ok(Progress::Done(json::resource(service, &session.bucket, done)));
        }
        let have = session.received.len();
        if let Some(offset) = chunk.offset {
            let known =
                have.checked_sub(offset).ok_or_else(|| Refusal::invalid("Bytes before this chunk are missing."))?;
            if chunk.total != Some(offset + body.len()) && !body.len().is_multiple_of(QUANTUM) {
                return Err(Refusal::invalid("Chunks must be multiples of 256 KiB."));
            }
            session.received.extend_from_slice(body.get(known.min(body.len())..).unwrap_or_default());
        }
        if chunk.total != Some(session.received.len()) {
            return Ok(Progress::Partial(session.received.len()));
        }
        let mut attributes = session.attributes.clone();
        attributes.crc32c = sums.crc32c.or(attributes.crc32c);
        attributes.md5 = sums.md5.or(attributes.md5);
        let bytes = session.received.clone().freeze();
        (session.caller.clone(), session.bucket.clone(), session.name.clone(), attributes, session.conditions, bytes)
    };
    let content = Content::of(bytes).await?;
    let stored = service.state().insert(&caller, &bucket, &name, content, attributes, conditions);
    let mut sessions = service.uploads.lock();
    let stored = match stored {
        Ok(stored) => stored,
        Err(refusal) => {
            // The refusal is final: the session ends.
            if refusal.status != 429 {
                sessions.remove(id);
            }
            return Err(refusal);
        }
    };
    if let Some(session) = sessions.get_mut(id) {
        session.received = BytesMut::new();
        session.done = Some(stored.clone());
    }
    Ok(Progress::Done(json::resource(service, &bucket, &stored)))
}
