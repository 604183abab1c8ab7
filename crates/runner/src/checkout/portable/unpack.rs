//! Reads a tree from an archive, which may be damaged or made by somebody else.

use super::facts::TreeFacts;
use super::parents::Parents;
use super::{FACTS, GIT, INDEX, MAX_BYTES, MAX_DEPTH, MAX_FILES, MAX_PATH, TREE, index};
use crate::checkout::LeftPointers;
use crate::checkout::folder::Folder;
use crate::checkout::mirror::is_branch;
use crate::checkout::own_git::{config, write_ref};
use crate::checkout::pristine;
use crate::checkout::tree::note_made;
use anyhow::{Context, bail, ensure};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use tidelock_core::domain::CommitSha;

/// Folder of packs in a git directory.
const PACKS: &str = "objects/pack";
/// Most packs of objects with their indexes.
const MAX_PACKS: usize = 64;
/// Largest `facts.json`, in bytes.
const MAX_FACTS: u64 = 64 << 20;
/// Most bytes that follow the last entry.
const SLACK: u64 = 1 << 20;
/// Largest window of the compression, as a power of two. Larger ones need more memory than the packing side makes use of.
const WINDOW_LOG: u32 = 23;

/// A tree that was unpacked.
pub(super) struct Unpacked {
    pub(super) made: String,
    pub(super) pointers: Option<LeftPointers>,
}

/// Unpacks an archive into two empty directories.
pub(super) fn unpack(archive: &Path, root: &Path, git_dir: &Path) -> anyhow::Result<Unpacked> {
    let mut compressed = zstd::Decoder::new(File::open(archive).context("cannot open the archive")?)?;
    compressed.window_log_max(WINDOW_LOG)?;
    let mut reading = TreeReading {
        files: Parents::of(Folder::open(root)?),
        git: Folder::open(root)?.make_folder(Path::new(".git"))?,
        entries: 0,
        packs: Vec::new(),
        bytes: 0,
        index: None,
        facts: None,
    };
    reading.git.make_folder(Path::new(PACKS))?;
    let mut archive = tar::Archive::new(compressed);
    reading.read(&mut archive)?;
    // The checksum of the whole is at the end.
    let rest = std::io::copy(&mut archive.into_inner().take(SLACK), &mut std::io::sink()).context("it is damaged")?;
    ensure!(rest < SLACK, "something follows its end");
    let TreeReading { git, packs, index, facts, .. } = reading;
    let (index, facts) = index.zip(facts).context("the archive is not complete")?;
    let made = NewTree { root, git_dir, git, packs, facts };
    made.write(index)
}

/// The state of reading an archive.
struct TreeReading {
    files: Parents,
    git: Folder,
    entries: usize,
    packs: Vec<String>,
    bytes: u64,
    index: Option<Vec<u8>>,
    facts: Option<TreeFacts>,
}

impl TreeReading {
    fn read(&mut self, archive: &mut tar::Archive<impl Read>) -> anyhow::Result<()> {
        let (mut long_name, mut long_link) = (None, None);
        // Not as the library puts them together: it would read a name of any length into memory.
        for entry in archive.entries()?.raw(true) {
            let mut entry = entry.context("it is damaged")?;
            let kind = entry.header().entry_type();
            match kind {
                tar::EntryType::GNULongName => long_name = Some(long(&mut entry)?),
                tar::EntryType::GNULongLink => long_link = Some(long(&mut entry)?),
                _ => {
                    let name = long_name.take().unwrap_or_else(|| entry.header().path_bytes().into_owned());
                    let link = long_link.take();
                    let link = link.or_else(|| entry.header().link_name_bytes().map(std::borrow::Cow::into_owned));
                    self.take(&name, link, kind, &mut entry)
                        .with_context(|| format!("{:?} in the archive", OsStr::from_bytes(&name)))?;
                }
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        name: &[u8],
        link: Option<Vec<u8>>,
        kind: tar::EntryType,
        entry: &mut tar::Entry<'_, impl Read>,
    ) -> anyhow::Result<()> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(entry.header().entry_size()?);
        ensure!(self.facts.is_none(), "it follows the end");
        // Besides the tree there are only a few entries.
        ensure!(
            self.entries <= MAX_FILES + MAX_PACKS && self.bytes <= MAX_BYTES,
            "the archive is larger than any that is made"
        );
        if let Some(path) = name.strip_prefix(TREE.as_bytes()) {
            return self.take_entry(Path::new(OsStr::from_bytes(path)), link, kind, entry);
        }
        ensure!(kind == tar::EntryType::Regular, "it is of the kind {kind:?}");
        if let Some(name) = name.strip_prefix(GIT.as_bytes()) {
            let name = std::str::from_utf8(name).ok().filter(|name| is_pack(name)).context("it is no pack")?;
            ensure!(self.packs.len() < MAX_PACKS, "there are too many packs");
            self.packs.push(name.to_owned());
            return Ok(self.git.write(&Path::new(PACKS).join(name), 0o444, entry)?);
        }
        if name == INDEX.as_bytes() {
            self.index = Some(whole(entry, index::MAX_INDEX)?);
        } else if name == FACTS.as_bytes() {
            self.facts = Some(serde_json::from_slice(&whole(entry, MAX_FACTS)?)?);
        } else {
            bail!("it is unknown");
        }
        Ok(())
    }

    /// Makes an entry of the tree. No link is followed: the directories of its path are opened one by one.
    fn take_entry(
        &mut self,
        path: &Path,
        link: Option<Vec<u8>>,
        kind: tar::EntryType,
        entry: &mut tar::Entry<'_, impl Read>,
    ) -> anyhow::Result<()> {
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        ensure!(is_plain && path.file_name().is_some(), "it leads out of the tree");
        ensure!(!path.starts_with(".git"), "the git directory of a tree is made anew");
        let length = path.as_os_str().len();
        ensure!(length <= MAX_PATH && path.components().count() <= MAX_DEPTH, "it is too deep");
        let (folder, name) = self.files.missing_parent(path)?;
        match kind {
            tar::EntryType::Directory => drop(folder.missing_folder(name)?),
            tar::EntryType::Regular => {
                let (mode, time) = (entry.header().mode()? & 0o777, entry.header().mtime()?);
                folder.create(name, mode, i64::try_from(time).unwrap_or(0), entry)?;
            }
            tar::EntryType::Symlink => {
                let target = link.context("it has no target")?;
                folder.write_link(name, Path::new(OsStr::from_bytes(&target)))?;
            }
            other => bail!("it is of the kind {other:?}"),
        }
        Ok(())
    }
}

/// Reads the name or target of the entry that follows.
fn long(entry: &mut tar::Entry<'_, impl Read>) -> anyhow::Result<Vec<u8>> {
    let mut name = whole(entry, MAX_PATH as u64 * 2)?;
    if name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

fn whole(entry: &mut tar::Entry<'_, impl Read>, limit: u64) -> anyhow::Result<Vec<u8>> {
    let size = entry.header().entry_size()?;
    ensure!(size <= limit, "an entry of {size} bytes is longer than any that is made");
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns true for `pack-<hash>.pack` and `pack-<hash>.idx`.
fn is_pack(name: &str) -> bool {
    let rest =
        name.strip_prefix("pack-").and_then(|rest| rest.strip_suffix(".pack").or_else(|| rest.strip_suffix(".idx")));
    rest.is_some_and(|hash| !hash.is_empty() && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// A tree whose files are there.
struct NewTree<'a> {
    root: &'a Path,
    git_dir: &'a Path,
    /// The tree's own `.git`.
    git: Folder,
    packs: Vec<String>,
    facts: TreeFacts,
}

impl NewTree<'_> {
    fn write(self, mut index: Vec<u8>) -> anyhow::Result<Unpacked> {
        self.check()?;
        index::settle(&mut index, Folder::open(self.root)?);
        self.write_git(&index).context("cannot write the git directory of the tree")?;
        self.write_server_side(&index).with_context(|| format!("cannot write {}", self.git_dir.display()))?;
        if let Some(touched) = &self.facts.touched {
            pristine::record(self.root, self.git_dir)?;
            pristine::forget(self.git_dir, touched)?;
        }
        let made = note_made(self.git_dir)?;
        let pointers = self.facts.pointers.as_deref().and_then(LeftPointers::parse);
        Ok(Unpacked { made, pointers })
    }

    fn check(&self) -> anyhow::Result<()> {
        let refs = self.facts.refs.iter().map(|named| &named.commit);
        for commit in self.facts.shallow.iter().chain(refs).chain([&self.facts.commit]) {
            CommitSha::parse(commit.as_str()).context("the archive has a commit that is none")?;
        }
        ensure!(self.facts.refs.iter().all(|named| is_branch(&named.name)), "the archive has a ref that is none");
        Ok(())
    }

    fn shallow(&self) -> String {
        self.facts.shallow.iter().map(|commit| format!("{commit}\n")).collect()
    }

    /// Writes the `.git` in the tree, for steps.
    fn write_git(&self, index: &[u8]) -> anyhow::Result<()> {
        for dir in ["objects/info", "refs/heads", "refs/remotes/origin", "info"] {
            self.git.make_folder(Path::new(dir))?;
        }
        let write = |name: &str, bytes: &[u8]| self.git.write(Path::new(name), 0o644, bytes);
        let TreeFacts { url, patterns, missing, commit, .. } = &self.facts;
        write("config", config(url.as_deref(), patterns.as_deref(), *missing).as_bytes())?;
        if let Some(patterns) = patterns {
            write("info/sparse-checkout", patterns.as_bytes())?;
        }
        for pack in self.packs.iter().filter_map(|name| name.strip_suffix(".pack")) {
            // git accepts that objects are missing which such a pack names.
            write(&format!("{PACKS}/{pack}.promisor"), b"")?;
        }
        if !self.facts.shallow.is_empty() {
            write("shallow", self.shallow().as_bytes())?;
        }
        for named in &self.facts.refs {
            write_ref(&self.git, &Path::new("refs/remotes").join(&named.name), &named.commit)?;
        }
        write("HEAD", format!("{commit}\n").as_bytes())?;
        Ok(write("index", index)?)
    }

    /// Writes the server's git directory. It has no objects: the server asks it only for files and their changes.
    fn write_server_side(&self, index: &[u8]) -> anyhow::Result<()> {
        for dir in ["objects/info", "objects/pack", "refs", "info"] {
            fs::create_dir_all(self.git_dir.join(dir))?;
        }
        let write = |name: &str, bytes: &[u8]| fs::write(self.git_dir.join(name), bytes);
        write("config", b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n")?;
        if let Some(patterns) = &self.facts.patterns {
            write("info/sparse-checkout", patterns.as_bytes())?;
        }
        write("HEAD", format!("{}\n", self.facts.commit).as_bytes())?;
        Ok(write("index", index)?)
    }
}
