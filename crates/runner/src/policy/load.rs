//! Reads policies, documents and the plan, with limits. Below the tree of a pull request, links are not followed.

use crate::checkout::folder::Folder;
use anyhow::{Context as _, anyhow, bail, ensure};
use rustix::fs::FileType;
use serde_json::Value;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

/// Largest plan in JSON, in bytes.
const INPUT_LIMIT: u64 = 128 << 20;
/// Largest policy or document, in bytes.
const FILE_LIMIT: u64 = 1 << 20;
/// Most policies and documents.
const MAX_FILES: usize = 2_000;
/// Deepest directory below a given path.
const MAX_DEPTH: usize = 32;

/// A policy and its path.
pub(super) struct PolicyText {
    /// Path for messages.
    pub(super) path: String,
    pub(super) text: String,
}

/// Reads files. Their number is limited over all calls.
pub(super) struct PolicyReader {
    /// The tree's root and its open directory.
    tree: Option<(PathBuf, Folder)>,
    /// The working directory, at which relative paths begin.
    here: PathBuf,
    files: usize,
}

/// A place of policies.
enum PolicyPlace<'a> {
    /// Below the tree's root, at this relative path.
    Tree(&'a Folder, PathBuf),
    /// The operator's own.
    Elsewhere(PathBuf),
}

impl PolicyReader {
    pub(super) fn new(tree: Option<&Path>) -> anyhow::Result<PolicyReader> {
        let here = std::env::current_dir().context("the working directory is gone")?;
        let tree = match tree {
            None => None,
            Some(root) => {
                let root = root.canonicalize().context("the tree is not there")?;
                let folder = Folder::open(&root)?;
                Some((root, folder))
            }
        };
        Ok(PolicyReader { tree, here, files: 0 })
    }

    /// Reads all policies of files and directories. Tests, `*_test.rego`, are left out of directories.
    pub(super) fn policies(&mut self, paths: &[String]) -> anyhow::Result<Vec<PolicyText>> {
        let wanted = |name: &str| name.ends_with(".rego") && !name.ends_with("_test.rego");
        let mut found = Vec::new();
        for path in paths {
            for (path, bytes) in self.below(path, &wanted).with_context(|| format!("loading policies: {path}"))? {
                let text = String::from_utf8(bytes).with_context(|| format!("{path} is not UTF-8"))?;
                found.push(PolicyText { path, text });
            }
        }
        Ok(found)
    }

    /// Reads all documents and merges them into one object.
    pub(super) fn data(&mut self, paths: &[String]) -> anyhow::Result<Value> {
        let wanted = |name: &str| [".json", ".yaml", ".yml"].iter().any(|ending| name.ends_with(ending));
        let mut data = Value::Object(serde_json::Map::new());
        for path in paths {
            for (path, bytes) in self.below(path, &wanted).with_context(|| format!("loading data: {path}"))? {
                let document = document(&path, &bytes).with_context(|| format!("cannot read {path}"))?;
                merge(&mut data, document).with_context(|| format!("cannot add {path} to what is there"))?;
            }
        }
        Ok(data)
    }

    /// Reads the plan.
    pub(super) fn input(&self, path: &str) -> anyhow::Result<String> {
        let bytes = read(&self.place(path), INPUT_LIMIT).with_context(|| format!("reading {path}"))?;
        String::from_utf8(bytes).with_context(|| format!("{path} is not UTF-8"))
    }

    /// Reads the file, or the wanted files below the directory, sorted by path.
    fn below(&mut self, path: &str, wanted: &dyn Fn(&str) -> bool) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
        let (mut found, mut count) = (Vec::new(), self.files);
        match self.place(path) {
            PolicyPlace::Tree(tree, relative) => {
                match tree.kind(&relative)?.context("there is no such file or directory")? {
                    FileType::Directory => {
                        walk_tree(&tree.folder(&relative)?, path, 0, wanted, &mut found, &mut count)?;
                    }
                    _ => found.push((path.to_owned(), read(&PolicyPlace::Tree(tree, relative), FILE_LIMIT)?)),
                }
            }
            PolicyPlace::Elsewhere(place) => {
                let kind = place.metadata().context("there is no such file or directory")?;
                match kind.is_dir() {
                    true => walk(&place, path, 0, wanted, &mut found, &mut count)?,
                    false => found.push((path.to_owned(), read(&PolicyPlace::Elsewhere(place), FILE_LIMIT)?)),
                }
            }
        }
        self.files = count.max(self.files + found.len());
        found.sort();
        Ok(found)
    }

    /// Returns the place of a path, without looking at the disk.
    fn place(&self, path: &str) -> PolicyPlace<'_> {
        let whole = cleaned(&self.here.join(path));
        match &self.tree {
            Some((root, folder)) => match whole.strip_prefix(root) {
                Ok(relative) => PolicyPlace::Tree(folder, relative.to_owned()),
                Err(_) => PolicyPlace::Elsewhere(whole),
            },
            None => PolicyPlace::Elsewhere(whole),
        }
    }
}

/// Resolves `.` and `..` in a path, without looking at the disk.
fn cleaned(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(whole.pop()),
            part => whole.push(part),
        }
    }
    whole
}

fn read(place: &PolicyPlace<'_>, limit: u64) -> anyhow::Result<Vec<u8>> {
    let path = match place {
        PolicyPlace::Tree(tree, relative) => return tree.read(relative, limit)?.context("there is no such file"),
        PolicyPlace::Elsewhere(path) => path,
    };
    let file = std::fs::File::open(path)?;
    ensure!(file.metadata()?.is_file(), "it is no regular file");
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= limit, "it is larger than {limit} bytes");
    Ok(bytes)
}

fn counted(count: &mut usize) -> anyhow::Result<()> {
    *count += 1;
    if *count > MAX_FILES {
        bail!("there are more than {MAX_FILES} files of policies and data");
    }
    Ok(())
}

fn deeper(depth: usize) -> anyhow::Result<usize> {
    ensure!(depth < MAX_DEPTH, "directories are nested more than {MAX_DEPTH} deep");
    Ok(depth + 1)
}

/// Path for messages, and content, of each file found.
type PolicyFiles = Vec<(String, Vec<u8>)>;

/// Skips links in the tree.
fn walk_tree(
    folder: &Folder,
    shown: &str,
    depth: usize,
    wanted: &dyn Fn(&str) -> bool,
    found: &mut PolicyFiles,
    count: &mut usize,
) -> anyhow::Result<()> {
    for (name, kind) in folder.entries()? {
        let Some(name) = name.to_str() else { continue };
        let path = format!("{}/{name}", shown.trim_end_matches('/'));
        match kind {
            FileType::Directory => {
                walk_tree(&folder.folder(Path::new(name))?, &path, deeper(depth)?, wanted, found, count)?;
            }
            FileType::RegularFile if wanted(name) => {
                counted(count)?;
                let bytes = folder.read(Path::new(name), FILE_LIMIT).with_context(|| path.clone())?;
                found.push((path, bytes.unwrap_or_default()));
            }
            _ => {}
        }
    }
    Ok(())
}

fn walk(
    dir: &Path,
    shown: &str,
    depth: usize,
    wanted: &dyn Fn(&str) -> bool,
    found: &mut PolicyFiles,
    count: &mut usize,
) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let (name, place) = (entry.file_name(), entry.path());
        let Some(name) = name.to_str() else { continue };
        let path = format!("{}/{name}", shown.trim_end_matches('/'));
        // The operator's own directories may consist of links, as mounted secrets do.
        let Ok(kind) = place.metadata() else { continue };
        if kind.is_dir() && !name.starts_with("..") {
            walk(&place, &path, deeper(depth)?, wanted, found, count)?;
        } else if kind.is_file() && wanted(name) {
            counted(count)?;
            let bytes = read(&PolicyPlace::Elsewhere(place), FILE_LIMIT).with_context(|| path.clone())?;
            found.push((path, bytes));
        }
    }
    Ok(())
}

fn document(path: &str, bytes: &[u8]) -> anyhow::Result<Value> {
    if path.ends_with(".json") {
        return Ok(serde_json::from_slice(bytes)?);
    }
    serde_saphyr::from_str(std::str::from_utf8(bytes)?).map_err(|error| {
        let error = error.without_snippet();
        match error.location() {
            Some(_) => anyhow!("{error}"),
            None => anyhow!("{error} at line 1, column 1"),
        }
    })
}

/// Adds a document. The same key with two different values is an error.
fn merge(into: &mut Value, document: Value) -> anyhow::Result<()> {
    match (into, document) {
        (Value::Object(into), Value::Object(document)) => {
            for (key, value) in document {
                match into.get_mut(&key) {
                    Some(known) => merge(known, value).with_context(|| format!("key {key:?}"))?,
                    None => drop(into.insert(key, value)),
                }
            }
            Ok(())
        }
        (known, value) if *known == value => Ok(()),
        _ => bail!("it is there with another value"),
    }
}
