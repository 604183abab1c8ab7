//! Plan artifacts: files that steps left in a tree, which git does not track or tracks with other content. They belong to a plan, are kept
//! with it, and are put back if the tree was made again.
//!
//! Steps may replace a file by anything, also while it is read, so files of a tree are accessed through [`Folder`] only.

use super::folder::Folder;
use super::git::Git;
use super::{CheckoutError, Checkouts, WorkingTree, pristine, tree, unquoted};
use anyhow::{Context, bail, ensure};
use rustix::fs::FileType;
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Most files of one plan.
const MAX_FILES: usize = 5_000;
/// Most bytes of one plan's files, before compression.
const MAX_BYTES: u64 = 100 << 20;
/// Most changed directories that are passed to git one by one; with more, git searches the whole tree.
const MAX_DIRS: usize = 200;
/// Longest list of files from git, in bytes.
const MAX_LIST: usize = 24 << 20;
/// Folders that the next `init` creates, and git's own.
const SKIPPED_FOLDERS: [&str; 3] = [".terraform", ".terragrunt-cache", ".git"];
/// Endings of files that are kept elsewhere or have no further use.
const SKIPPED_ENDINGS: [&str; 2] = [".tfplan", ".lock.info"];
/// File in which a hook reports its status, written anew each time.
const STATUS_FILE: &str = "OUTPUT_STATUS_FILE";
/// Compression level, fast and good enough for text.
const LEVEL: i32 = 1;

/// Decides whether a file of an archive may be put back, by its path; if another one is there, whether that stays without an error.
pub type MayBePutBack = fn(&str, bool) -> bool;

/// A file of an archive that may not be put back. The text is its path, for users.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotPutBack(pub String);

/// Directories of the other projects of a pull request: their files are kept with their own plans.
#[derive(Debug, Clone, Default)]
pub struct OtherProjects {
    /// Directories of all projects, relative to the root.
    pub dirs: Arc<HashSet<String>>,
    /// The directory of the project whose files are kept; directories above it count as its own.
    pub own: String,
}

impl OtherProjects {
    /// Returns true if this directory is another project's.
    pub(super) fn has(&self, dir: &str) -> bool {
        self.dirs.contains(dir) && !self.is_around(dir)
    }

    fn is_around(&self, dir: &str) -> bool {
        let below = self.own.strip_prefix(dir);
        dir == "." || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// The result of keeping plan artifacts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanArtifacts {
    /// Steps left nothing.
    Nothing,
    /// Number of files in the archive.
    Files(usize),
    /// The artifacts exceed a limit. The text names it, for users.
    TooMuch(String),
}

impl Checkouts {
    /// Writes the plan artifacts of a tree, without directories of `others`, to a new archive (tar, zstd). Creates no
    /// file if there are none.
    pub async fn keep_artifacts(
        &self,
        tree: &WorkingTree,
        others: &OtherProjects,
        to: PathBuf,
    ) -> Result<PlanArtifacts, CheckoutError> {
        let kept = self.pack_artifacts(tree, others, to).await?;
        if let PlanArtifacts::TooMuch(_) = kept {
            self.is_not_kept(tree).context("noting that files are not kept")?;
        }
        Ok(kept)
    }

    async fn pack_artifacts(
        &self,
        tree: &WorkingTree,
        others: &OtherProjects,
        to: PathBuf,
    ) -> Result<PlanArtifacts, CheckoutError> {
        let (root, admin, skipped) = (tree.root.clone(), tree.git_dir.clone(), others.clone());
        let touched = tree::blocking(move || Ok(pristine::touched(&root, &admin, &skipped))).await?;
        if touched.as_ref().is_some_and(Vec::is_empty) {
            return Ok(PlanArtifacts::Nothing);
        }
        let where_to_look: Vec<String> = match touched {
            // None of these directories is another project's. With an exclusion next to a pattern, git 2.39 lists no modified files.
            Some(dirs) if dirs.len() <= MAX_DIRS => dirs.iter().map(|dir| files_of(dir)).collect(),
            _ => {
                let excluded = others.dirs.iter().filter(|dir| others.has(dir));
                let excluded = excluded.map(|dir| format!(":(exclude,top,literal){dir}"));
                std::iter::once(".".to_owned()).chain(excluded).collect()
            }
        };
        let mut args = vec!["ls-files", "--others", "--modified", "--"];
        args.extend(where_to_look.iter().map(String::as_str));
        self.without_waits(tree, others).await?;
        let git =
            Git::new(self, &tree.git_dir, &args).with_short_timeout().env("GIT_WORK_TREE", tree.root.to_string_lossy());
        let names = git.within(&tree.root).output().await?;
        if names.is_empty() {
            return Ok(PlanArtifacts::Nothing);
        }
        if names.len() > MAX_LIST {
            return Ok(PlanArtifacts::TooMuch("more files than can be listed".into()));
        }
        let mut names: Vec<String> = names.lines().map(unquoted).filter(|name| is_artifact(name)).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return Ok(PlanArtifacts::Nothing);
        }
        if names.len() > MAX_FILES {
            return Ok(PlanArtifacts::TooMuch(format!("{} files, and at most {MAX_FILES} are kept", names.len())));
        }
        let root = tree.root.clone();
        Ok(tree::blocking(move || {
            let packed = pack(&root, &names, &to);
            if !matches!(packed, Ok(PlanArtifacts::Files(_))) {
                tree::remove_file(&to)?;
            }
            packed.with_context(|| format!("cannot keep what steps left in {}", root.display()))
        })
        .await?)
    }

    /// Unpacks an archive into the tree: all of it, or with [`NotPutBack`] as the error only if each file may be put back.
    pub async fn put_back(
        &self,
        tree: &WorkingTree,
        archive: PathBuf,
        may: Option<MayBePutBack>,
    ) -> anyhow::Result<()> {
        let root = tree.root.clone();
        tree::blocking(move || {
            unpack(&root, &archive, may).with_context(|| format!("cannot put files back into {}", root.display()))
        })
        .await
    }
}

/// Returns the pathspec of the files directly in a directory.
fn files_of(dir: &str) -> String {
    let slash = if dir.is_empty() { "" } else { "/" };
    format!(":(top,glob){}{slash}*", tree::escaped(dir))
}

pub(super) fn is_artifact(name: &str) -> bool {
    let path = Path::new(name);
    let skipped = |part: Component<'_>| SKIPPED_FOLDERS.iter().any(|folder| part.as_os_str() == *folder);
    !name.is_empty()
        && !name.ends_with('/')
        && name != STATUS_FILE
        && !path.components().any(skipped)
        && !SKIPPED_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

fn pack(root: &Path, names: &[String], to: &Path) -> anyhow::Result<PlanArtifacts> {
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let top = Folder::open(root)?;
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    let mut archive = tar::Builder::new(zstd::Encoder::new(BufWriter::new(file), LEVEL)?);
    let (mut bytes, mut files) = (0, 0);
    for name in names {
        let path = Path::new(name);
        let mut header = tar::Header::new_gnu();
        // Files that are missing, deleted, or behind a link are skipped.
        match top.kind(path) {
            Ok(Some(FileType::RegularFile)) => {
                let Ok(Some(file)) = top.open_file(path) else { continue };
                let meta = file.metadata()?;
                let length = meta.len();
                bytes += length;
                if bytes > MAX_BYTES {
                    return Ok(PlanArtifacts::TooMuch(format!(
                        "more than {} MiB, which is what is kept at most",
                        MAX_BYTES >> 20
                    )));
                }
                header.set_size(length);
                header.set_mode(meta.mode() & 0o777);
                header.set_entry_type(tar::EntryType::Regular);
                // A file that grows is cut at its first size; a file that shrinks makes the archive fail.
                archive.append_data(&mut header, path, file.take(length)).with_context(|| name.clone())?;
            }
            Ok(Some(FileType::Symlink)) => {
                let Ok(target) = top.read_link(path) else { continue };
                header.set_size(0);
                header.set_entry_type(tar::EntryType::Symlink);
                archive.append_link(&mut header, path, target)?;
            }
            _ => continue,
        }
        files += 1;
    }
    if files == 0 {
        return Ok(PlanArtifacts::Nothing);
    }
    let file = archive.into_inner()?.finish()?.into_inner().map_err(|error| error.into_error())?;
    file.sync_data()?;
    Ok(PlanArtifacts::Files(files))
}

fn unpack(root: &Path, archive: &Path, may: Option<MayBePutBack>) -> anyhow::Result<()> {
    let top = Folder::open(root)?;
    let mut archive = tar::Archive::new(zstd::Decoder::new(File::open(archive)?)?);
    let (mut bytes, mut files) = (0, 0);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let named = || format!("{} in the archive", path.display());
        files += 1;
        bytes += entry.size();
        ensure!(files <= MAX_FILES && bytes <= MAX_BYTES, "the archive is larger than any that is made");
        // A name such as `a.tf/.` would be judged by another name than the one it is written to.
        let is_plain = path.components().collect::<PathBuf>().as_os_str() == path.as_os_str();
        ensure!(is_plain && path.to_str().is_some_and(is_artifact), "{} is nothing that is kept", path.display());
        if let Some(may) = may
            && is_there_already(&top, &path, &mut entry, may).with_context(named)?
        {
            continue;
        }
        if let Some(folder) = path.parent() {
            top.missing_folder(folder).with_context(named)?;
        }
        match entry.header().entry_type() {
            tar::EntryType::Regular => {
                let mode = entry.header().mode()? & 0o777;
                top.write(&path, mode, &mut entry).with_context(named)?;
            }
            tar::EntryType::Symlink => {
                let target = entry.link_name()?.with_context(named)?.into_owned();
                top.write_link(&path, &target).with_context(named)?;
            }
            other => bail!("{} is of the kind {other:?}", path.display()),
        }
    }
    Ok(())
}

/// Returns true if the tree has an entry already, as it is or as a hook has left it. Fails if the entry may not be put back.
fn is_there_already(
    top: &Folder,
    path: &Path,
    entry: &mut tar::Entry<'_, impl Read>,
    may: MayBePutBack,
) -> anyhow::Result<bool> {
    let name = path.to_string_lossy();
    let is_regular = entry.header().entry_type() == tar::EntryType::Regular;
    let accepted = match top.kind(path)? {
        None => may(&name, false),
        Some(FileType::RegularFile) if is_regular && may(&name, true) => return Ok(true),
        Some(FileType::RegularFile) if is_regular => {
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            let is_same = top.read(path, MAX_BYTES)?.is_some_and(|there| there == content);
            ensure!(is_same, NotPutBack(path.display().to_string()));
            return Ok(true);
        }
        Some(FileType::Symlink) if !is_regular => {
            let (to, there) = (entry.link_name()?, top.read_link(path)?);
            ensure!(to.is_some_and(|to| to.as_os_str() == there), NotPutBack(path.display().to_string()));
            return Ok(true);
        }
        Some(_) => false,
    };
    ensure!(accepted, NotPutBack(path.display().to_string()));
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn packed(root: &Path, names: &[&str]) -> (TempDir, PathBuf, PlanArtifacts) {
        let dir = TempDir::new().unwrap();
        let to = dir.path().join("left/a.tar.zst");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let kept = pack(root, &names, &to).unwrap();
        (dir, to, kept)
    }

    #[test]
    fn files_and_links_come_back_with_mode_and_content() {
        use std::os::unix::fs::PermissionsExt;
        let (from, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        std::fs::create_dir_all(from.path().join("a/b")).unwrap();
        std::fs::write(from.path().join("a/b/run.sh"), "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(from.path().join("a/b/run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
        let long = format!("{}.zip", "x".repeat(200));
        std::fs::write(from.path().join(&long), vec![7; 300_000]).unwrap();
        std::os::unix::fs::symlink("b/run.sh", from.path().join("a/link")).unwrap();
        let (_dir, archive, kept) = packed(from.path(), &["a/b/run.sh", "a/link", "gone", &long]);
        assert_eq!(kept, PlanArtifacts::Files(3));
        std::fs::create_dir(to.path().join("a")).unwrap();
        std::fs::write(to.path().join("a/link"), "in its place").unwrap();
        unpack(to.path(), &archive, None).unwrap();
        let run = to.path().join("a/b/run.sh");
        assert_eq!(std::fs::read_to_string(&run).unwrap(), "#!/bin/sh\n");
        assert_eq!(run.metadata().unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(std::fs::read_link(to.path().join("a/link")).unwrap(), Path::new("b/run.sh"));
        assert_eq!(std::fs::read(to.path().join(&long)).unwrap(), vec![7; 300_000]);
    }

    #[test]
    fn no_link_is_followed_neither_out_of_the_tree_nor_into_it() {
        let (secret, tree) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        std::fs::write(secret.path().join("key"), "secret").unwrap();
        std::os::unix::fs::symlink(secret.path(), tree.path().join("away")).unwrap();
        assert_eq!(packed(tree.path(), &["away/key", "../key"]).2, PlanArtifacts::Nothing);
        let from = TempDir::new().unwrap();
        std::fs::create_dir(from.path().join("away")).unwrap();
        std::fs::write(from.path().join("away/key"), "mine").unwrap();
        let (_dir, archive, _) = packed(from.path(), &["away/key"]);
        assert!(unpack(tree.path(), &archive, None).is_err());
        assert_eq!(std::fs::read_to_string(secret.path().join("key")).unwrap(), "secret");
    }

    #[test]
    fn only_what_may_be_put_back_is_and_what_is_there_may_be_named_again() {
        let from = TempDir::new().unwrap();
        for name in ["same", "changed", "new", "lock"] {
            std::fs::write(from.path().join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("same", from.path().join("link")).unwrap();
        let may: MayBePutBack = |name, replaces| name == "lock" || (name == "new" && !replaces);
        for (names, there, refused) in [
            (["same", "new", "lock"], [("same", "same"), ("lock", "old")], None),
            (["same", "lock", "new"], [("same", "same"), ("new", "old")], Some("new")),
            (["same", "lock", "changed"], [("same", "same"), ("changed", "old")], Some("changed")),
            (["same", "lock", "changed"], [("same", "same"), ("lock", "old")], Some("changed")),
            (["same", "lock", "link"], [("same", "same"), ("link", "a file")], Some("link")),
        ] {
            let to = TempDir::new().unwrap();
            for (name, content) in there {
                std::fs::write(to.path().join(name), content).unwrap();
            }
            let (_dir, archive, _) = packed(from.path(), &names);
            let error = unpack(to.path(), &archive, Some(may)).err();
            let found = error.as_ref().and_then(|error| error.downcast_ref::<NotPutBack>()).map(|file| file.0.as_str());
            assert_eq!(found, refused, "{names:?}: {error:?}");
        }
    }

    #[test]
    fn an_archive_with_path_tricks_is_refused() {
        let dir = TempDir::new().unwrap();
        for (name, kind) in [
            ("../out", tar::EntryType::Regular),
            ("/tmp/out", tar::EntryType::Regular),
            ("a/../../out", tar::EntryType::Regular),
            (".git/config", tar::EntryType::Regular),
            ("a.tf/.", tar::EntryType::Regular),
            ("a//b", tar::EntryType::Regular),
            ("a", tar::EntryType::Directory),
            ("fifo", tar::EntryType::Fifo),
            ("hard", tar::EntryType::Link),
        ] {
            let tree = dir.path().join("tree");
            std::fs::create_dir_all(&tree).unwrap();
            let file = dir.path().join("a.tar.zst");
            let mut archive = tar::Builder::new(zstd::Encoder::new(File::create(&file).unwrap(), LEVEL).unwrap());
            let mut header = tar::Header::new_gnu();
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(kind);
            header.set_size(0);
            header.set_mode(0o644);
            header.set_cksum();
            archive.append(&header, std::io::empty()).unwrap();
            archive.into_inner().unwrap().finish().unwrap();
            assert!(unpack(&tree, &file, None).is_err(), "{name}");
            assert!(!dir.path().join("out").exists());
        }
    }

    #[test]
    fn what_is_made_again_is_not_kept() {
        for (name, kept) in [
            ("gen.tf", true),
            ("a/.terraform.lock.hcl", true),
            ("a/default.json", true),
            (".terraform/providers/x", false),
            ("a/.terraform/modules/m/main.tf", false),
            ("a/.terragrunt-cache/x", false),
            ("default.tfplan", false),
            ("a/.terraform.tfstate.lock.info", false),
            ("OUTPUT_STATUS_FILE", false),
            ("nested/", false),
            ("", false),
        ] {
            assert_eq!(is_artifact(name), kept, "{name}");
        }
    }
}
