//! Cloud Storage through the official client: HTTP for contents, gRPC for deletions, lists and settings. `upload` sends large contents
//! in pieces, because the client's own sessions can neither be ended for lack of progress nor be resumed.
//!
//! The client's own retries are off: they may take five minutes, and its HTTP calls have no time limit. Each call here has a few attempts
//! with a time limit each. `error` maps the errors of both transports to one type.

mod address;
mod calls;
mod check;
mod download;
mod error;
mod upload;

pub use address::Address;

use super::bucket::{Body, Bucket, BucketError, Generation, Listed, Object, Uploading, Written, is_name};
use async_trait::async_trait;
use backon::{BackoffBuilder, ExponentialBackoff};
use bytes::{Bytes, BytesMut};
use calls::{CallKind, GcsCalls, before};
use error::CallError;
use futures::future::BoxFuture;
use google_cloud_storage::builder::storage::{ReadObject, WriteObject};
use google_cloud_storage::read_object::ReadObjectResponse;
use google_cloud_storage::streaming_source::StreamingSource;
use jiff::Timestamp;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use upload::{Upload, Uploads};

/// Custom metadata key of an object's label.
const LABEL: &str = "tidelock-label";
/// Most bytes that one read loads into memory.
const MAX_READ: u64 = 1 << 30;
/// Contents smaller than this (bytes) are never sent in pieces: latency determines their time, not bandwidth.
const SMALLEST_UPLOAD: u64 = 16 << 10;
/// Pages of one list (ten million objects).
const MAX_PAGES: usize = 10_000;
/// Fields of an object that a list requests.
const LISTED_FIELDS: [&str; 5] = ["name", "generation", "size", "create_time", "metadata"];

/// Source of the credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Application Default Credentials, loaded at the first call: on Google Cloud, the service account.
    ApplicationDefault,
    /// No credentials: for a double of the service.
    Anonymous,
}

/// Rights of the account. They decide what a refusal can mean, and what the operator can do about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AccountRights {
    /// All on the objects below the prefix, as a server has them.
    #[default]
    Objects,
    /// To create and to read objects below this folder (`jobs/plans/`), as a job has them.
    Folder(String),
}

/// Time limits and sizes of calls.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Time limit of one attempt, without its bytes.
    pub attempt: Duration,
    /// Time limit of all attempts of one call (one page of a list), without its bytes.
    pub call: Duration,
    /// Lowest rate, in bytes a second, from which the additional time for an attempt's bytes follows.
    pub rate: u64,
    /// Maximum number of attempts of one call.
    pub attempts: u32,
    /// Wait before the second attempt, doubled before each further one. Jitter may make it twice as long.
    pub first_wait: Duration,
    /// Longest wait between two attempts, before jitter.
    pub longest_wait: Duration,
    /// Contents of at least this size (bytes) are sent in pieces, so that an upload resumes after an interruption. Smaller ones are sent so
    /// once the whole did not arrive in the time of an attempt.
    pub resumable: u64,
    /// Time without an arrived piece after which an upload in pieces counts as making no progress.
    pub stall: Duration,
    /// Lowest average rate, in bytes a second. An upload in pieces that takes longer than at this rate is ended.
    pub slowest: u64,
    /// Maximum number of objects in one page of a list.
    pub page: i32,
}

impl Limits {
    fn waits(&self) -> ExponentialBackoff {
        tidelock_retry::jittered(self.first_wait, self.longest_wait).build()
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            attempt: Duration::from_secs(4),
            call: Duration::from_secs(10),
            rate: 1 << 20,
            attempts: 4,
            first_wait: Duration::from_millis(50),
            longest_wait: Duration::from_millis(500),
            resumable: 8 << 20,
            stall: Duration::from_secs(20),
            slowest: 8 << 10,
            page: 1000,
        }
    }
}

/// Endpoint, credentials and limits of the service.
#[derive(Debug, Clone)]
pub struct Options {
    /// Endpoint to use instead of Google's, for both transports: `http://127.0.0.1:9000`.
    pub endpoint: Option<String>,
    /// Source of the credentials.
    pub access: Access,
    /// Time limits and sizes.
    pub limits: Limits,
    /// Rights of the account.
    pub rights: AccountRights,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            endpoint: None,
            access: Access::ApplicationDefault,
            limits: Limits::default(),
            rights: AccountRights::default(),
        }
    }
}

/// A bucket of Cloud Storage, below a prefix.
pub struct Gcs {
    address: Address,
    calls: GcsCalls,
    uploads: Uploads,
    /// Name of the small object with which `check` may try the permissions.
    probe: String,
}

impl Gcs {
    /// Returns the bucket without any request, neither for credentials nor to the bucket: the first call makes them.
    pub fn new(address: Address, options: Options) -> Gcs {
        let random = getrandom::u64().unwrap_or_default();
        Gcs {
            address,
            calls: GcsCalls::new(options),
            uploads: Uploads::default(),
            probe: format!("lock/probe-{random:016x}"),
        }
    }

    /// Returns the object's full name in the bucket.
    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.address.prefix())
    }

    fn check_name(&self, name: &str, doing: &str) -> Result<(), BucketError> {
        let refused = || self.error(doing, CallError::Refused("that is no name for an object".into()));
        if is_name(name) { Ok(()) } else { Err(refused()) }
    }

    fn error(&self, doing: &str, answer: CallError) -> BucketError {
        answer.into_error(&self.address, self.calls.rights(), doing)
    }

    /// Reads an object up to more than `most` bytes; `None` after a 404.
    async fn read_within(&self, name: &str, most: u64, doing: &str) -> Result<Option<Object>, BucketError> {
        self.check_name(name, doing)?;
        let attempt = |end| -> BoxFuture<'_, _> {
            Box::pin(async move {
                let storage = before(end, self.calls.storage()).await?;
                self.read(storage.read_object(self.address.resource(), self.full(name)), most, end).await
            })
        };
        match self.calls.run(CallKind::Get, 0, attempt).await {
            Ok(object) => Ok(Some(object)),
            Err(CallError::Absent) => Ok(None),
            Err(answer) => Err(self.unread(doing, answer)),
        }
    }

    /// Returns the error of a read. To an account that may not list, the service answers 403 for an object that does not exist.
    fn unread(&self, doing: &str, answer: CallError) -> BucketError {
        let is_denial = matches!(answer, CallError::PermissionDenied(_));
        match self.error(doing, answer) {
            BucketError::Refused { location, doing, reason }
                if is_denial && matches!(self.calls.rights(), AccountRights::Folder(_)) =>
            {
                BucketError::Hidden { location, doing, reason }
            }
            error => error,
        }
    }

    /// Checks after a 404 that the bucket exists, so that only the object is absent. Both cases have the same status, but a list fails
    /// with it only if there is no such bucket.
    async fn is_absent(&self, name: &str, doing: &str) -> Result<(), BucketError> {
        let attempt = |end| -> BoxFuture<'_, _> { Box::pin(before(end, self.page(name, "", "", Some(1)))) };
        let listed = self.calls.run(CallKind::List, 0, attempt).await;
        listed.map(drop).map_err(|answer| self.error(doing, answer))
    }

    /// Writes the object in one request.
    async fn write(&self, name: &str, expected: Generation, body: &Body, label: &str) -> Result<i64, CallError> {
        let storage = self.calls.storage().await?;
        let (bucket, name) = (self.address.resource(), self.full(name));
        match body {
            Body::Bytes(bytes) => send(storage.write_object(bucket, name, bytes.clone()), expected, label).await,
            Body::File(path) => {
                let unreadable = |e| CallError::Refused(format!("cannot read {}: {e}", path.display()));
                let file = tokio::fs::File::open(path).await.map_err(unreadable)?;
                send(storage.write_object(bucket, name, file), expected, label).await
            }
        }
    }

    /// Reads a whole object; of one with more than `most` bytes only the beginning, which has more than `most` bytes too.
    async fn read(&self, request: ReadObject, most: u64, end: Instant) -> Result<Object, CallError> {
        let mut response = before(end, async { request.send().await.map_err(|e| CallError::from_error(&e)) }).await?;
        let generation = response.object().generation;
        let size = u64::try_from(response.object().size).unwrap_or_default();
        let size = size.min(most);
        let end = end + self.calls.time_for(size);
        let bytes = before(end, collect(&mut response, size, most)).await?;
        Ok(Object { generation, bytes })
    }

    /// Reads one page of a list, at most `most` objects, and the token of the next page, which is empty at the end.
    async fn page(
        &self,
        prefix: &str,
        after: &str,
        token: &str,
        most: Option<i32>,
    ) -> Result<(Vec<Listed>, String), CallError> {
        let size = self.calls.limits().page;
        let control = self.calls.control().await?;
        let request = control
            .list_objects()
            .set_parent(self.address.resource())
            .set_prefix(self.full(prefix))
            .set_page_size(most.map_or(size, |most| most.min(size)))
            .set_page_token(token)
            .set_read_mask(google_cloud_wkt::FieldMask::default().set_paths(LISTED_FIELDS));
        let request = if after.is_empty() { request } else { request.set_lexicographic_start(self.full(after)) };
        let page = request.send().await.map_err(|e| CallError::from_error(&e).of_bucket())?;
        let listed = |object: google_cloud_storage::model::Object| {
            let name = object.name.strip_prefix(self.address.prefix())?.to_owned();
            let created = object.create_time?;
            Some(Listed {
                name,
                generation: object.generation,
                size: u64::try_from(object.size).unwrap_or_default(),
                created: Timestamp::new(created.seconds(), created.nanos()).ok()?,
                label: object.metadata.get(LABEL).cloned().unwrap_or_default(),
            })
        };
        let count = page.objects.len();
        let objects: Vec<Listed> = page.objects.into_iter().filter_map(listed).collect();
        // An object that is left out here would be taken for absent.
        if objects.len() != count {
            return Err(CallError::Unanswered("the list names an object without its time or prefix".into()));
        }
        Ok((objects.into_iter().filter(|object| object.name.as_str() > after).collect(), page.next_page_token))
    }
}

async fn send<S>(request: WriteObject<S>, expected: i64, label: &str) -> Result<i64, CallError>
where
    S: StreamingSource + Send + Sync + 'static,
    <S as StreamingSource>::Error: std::error::Error + Send + Sync + 'static,
{
    let request = request
        .set_if_generation_match(expected)
        .set_content_type("application/octet-stream")
        .set_metadata([(LABEL, label)]);
    let sent = request.with_resumable_upload_threshold(usize::MAX).send_buffered().await;
    match sent.map_err(|e| CallError::from_error(&e).of_bucket())?.generation {
        generation if generation > 0 => Ok(generation),
        _ => Err(CallError::Unanswered("the answer names no generation".into())),
    }
}

async fn collect(response: &mut ReadObjectResponse, size: u64, most: u64) -> Result<Bytes, CallError> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = response.next().await {
        let chunk = chunk.map_err(|e| CallError::from_error(&e))?;
        if bytes.is_empty() {
            bytes.reserve(usize::try_from(size).unwrap_or_default().max(chunk.len()));
        }
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > most {
            break;
        }
    }
    Ok(bytes.freeze())
}

#[async_trait]
impl Bucket for Gcs {
    fn location(&self) -> &str {
        self.address.text()
    }

    async fn check(&self) -> Result<Vec<String>, BucketError> {
        check::check(self).await
    }

    async fn get(&self, name: &str) -> Result<Option<Object>, BucketError> {
        let doing = format!("reading {name}");
        match self.read_within(name, MAX_READ, &doing).await? {
            None => self.is_absent(name, &doing).await.map(|()| None),
            Some(object) if object.bytes.len() as u64 > MAX_READ => {
                let why = format!("it is larger than {MAX_READ} bytes; read it in ranges");
                Err(self.error(&doing, CallError::Refused(why)))
            }
            object => Ok(object),
        }
    }

    async fn get_within(&self, name: &str, most: usize) -> Result<Option<Object>, BucketError> {
        self.read_within(name, (most as u64).min(MAX_READ), &format!("reading {name}")).await
    }

    async fn get_range(
        &self,
        name: &str,
        generation: Generation,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, BucketError> {
        let doing = format!("reading {name}");
        self.check_name(name, &doing)?;
        match self.download(name, generation, &range).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(CallError::Range) => Ok(Some(Bytes::new())),
            Err(CallError::Absent) => self.is_absent(name, &doing).await.map(|()| None),
            Err(CallError::Precondition) => Ok(None),
            Err(answer) => Err(self.error(&doing, answer)),
        }
    }

    async fn put(&self, name: &str, expected: Generation, body: Body, label: &str) -> Result<Written, BucketError> {
        let doing = format!("writing {name}");
        self.check_name(name, &doing)?;
        let size = match &body {
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::File(path) => match tokio::fs::metadata(path).await {
                Ok(metadata) => metadata.len(),
                Err(e) => {
                    let reason = format!("cannot read {}: {e}", path.display());
                    return Err(self.error(&doing, CallError::Refused(reason)));
                }
            },
        };
        let body = &body;
        let in_pieces = AtomicBool::new(size >= self.calls.limits().resumable);
        let in_pieces = &in_pieces;
        let (calls, uploads, address) = (&self.calls, &self.uploads, &self.address);
        let attempt = |end| -> BoxFuture<'_, _> {
            Box::pin(async move {
                if in_pieces.load(Ordering::Relaxed) {
                    return Upload { calls, uploads, address, name, expected, body, label, size }.run().await;
                }
                let written = before(end, self.write(name, expected, body, label)).await;
                if matches!(written, Err(CallError::Unanswered(_))) && Instant::now() >= end && size >= SMALLEST_UPLOAD
                {
                    in_pieces.store(true, Ordering::Relaxed);
                }
                written
            })
        };
        match self.calls.run(CallKind::Put, size, attempt).await {
            Ok(generation) => Ok(Written::Stored(generation)),
            Err(CallError::Precondition) => Ok(Written::Refused),
            Err(answer) => Err(self.error(&doing, answer)),
        }
    }

    async fn delete(&self, name: &str, generation: Generation) -> Result<bool, BucketError> {
        let doing = format!("deleting {name}");
        self.check_name(name, &doing)?;
        let attempt = |end| -> BoxFuture<'_, _> {
            let request = async move {
                let control = self.calls.control().await?;
                let request = control.delete_object().set_bucket(self.address.resource()).set_object(self.full(name));
                request.set_if_generation_match(generation).send().await.map_err(|e| CallError::from_error(&e))
            };
            Box::pin(before(end, request))
        };
        match self.calls.run(CallKind::Delete, 0, attempt).await {
            Ok(()) => Ok(true),
            Err(CallError::Absent) => self.is_absent(name, &doing).await.map(|()| true),
            Err(CallError::Precondition) => Ok(false),
            Err(answer) => Err(self.error(&doing, answer)),
        }
    }

    async fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>, BucketError> {
        let doing = || format!("listing {prefix}");
        let mut all = Vec::new();
        let mut token = String::new();
        for _ in 0..MAX_PAGES {
            let from = &token;
            let attempt = |end| -> BoxFuture<'_, _> { Box::pin(before(end, self.page(prefix, after, from, None))) };
            let page = self.calls.run(CallKind::List, 0, attempt).await;
            let (objects, next) = page.map_err(|answer| self.error(&doing(), answer))?;
            all.extend(objects);
            if next.is_empty() {
                return Ok(all);
            }
            token = next;
        }
        Err(self.error(&doing(), CallError::Refused(format!("there are more than {MAX_PAGES} pages of objects"))))
    }

    async fn list_some(&self, prefix: &str, after: &str, most: usize) -> Result<Vec<Listed>, BucketError> {
        let (mut token, most) = (String::new(), i32::try_from(most).unwrap_or(i32::MAX));
        // More pages may follow an empty one.
        for _ in 0..MAX_PAGES {
            let from = &token;
            let attempt =
                |end| -> BoxFuture<'_, _> { Box::pin(before(end, self.page(prefix, after, from, Some(most)))) };
            let page = self.calls.run(CallKind::List, 0, attempt).await;
            let (objects, next) = page.map_err(|answer| self.error(&format!("listing {prefix}"), answer))?;
            if !objects.is_empty() || next.is_empty() {
                return Ok(objects);
            }
            token = next;
        }
        Ok(Vec::new())
    }

    fn requests(&self) -> Vec<(&'static str, u64)> {
        self.calls.requests()
    }

    fn uploads(&self) -> Vec<Uploading> {
        self.uploads.under_way()
    }
}

#[cfg(test)]
mod tests;
