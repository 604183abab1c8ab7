//! Packs objects: small ones in memory, large ones as a file next to their source.

use super::{
    Coding, DATABASE_PART, Header, MAGIC, MAX_HEADER, MAX_HEADER_STORED, MAX_ROWS, ObjectKind, PREFIX, Section,
};
use crate::bucket::Body;
use crate::{Blob, FORMAT, Hash, Source, VaultError};
use bytes::Bytes;
use sha2::Digest;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Contents of more than this many bytes are packed into a file, so that a base takes little memory. Smaller in tests.
const IN_MEMORY: u64 = if cfg!(test) { 1 << 20 } else { 4 << 20 };
/// Contents of more than this many bytes are packed on a blocking thread.
const ON_THE_SPOT: u64 = 64 << 10;
/// Bytes of a content that are compressed on trial.
const PROBE: usize = 64 << 10;
/// Buffer size of a copy, in bytes.
const CHUNK: usize = 256 << 10;
/// Most bytes of one section in the header's JSON.
const SECTION_IN_HEADER: u64 = 200;
/// Most bytes of the rest of the header.
const REST_OF_HEADER: u64 = 4096;
/// Level of zstd: a fast one, because contents are small or already compressed.
const LEVEL: i32 = 1;

/// An object to pack.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    /// Header without its sections.
    pub(crate) header: Header,
    /// Rows; empty for none.
    pub(crate) rows: Bytes,
    /// Database of a base.
    pub(crate) database: Option<PathBuf>,
    /// Contents of kept files.
    pub(crate) blobs: Vec<Blob>,
}

/// An object that is ready to be sent, as often as needed.
#[derive(Debug, Clone)]
pub struct Packed {
    /// Kind of the object.
    pub(crate) kind: ObjectKind,
    /// Hash of the object.
    pub(crate) hash: Hash,
    /// Bytes of the object.
    pub(crate) body: Body,
    /// Number of bytes.
    pub(crate) size: u64,
    _file: Option<Arc<PackedFile>>,
}

/// A file that is removed with its last user.
#[derive(Debug)]
struct PackedFile(PathBuf);

impl Drop for PackedFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Packs an object, a large one off the async threads.
pub(crate) async fn build(draft: Draft) -> Result<Packed, VaultError> {
    let size = estimate(&draft)?;
    if size <= ON_THE_SPOT {
        return assemble(draft, size);
    }
    let built = tokio::task::spawn_blocking(move || assemble(draft, size)).await;
    built.map_err(|error| VaultError::Local(format!("cannot pack: {error}")))?
}

fn estimate(draft: &Draft) -> Result<u64, VaultError> {
    let mut size = draft.rows.len() as u64;
    if size > MAX_ROWS {
        return Err(VaultError::Local(format!("a commit of {size} bytes of rows is too large ({MAX_ROWS} at most)")));
    }
    for blob in &draft.blobs {
        size = size.saturating_add(blob.length);
    }
    if let Some(path) = &draft.database {
        let length = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?.len();
        size = size.saturating_add(length);
    }
    Ok(size)
}

fn unreadable(path: &Path, error: &std::io::Error) -> VaultError {
    VaultError::Local(format!("cannot read {}: {error}", path.display()))
}

fn unwritable(path: Option<&Path>, error: &std::io::Error) -> VaultError {
    let place = path.map_or_else(|| "memory".into(), |path| path.display().to_string());
    VaultError::Local(format!("cannot pack into {place}: {error}"))
}

/// Destination of contents while the header is not known yet.
enum Sink {
    Memory(Vec<u8>),
    File { file: File, path: PackedFile, written: u64 },
}

impl Sink {
    fn written(&self) -> u64 {
        match self {
            Sink::Memory(bytes) => bytes.len() as u64,
            Sink::File { written, .. } => *written,
        }
    }

    fn error(&self, error: &std::io::Error) -> VaultError {
        match self {
            Sink::Memory(_) => unwritable(None, error),
            Sink::File { path, .. } => unwritable(Some(&path.0), error),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Sink::Memory(buffer) => buffer.write(bytes),
            Sink::File { file, written, .. } => {
                let count = file.write(bytes)?;
                *written += count as u64;
                Ok(count)
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the most bytes that the header can take, so that contents can be written before it.
fn reserve(draft: &Draft, size: u64) -> u64 {
    let sections = draft.blobs.len() as u64 + size / DATABASE_PART + 2;
    PREFIX as u64 + REST_OF_HEADER + sections * SECTION_IN_HEADER
}

fn sink(draft: &Draft, size: u64) -> Result<Sink, VaultError> {
    let near = draft.database.as_ref().or_else(|| {
        draft.blobs.iter().find_map(|blob| match &blob.source {
            Source::File(path) => Some(path),
            Source::Bytes(_) => None,
        })
    });
    let Some(near) = near.filter(|_| size > IN_MEMORY) else { return Ok(Sink::Memory(Vec::new())) };
    let header = &draft.header;
    let name = format!(".tidelock-{}-{}-{}.pack", header.kind.label(), header.seq, header.counter);
    let path = near.with_file_name(name);
    let opened = File::options().write(true).create(true).truncate(true).open(&path);
    let mut file = opened.map_err(|error| unwritable(Some(&path), &error))?;
    let path = PackedFile(path);
    file.seek(std::io::SeekFrom::Start(reserve(draft, size))).map_err(|error| unwritable(Some(&path.0), &error))?;
    Ok(Sink::File { file, path, written: 0 })
}

/// Compresses the header with a checksum. No hash replaces it: only the next object has the hash of this one.
fn checksummed(json: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
    compressor.include_checksum(true)?;
    compressor.compress(json)
}

fn assemble(draft: Draft, size: u64) -> Result<Packed, VaultError> {
    let mut sink = sink(&draft, size)?;
    let mut header = draft.header.clone();
    if !draft.rows.is_empty() {
        header.rows = Some(add_small(&mut sink, &draft.rows, Hash::of(&draft.rows))?);
    }
    if let Some(path) = &draft.database {
        header.database = Some(add_database(&mut sink, path)?);
    }
    let mut seen = std::collections::HashSet::new();
    for blob in &draft.blobs {
        if seen.insert(blob.hash) {
            header.blobs.push(add_blob(&mut sink, blob)?);
        }
    }
    let json = serde_json::to_vec(&header).map_err(|error| VaultError::Local(format!("cannot pack: {error}")))?;
    let stored = checksummed(&json).map_err(|error| unwritable(None, &error))?;
    if stored.len() > MAX_HEADER_STORED || json.len() as u64 > MAX_HEADER {
        let count = header.blobs.len();
        return Err(VaultError::Local(format!("{count} files are too many for one object of the bucket")));
    }
    finish(sink, header.kind, &stored, reserve(&draft, size))
}

/// Writes prefix and header before the contents.
fn finish(sink: Sink, kind: ObjectKind, header: &[u8], reserved: u64) -> Result<Packed, VaultError> {
    let mut head = Vec::with_capacity(PREFIX + header.len());
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&FORMAT.to_le_bytes());
    head.extend_from_slice(&u32::try_from(header.len()).unwrap_or(u32::MAX).to_le_bytes());
    let contents = match sink {
        Sink::Memory(_) => (PREFIX + header.len()) as u64,
        Sink::File { .. } => reserved,
    };
    head.extend_from_slice(&contents.to_le_bytes());
    head.extend_from_slice(header);
    let hash = Hash::of(&head);
    let size = contents + sink.written();
    match sink {
        Sink::Memory(bytes) => {
            head.extend_from_slice(&bytes);
            Ok(Packed { kind, hash, body: Body::Bytes(head.into()), size, _file: None })
        }
        Sink::File { mut file, path, .. } => {
            if head.len() as u64 > reserved {
                return Err(VaultError::Local("cannot pack: the header is longer than what was kept free".into()));
            }
            let written = file.rewind().and_then(|()| file.write_all(&head)).and_then(|()| file.set_len(size));
            written.map_err(|error| unwritable(Some(&path.0), &error))?;
            Ok(Packed { kind, hash, body: Body::File(path.0.clone()), size, _file: Some(Arc::new(path)) })
        }
    }
}

/// Adds a content in memory. It is compressed if that saves more than a twentieth.
fn add_small(sink: &mut Sink, raw: &[u8], hash: Hash) -> Result<Section, VaultError> {
    let length = raw.len() as u64;
    let packed = zstd::bulk::compress(raw, LEVEL).map_err(|error| unwritable(None, &error))?;
    let (stored, coding) =
        if helps(packed.len(), raw.len()) { (&packed[..], Coding::Zstd) } else { (raw, Coding::Raw) };
    sink.write_all(stored).map_err(|error| sink.error(&error))?;
    Ok(Section { hash, stored: stored.len() as u64, length, coding })
}

fn helps(packed: usize, raw: usize) -> bool {
    packed < raw - raw / 20
}

fn add_database(sink: &mut Sink, path: &Path) -> Result<Vec<Section>, VaultError> {
    let mut file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let mut parts = Vec::new();
    let mut part = Vec::new();
    loop {
        part.clear();
        let read = Read::by_ref(&mut file).take(DATABASE_PART).read_to_end(&mut part);
        if read.map_err(|error| unreadable(path, &error))? == 0 {
            return Ok(parts);
        }
        parts.push(add_small(sink, &part, Hash::of(&part))?);
    }
}

fn add_blob(sink: &mut Sink, blob: &Blob) -> Result<Section, VaultError> {
    let changed = |place: &str| VaultError::Local(format!("{place} changed while it was being kept; try again"));
    match &blob.source {
        Source::Bytes(bytes) => {
            if bytes.len() as u64 != blob.length || Hash::of(bytes) != blob.hash {
                return Err(changed("a kept content"));
            }
            match bytes.len() > PROBE && !helps_probe(&bytes[..PROBE])? {
                true => copy(sink, &mut &bytes[..], blob, Coding::Raw, Path::new("a kept content")),
                false => add_small(sink, bytes, blob.hash),
            }
        }
        Source::File(path) => {
            let mut file = File::open(path).map_err(|error| unreadable(path, &error))?;
            let mut probe = Vec::with_capacity(PROBE.min(usize::try_from(blob.length).unwrap_or(PROBE)) + 1);
            let read = Read::by_ref(&mut file).take(PROBE as u64).read_to_end(&mut probe);
            read.map_err(|error| unreadable(path, &error))?;
            let section = if blob.length <= PROBE as u64 {
                let mut more = [0; 1];
                let end = file.read(&mut more).map_err(|error| unreadable(path, &error))? == 0;
                if !end || Hash::of(&probe) != blob.hash {
                    return Err(changed(&path.display().to_string()));
                }
                add_small(sink, &probe, blob.hash)?
            } else {
                let coding = if helps_probe(&probe)? { Coding::Zstd } else { Coding::Raw };
                copy(sink, &mut (&probe[..]).chain(file), blob, coding, path)?
            };
            if section.hash != blob.hash || section.length != blob.length {
                return Err(changed(&path.display().to_string()));
            }
            Ok(section)
        }
    }
}

fn helps_probe(probe: &[u8]) -> Result<bool, VaultError> {
    let packed = zstd::bulk::compress(probe, LEVEL).map_err(|error| unwritable(None, &error))?;
    Ok(helps(packed.len(), probe.len()))
}

/// Copies a content of any length and hashes it. The caller compares hash and length.
fn copy(
    sink: &mut Sink,
    from: &mut dyn Read,
    blob: &Blob,
    coding: Coding,
    place: &Path,
) -> Result<Section, VaultError> {
    let start = sink.written();
    let mut hasher = sha2::Sha256::new();
    let mut length = 0;
    let mut chunk = vec![0; CHUNK];
    // One byte more than expected is enough to detect a change.
    let mut from = from.take(blob.length.saturating_add(1));
    let mut next = |to: &mut dyn Write| -> Result<bool, (bool, std::io::Error)> {
        let count = from.read(&mut chunk).map_err(|error| (true, error))?;
        hasher.update(&chunk[..count]);
        length += count as u64;
        to.write_all(&chunk[..count]).map_err(|error| (false, error))?;
        Ok(count > 0)
    };
    let copied = match coding {
        Coding::Raw => loop {
            match next(sink) {
                Ok(true) => {}
                other => break other,
            }
        },
        Coding::Zstd => {
            let encoder = zstd::stream::write::Encoder::new(&mut *sink, LEVEL);
            encoder.map_err(|error| (false, error)).and_then(|mut encoder| {
                while next(&mut encoder)? {}
                encoder.finish().map(|_| true).map_err(|error| (false, error))
            })
        }
    };
    match copied {
        Ok(_) => Ok(Section { hash: Hash(hasher.finalize().into()), stored: sink.written() - start, length, coding }),
        Err((true, error)) => Err(unreadable(place, &error)),
        Err((false, error)) => Err(sink.error(&error)),
    }
}

/// Packs the same contents under another header, as wrong retries of the simulation send them.
#[cfg(test)]
pub(crate) fn with_next_counter(packed: &Packed) -> Packed {
    let Body::Bytes(bytes) = &packed.body else { return packed.clone() };
    let head = super::decode_head(bytes, packed.size).unwrap();
    let header = Header { counter: head.header.counter + 1_000_000, ..head.header };
    let stored = zstd::bulk::compress(&serde_json::to_vec(&header).unwrap(), LEVEL).unwrap();
    let contents = bytes[usize::try_from(head.contents).unwrap()..].to_vec();
    finish(Sink::Memory(contents), header.kind, &stored, 0).unwrap()
}
