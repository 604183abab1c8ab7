//! Decompresses, counts and hashes the stored bytes of one content, and writes them to files.

use crate::Hash;
use crate::chain::WantedFile;
use crate::pack::{Coding, Section};
use sha2::Digest;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Failure to write one content.
pub(super) enum OutputError {
    /// The stored bytes are invalid.
    Invalid(&'static str),
    /// An error of this machine, such as of its disk.
    Local(String),
}

impl From<String> for OutputError {
    fn from(text: String) -> OutputError {
        OutputError::Local(text)
    }
}

/// Hashes bytes and writes them to a file; without a file, the content is only verified.
struct HashedFile {
    file: Option<File>,
    hasher: sha2::Sha256,
    written: u64,
    limit: u64,
}

/// Error for a content that is longer than its header says.
const TOO_MUCH: &str = "more than its length";

impl Write for HashedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.written + bytes.len() as u64 > self.limit {
            return Err(io::Error::new(io::ErrorKind::InvalidData, TOO_MUCH));
        }
        let count = match &mut self.file {
            Some(file) => file.write(bytes)?,
            None => bytes.len(),
        };
        self.hasher.update(&bytes[..count]);
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Decoding {
    Raw(HashedFile),
    Zstd(Box<zstd::stream::write::Decoder<'static, HashedFile>>),
}

/// Decoder and destination of one content.
pub(super) struct Output {
    stage: Decoding,
    section: Section,
    files: Vec<WantedFile>,
}

impl Output {
    /// Creates the first file, and its directories if they are missing.
    pub(super) fn new(section: &Section, files: &[WantedFile]) -> Result<Output, OutputError> {
        let file = files.first().map(create).transpose()?;
        let target = HashedFile { file, hasher: sha2::Sha256::new(), written: 0, limit: section.length };
        let stage = match section.coding {
            Coding::Raw => Decoding::Raw(target),
            Coding::Zstd => {
                let decoder = zstd::stream::write::Decoder::new(target);
                Decoding::Zstd(Box::new(decoder.map_err(|error| format!("cannot decompress: {error}"))?))
            }
        };
        Ok(Output { stage, section: *section, files: files.to_vec() })
    }

    /// Decodes stored bytes and writes them.
    pub(super) fn write(&mut self, stored: &[u8]) -> Result<(), OutputError> {
        let written = match &mut self.stage {
            Decoding::Raw(target) => target.write_all(stored),
            Decoding::Zstd(decoder) => decoder.write_all(stored),
        };
        written.map_err(|error| trouble(&self.files, &error))
    }

    /// Verifies the length and the hash of the content, then copies the first file to the others.
    pub(super) fn finish(self) -> Result<(), OutputError> {
        let target = match self.stage {
            Decoding::Raw(target) => target,
            Decoding::Zstd(mut decoder) => {
                decoder.flush().map_err(|error| trouble(&self.files, &error))?;
                decoder.into_inner()
            }
        };
        if target.written != self.section.length || Hash(target.hasher.finalize().into()) != self.section.hash {
            return Err(OutputError::Invalid("its contents do not have the hash that its header names"));
        }
        drop(target.file);
        let Some((first, others)) = self.files.split_first() else { return Ok(()) };
        for other in others {
            let mut from = File::open(&first.path).map_err(|error| local(&first.path, &error))?;
            let mut to = create(other)?;
            io::copy(&mut from, &mut to).map_err(|error| local(&other.path, &error))?;
        }
        Ok(())
    }
}

/// Creates a file without content.
pub(super) fn empty(file: &WantedFile) -> Result<(), String> {
    create(file).map(drop)
}

fn trouble(files: &[WantedFile], error: &io::Error) -> OutputError {
    // Errors of decompression are `InvalidData` or `Other`, without an error number of the operating system.
    match (error.raw_os_error(), files.first()) {
        (Some(_), Some(file)) => OutputError::Local(local(&file.path, error)),
        _ => OutputError::Invalid("its contents cannot be decompressed"),
    }
}

fn local(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

fn create(wanted: &WantedFile) -> Result<File, String> {
    let path = &wanted.path;
    let mode = wanted.mode & 0o7777;
    let open = || File::options().write(true).create(true).truncate(true).mode(mode).open(path);
    let opened = open().or_else(|error| match (error.kind(), path.parent()) {
        (io::ErrorKind::NotFound, Some(parent)) => std::fs::create_dir_all(parent).and_then(|()| open()),
        _ => Err(error),
    });
    let file = opened.map_err(|error| local(path, &error))?;
    // The umask applies to the mode at creation.
    file.set_permissions(Permissions::from_mode(mode)).map_err(|error| local(path, &error))?;
    Ok(file)
}
