//! Uploads in pieces, over the service's resumable sessions. Bytes that have arrived stay, so a broken connection costs one piece. An
//! upload without progress is ended, and the next call that writes the same content resumes it.

use super::calls::GcsCalls;
use super::error::CallError;
use super::{Address, LABEL};
use crate::bucket::{Body, Generation, Uploading};
use crate::jobs::without_keys;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use google_cloud_auth::credentials::CacheableResource;
use reqwest::header::{CONTENT_RANGE, CONTENT_TYPE, LOCATION, RANGE};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use std::io::Read as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// Default address of the service.
const SERVICE: &str = "https://storage.googleapis.com";
/// First and smallest size of a piece, in bytes. All pieces but the last have to be multiples of it.
const QUANTUM: u64 = 256 << 10;
/// Largest size of a piece, in bytes: a piece is held in memory.
const LARGEST: u64 = 4 << 20;
/// Target time of a piece: long enough that the round trip costs little, short enough to show progress.
const AIM: Duration = Duration::from_secs(2);
/// Maximum number of sessions that are remembered after a failed call; the service keeps each for a week.
const SESSIONS: usize = 8;
/// Maximum number of bytes that are read of an answer.
const MAX_ANSWER: usize = 64 << 10;
/// Time after which an upload is reported in the log, once.
const SLOW: Duration = Duration::from_secs(10);

/// All uploads of a bucket.
#[derive(Default)]
pub(super) struct Uploads {
    client: OnceCell<Client>,
    inner: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    under_way: Vec<Arc<Mutex<Progress>>>,
    sessions: Vec<(SessionKey, String)>,
}

/// Key of a session: another content or another precondition needs another session.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SessionKey {
    name: String,
    expected: Generation,
    size: u64,
    crc32c: u32,
}

struct Progress {
    name: String,
    size: u64,
    arrived: u64,
    began: Instant,
}

/// One object to write.
pub(super) struct Upload<'a> {
    pub(super) calls: &'a GcsCalls,
    pub(super) uploads: &'a Uploads,
    pub(super) address: &'a Address,
    /// Name below the prefix.
    pub(super) name: &'a str,
    pub(super) expected: Generation,
    pub(super) body: &'a Body,
    pub(super) label: &'a str,
    pub(super) size: u64,
}

/// Known state of a session.
struct Session {
    url: String,
    arrived: u64,
    /// True if `arrived` may be out of date, so that the service has to be asked.
    unsure: bool,
}

/// The service's reply to a request of a session.
enum UploadReply {
    /// The object is stored.
    Stored(Generation),
    /// Number of bytes that have arrived.
    Arrived(u64),
}

/// Removes an upload from the list when it ends in any way.
struct Shown<'a>(&'a Uploads, Arc<Mutex<Progress>>);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.0.lock().under_way.retain(|shown| !Arc::ptr_eq(shown, &self.1));
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, Sessions> {
        locked(&self.inner)
    }

    /// Returns the uploads in progress.
    pub(super) fn under_way(&self) -> Vec<Uploading> {
        let shown = |progress: &Arc<Mutex<Progress>>| {
            let Progress { name, size, arrived, began } = &*locked(progress);
            Uploading { name: name.clone(), size: *size, arrived: *arrived, took: began.elapsed() }
        };
        self.lock().under_way.iter().map(shown).collect()
    }

    fn show(&self, task: &Upload<'_>) -> Shown<'_> {
        let progress = Progress { name: task.name.to_owned(), size: task.size, arrived: 0, began: Instant::now() };
        let progress = Arc::new(Mutex::new(progress));
        self.lock().under_way.push(Arc::clone(&progress));
        Shown(self, progress)
    }

    fn remember(&self, key: &SessionKey, url: &str) {
        let mut inner = self.lock();
        inner.sessions.retain(|(known, _)| known != key);
        if inner.sessions.len() == SESSIONS {
            inner.sessions.remove(0);
        }
        inner.sessions.push((key.clone(), url.to_owned()));
    }

    fn remove(&self, key: &SessionKey) {
        self.lock().sessions.retain(|(known, _)| known != key);
    }

    fn session(&self, key: &SessionKey) -> Option<Session> {
        let inner = self.lock();
        let (_, url) = inner.sessions.iter().find(|(known, _)| known == key)?;
        Some(Session { url: url.clone(), arrived: 0, unsure: true })
    }

    async fn client(&self, connect: Duration) -> Result<&Client, CallError> {
        let make = async || {
            // Certificates are read from disk.
            let build = move || {
                let builder = Client::builder().redirect(reqwest::redirect::Policy::none());
                builder.connect_timeout(connect).build()
            };
            let built = tokio::task::spawn_blocking(build).await.map_err(|e| CallError::Unanswered(e.to_string()))?;
            built.map_err(|e| CallError::Refused(format!("no client for uploads: {e}")))
        };
        self.client.get_or_try_init(make).await
    }
}

impl Upload<'_> {
    /// Writes the object, and retries as long as more of it arrives.
    pub(super) async fn run(&self) -> Result<Generation, CallError> {
        let limits = self.calls.limits();
        let crc32c = checksum(self.body).await?;
        let key = SessionKey { name: self.name.to_owned(), expected: self.expected, size: self.size, crc32c };
        let shown = self.uploads.show(self);
        let began = Instant::now();
        let last = began + limits.call + Duration::from_secs(self.size / limits.slowest.max(1));
        let mut session = self.uploads.session(&key);
        let (mut failures, mut waits, mut piece) = (0, limits.waits(), QUANTUM);
        let (mut most, mut told, mut doubt) = (0, false, false);
        loop {
            let step = tokio::time::timeout(limits.stall, self.step(&key, &mut session, &mut piece)).await;
            let answer = match step.unwrap_or_else(|_| Err(CallError::timed_out(limits.stall))) {
                Ok(Some(generation)) => {
                    self.uploads.remove(&key);
                    return Ok(generation);
                }
                Ok(None) => {
                    let arrived = session.as_ref().map_or(0, |session| session.arrived);
                    locked(&shown.1).arrived = arrived;
                    if arrived > most {
                        (most, failures, waits) = (arrived, 0, limits.waits());
                    }
                    if !told && began.elapsed() >= SLOW {
                        told = true;
                        let (name, size) = (without_keys(self.name), self.size);
                        tracing::warn!(name, size, arrived, "the way to the bucket is slow: the upload goes on");
                    }
                    continue;
                }
                Err(answer) => answer,
            };
            if !answer.is_transient() {
                self.uploads.remove(&key);
                return Err(if doubt { answer.after_unknown_outcome() } else { answer });
            }
            doubt |= answer.leaves_outcome_unknown();
            (failures, piece) = (failures + 1, QUANTUM);
            let wait = waits.next().unwrap_or(limits.longest_wait);
            if failures >= limits.attempts || Instant::now() + wait >= last {
                return Err(if doubt { answer.after_unknown_outcome() } else { answer });
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Sends one request: begins a session, asks for its progress, or sends a piece. Returns the generation once the object is stored.
    async fn step(
        &self,
        key: &SessionKey,
        session: &mut Option<Session>,
        piece: &mut u64,
    ) -> Result<Option<Generation>, CallError> {
        let Some(known) = session else {
            let url = self.begin(key.crc32c).await?;
            self.uploads.remember(key, &url);
            *session = Some(Session { url, arrived: 0, unsure: false });
            return Ok(None);
        };
        let began = Instant::now();
        let (from, asks) = (known.arrived, known.unsure);
        // Set before the request is sent: this future may be dropped while it waits.
        known.unsure = true;
        let said = if asks { self.query_progress(&known.url).await } else { self.send(&known.url, from, *piece).await };
        match said {
            Ok(UploadReply::Stored(generation)) => Ok(Some(generation)),
            Ok(UploadReply::Arrived(arrived)) if arrived <= self.size => {
                (known.arrived, known.unsure) = (arrived, false);
                if !asks {
                    let share = AIM.as_secs_f64() / began.elapsed().as_secs_f64().max(0.001);
                    let next = (arrived.saturating_sub(from) as f64 * share) as u64;
                    *piece = (next / QUANTUM * QUANTUM).clamp(QUANTUM, LARGEST);
                }
                Ok(None)
            }
            Ok(UploadReply::Arrived(_)) => {
                Err(CallError::Unanswered("more is said to have arrived than there is".into()))
            }
            // The service has lost the session: a new one starts over.
            Err(CallError::Absent | CallError::Gone) => {
                self.uploads.remove(key);
                *session = None;
                Err(CallError::Unanswered("the upload's session is lost; it starts over".into()))
            }
            Err(answer) => Err(answer),
        }
    }

    async fn request(&self, method: Method, url: &str) -> Result<RequestBuilder, CallError> {
        let client = self.uploads.client(self.calls.limits().attempt).await?;
        let headers = self.calls.credentials().await?.headers(http::Extensions::new()).await;
        let headers = match headers {
            Ok(CacheableResource::New { data, .. }) => data,
            // Not reached: the request names no earlier headers that could be unmodified.
            Ok(CacheableResource::NotModified) => http::HeaderMap::new(),
            Err(error) if error.is_transient() => return Err(CallError::Unanswered(error.to_string())),
            Err(error) => return Err(CallError::Unauthenticated(error.to_string())),
        };
        Ok(client.request(method, url).headers(headers))
    }

    async fn begin(&self, crc32c: u32) -> Result<String, CallError> {
        let service = self.calls.endpoint().unwrap_or(SERVICE);
        let mut url = reqwest::Url::parse(&format!("{service}/upload/storage/v1/b/{}/o", self.address.bucket()))
            .map_err(|e| CallError::Refused(format!("no address to upload to: {e}")))?;
        url.query_pairs_mut()
            .append_pair("uploadType", "resumable")
            .append_pair("name", &format!("{}{}", self.address.prefix(), self.name))
            .append_pair("ifGenerationMatch", &self.expected.to_string());
        // With the checksum sent in advance, the service refuses a content that was damaged on the way.
        let about = json!({
            "contentType": "application/octet-stream",
            "metadata": { LABEL: self.label },
            "crc32c": BASE64_STANDARD.encode(crc32c.to_be_bytes()),
        });
        let request = self.request(Method::POST, url.as_str()).await?;
        let request = request.header(CONTENT_TYPE, "application/json").body(about.to_string());
        let response = request.send().await.map_err(|error| lost(&error))?;
        let location = response.headers().get(LOCATION).and_then(|url| url.to_str().ok()).map(str::to_owned);
        match location {
            Some(url) if response.status().is_success() => Ok(url),
            _ => match parse_reply(response).await.map_err(CallError::of_bucket)? {
                UploadReply::Stored(_) | UploadReply::Arrived(_) => {
                    Err(CallError::Unanswered("the answer names no upload session".into()))
                }
            },
        }
    }

    /// Asks for the progress of a session.
    async fn query_progress(&self, url: &str) -> Result<UploadReply, CallError> {
        let request = self.request(Method::PUT, url).await?;
        let request = request.header(CONTENT_RANGE, format!("bytes */{}", self.size)).body(Bytes::new());
        parse_reply(request.send().await.map_err(|error| lost(&error))?).await
    }

    async fn send(&self, url: &str, from: u64, piece: u64) -> Result<UploadReply, CallError> {
        let length = piece.min(self.size - from);
        if length == 0 {
            // All bytes have arrived, but the object is not stored yet: the question completes it, too.
            return self.query_progress(url).await;
        }
        let bytes = read(self.body, from, length).await?;
        let range = format!("bytes {from}-{}/{}", from + length - 1, self.size);
        let request = self.request(Method::PUT, url).await?.header(CONTENT_RANGE, range).body(bytes);
        parse_reply(request.send().await.map_err(|error| lost(&error))?).await
    }
}

/// Error of a request without an answer.
fn lost(error: &reqwest::Error) -> CallError {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(inner) = next {
        text = format!("{text}: {inner}");
        next = inner.source();
    }
    CallError::Unanswered(text)
}

/// Parses an answer of the session.
async fn parse_reply(mut response: Response) -> Result<UploadReply, CallError> {
    let status = response.status();
    if status == StatusCode::PERMANENT_REDIRECT {
        let Some(range) = response.headers().get(RANGE) else { return Ok(UploadReply::Arrived(0)) };
        let last = range.to_str().ok().and_then(|range| range.strip_prefix("bytes=0-")?.parse::<u64>().ok());
        let last = last.ok_or_else(|| CallError::Unanswered("the answer names a range that is none".into()))?;
        return Ok(UploadReply::Arrived(last.saturating_add(1)));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| lost(&error))? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ANSWER {
            body.truncate(MAX_ANSWER);
            break;
        }
    }
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    if status.is_success() {
        let generation = value["generation"].as_str().and_then(|text| text.parse().ok()).filter(|number| *number > 0);
        return generation
            .map(UploadReply::Stored)
            .ok_or_else(|| CallError::Unanswered("the answer names no generation".into()));
    }
    let words =
        value["error"]["message"].as_str().map_or_else(|| String::from_utf8_lossy(&body).into_owned(), str::to_owned);
    Err(CallError::of_status(status.as_u16(), super::error::shortened(&words)))
}

/// Reads `length` bytes of the content.
async fn read(body: &Body, from: u64, length: u64) -> Result<Bytes, CallError> {
    let path = match body {
        Body::Bytes(bytes) => {
            let at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX).min(bytes.len());
            return Ok(bytes.slice(at(from)..at(from + length)));
        }
        Body::File(path) => path,
    };
    let reading = async {
        let mut file = tokio::fs::File::open(path).await?;
        file.seek(std::io::SeekFrom::Start(from)).await?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        file.read_exact(&mut bytes).await?;
        Ok::<_, std::io::Error>(bytes.into())
    };
    reading.await.map_err(|e| CallError::Refused(format!("cannot read {}: {e}", path.display())))
}

/// Computes the CRC32C of the whole content.
async fn checksum(body: &Body) -> Result<u32, CallError> {
    let body = body.clone();
    let sum = move || match body {
        Body::Bytes(bytes) => Ok(crc32c::crc32c(&bytes)),
        Body::File(path) => {
            let summing = || {
                let (mut file, mut buffer, mut sum) = (std::fs::File::open(&path)?, vec![0; 256 << 10], 0);
                loop {
                    let count = file.read(&mut buffer)?;
                    if count == 0 {
                        return Ok::<u32, std::io::Error>(sum);
                    }
                    sum = crc32c::crc32c_append(sum, buffer.get(..count).unwrap_or_default());
                }
            };
            summing().map_err(|e| CallError::Refused(format!("cannot read {}: {e}", path.display())))
        }
    };
    tokio::task::spawn_blocking(sum).await.unwrap_or_else(|e| Err(CallError::Unanswered(e.to_string())))
}
