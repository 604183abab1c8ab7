//! Reads contents of a chain's objects in ranges of a few megabytes, several at once. Each byte is hashed and decompressed once.

mod output;

use super::WantedFile;
use super::part::{self, Part};
use crate::calls::{Calls, REMEDY};
use crate::pack::{DATABASE_PART, Invalid, Section};
use crate::{Hash, VaultError};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use output::{Output, OutputError};
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size and number of the requests that read contents.
#[derive(Clone, Copy)]
struct Reading {
    /// Bytes of one request. Smaller in tests, so that little content already needs several.
    range: u64,
    /// Concurrent requests; each holds up to `range` bytes in memory.
    at_once: usize,
}

/// Requests of a restore. Together they hold at most [`IN_FLIGHT`] bytes, however large the state is.
const FETCH: Reading = Reading { range: if cfg!(test) { 128 << 10 } else { 2 << 20 }, at_once: 8 };
/// Parts of a database that are read at once. Each is held in memory twice: as stored, and as decoded.
const PARTS_AT_ONCE: usize = 2;
/// Most bytes of contents that a restore holds in memory.
const IN_FLIGHT: u64 = 16 << 20;
const _: () = assert!(FETCH.range * FETCH.at_once as u64 <= IN_FLIGHT);
const _: () = assert!(2 * DATABASE_PART * PARTS_AT_ONCE as u64 <= IN_FLIGHT);
/// Requests of a verification. Fewer at once, because it runs beside the other work of a server and nobody waits for it.
const VERIFY: Reading = Reading { range: if cfg!(test) { 128 << 10 } else { 2 << 20 }, at_once: 2 };
/// Largest gap, in bytes, between two contents that are still read in one request.
const GAP: u64 = 64 << 10;
/// Contents of up to this many bytes are decoded and written on the async thread.
const ON_THE_SPOT: u64 = 64 << 10;

/// Location of each content.
pub(super) type Index = HashMap<Hash, ContentLocation>;

/// Location of one content: the index of the object in the chain, and the offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentLocation {
    part: usize,
    offset: u64,
}

/// One content to read, and the files to write it to.
struct ReadJob {
    place: ContentLocation,
    section: Section,
    files: Vec<WantedFile>,
}

/// Jobs that are read in one range, or one large content that is read in several.
struct Batch {
    part: usize,
    start: u64,
    end: u64,
    jobs: Vec<ReadJob>,
}

/// Indexes the contents of kept files by hash, each at its first location.
pub(super) fn index(parts: &[Part]) -> Index {
    let mut index = Index::new();
    for (number, part) in parts.iter().enumerate() {
        for (offset, section) in part.head.blobs() {
            index.entry(section.hash).or_insert(ContentLocation { part: number, offset });
        }
    }
    index
}

/// Writes the wanted files.
pub(super) async fn fetch(
    calls: &Calls,
    parts: &[Part],
    index: &Index,
    files: Vec<WantedFile>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), VaultError> {
    let mut wanted: HashMap<Hash, Vec<WantedFile>> = HashMap::new();
    let mut empty = Vec::new();
    for file in files {
        match index.contains_key(&file.hash) {
            true => wanted.entry(file.hash).or_default().push(file),
            false if file.hash == Hash::of(b"") => empty.push(file),
            false => return Err(absent(calls, &file)),
        }
    }
    let mut jobs = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        for (offset, section) in part.head.blobs() {
            let place = ContentLocation { part: number, offset };
            let first = index.get(&section.hash) == Some(&place);
            if let Some(files) = first.then(|| wanted.remove(&section.hash)).flatten() {
                jobs.push(ReadJob { place, section, files });
            }
        }
    }
    for file in &empty {
        output::empty(file).map_err(VaultError::Local)?;
    }
    run(calls, parts, jobs, FETCH, progress).await
}

/// Reads and verifies everything.
pub(super) async fn verify(calls: &Calls, parts: &[Part], progress: &(dyn Fn(u64) + Sync)) -> Result<(), VaultError> {
    let jobs = parts.iter().enumerate().flat_map(|(number, part)| {
        let sections = part.head.sections();
        sections.map(move |(offset, section)| ReadJob {
            place: ContentLocation { part: number, offset },
            section,
            files: Vec::new(),
        })
    });
    run(calls, parts, jobs.collect(), VERIFY, progress).await
}

/// Writes the database's parts to a new file.
pub(super) async fn database(calls: &Calls, base: &Part, to: &Path) -> Result<(), VaultError> {
    let unwritable = |error: std::io::Error| VaultError::Local(format!("cannot write {}: {error}", to.display()));
    let file = std::fs::File::options().write(true).create_new(true).open(to).map_err(unwritable)?;
    let file = std::sync::Arc::new(file);
    let mut position = 0;
    let parts = base.head.database().map(|(offset, section)| {
        let at = position;
        position += section.length;
        let file = file.clone();
        async move {
            let stored = base.range(calls, offset..offset + section.stored).await?;
            let raw = part::decode(section, stored).await.map_err(|bad| base.bad(calls, &bad))?;
            let write = move || file.write_all_at(&raw, at);
            let written = match section.length <= ON_THE_SPOT {
                true => write(),
                false => off_thread(write).await?,
            };
            written.map_err(unwritable)
        }
    });
    stream::iter(parts).buffer_unordered(PARTS_AT_ONCE).try_collect::<()>().await
}

/// Runs slow or blocking work on a thread of its own.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, VaultError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| VaultError::Local(format!("a thread that reads state ended: {error}")))
}

fn absent(calls: &Calls, file: &WantedFile) -> VaultError {
    VaultError::Damaged(format!(
        "{}: the content of {} ({}) is in no object of the state. Nothing was changed. {REMEDY}",
        calls.bucket.location(),
        file.path.display(),
        file.hash
    ))
}

/// Groups neighbouring jobs into batches of at most `range` bytes. A larger job is a batch of its own.
fn batches(jobs: Vec<ReadJob>, range: u64) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for job in jobs {
        let ContentLocation { part, offset } = job.place;
        let end = offset + job.section.stored;
        match batches.last_mut() {
            Some(last) if last.part == part && offset <= last.end + GAP && end - last.start <= range => {
                last.end = end;
                last.jobs.push(job);
            }
            _ => batches.push(Batch { part, start: offset, end, jobs: vec![job] }),
        }
    }
    batches
}

async fn run(
    calls: &Calls,
    parts: &[Part],
    jobs: Vec<ReadJob>,
    Reading { range, at_once }: Reading,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), VaultError> {
    let done = AtomicU64::new(0);
    let done = &done;
    let work = batches(jobs, range).into_iter().map(|batch| async move {
        let length: u64 = batch.jobs.iter().map(|job| job.section.length).sum();
        let part = &parts[batch.part];
        if batch.end - batch.start > range {
            for job in batch.jobs {
                large(calls, part, job, range).await?;
            }
        } else {
            together(calls, part, batch).await?;
        }
        progress(done.fetch_add(length, Ordering::Relaxed) + length);
        Ok(())
    });
    stream::iter(work).buffer_unordered(at_once).try_collect::<()>().await
}

impl OutputError {
    fn about(self, calls: &Calls, part: &Part) -> VaultError {
        match self {
            OutputError::Invalid(why) => part.bad(calls, &Invalid::Damaged(why)),
            OutputError::Local(text) => VaultError::Local(text),
        }
    }
}

/// Reads the contents of one range and writes them.
async fn together(calls: &Calls, part: &Part, batch: Batch) -> Result<(), VaultError> {
    let Batch { start, end, jobs, .. } = batch;
    let bytes = part.range(calls, start..end).await?;
    if bytes.len() as u64 != end - start {
        return Err(part.bad(calls, &Invalid::Damaged("its end is missing")));
    }
    let work = move || jobs.iter().try_for_each(|job| write(&bytes, start, job));
    let written = if end - start <= ON_THE_SPOT { work() } else { off_thread(work).await? };
    written.map_err(|trouble| trouble.about(calls, part))
}

fn write(bytes: &Bytes, start: u64, job: &ReadJob) -> Result<(), OutputError> {
    // Both are below the length of `bytes`: the batch spans its jobs.
    let place = |at: u64| usize::try_from(at - start).unwrap_or(usize::MAX).min(bytes.len());
    let stored = &bytes[place(job.place.offset)..place(job.place.offset + job.section.stored)];
    let mut output = Output::new(&job.section, &job.files)?;
    output.write(stored)?;
    output.finish()
}

/// Reads one content that is larger than a request. The next range is read while one is written.
async fn large(calls: &Calls, part: &Part, job: ReadJob, length: u64) -> Result<(), VaultError> {
    let start = job.place.offset;
    let end = start + job.section.stored;
    let range = |at: u64| part.range(calls, at..(at + length).min(end));
    let mut output = Output::new(&job.section, &job.files).map_err(|trouble| trouble.about(calls, part))?;
    let mut at = start;
    let mut bytes = range(at).await?;
    while at < end {
        let next = at + bytes.len() as u64;
        if next != (at + length).min(end) {
            return Err(part.bad(calls, &Invalid::Damaged("its end is missing")));
        }
        let writing = off_thread(move || output.write(&bytes).map(|()| output));
        let reading = async { if next < end { range(next).await } else { Ok(Bytes::new()) } };
        let (written, read) = futures::join!(writing, reading);
        output = written?.map_err(|trouble| trouble.about(calls, part))?;
        bytes = read?;
        at = next;
    }
    off_thread(move || output.finish()).await?.map_err(|trouble| trouble.about(calls, part))
}
