//! Git LFS: if git-lfs is installed, the pointers in a tree are replaced by their files.
//!
//! A pull request controls the pointers, the attributes and `.lfsconfig`. So the files always come from the address beside the repository,
//! which overrides `.lfsconfig`. The token is sent to the repository's own origin only, as for git itself. The number and size of files are
//! limited. git writes them into the tree itself, with git-lfs as its filter.

mod attributes;

use super::folder::{Folder, remove_path};
use super::marker::{MARKER, Marker};
use super::tree::{Extent, TreeLocation, blocking, remove_file};
use super::{CheckoutError, Checkouts, Credentials, space, write_whole};
use crate::process::find_on_path;
use anyhow::Context as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};
use tidelock_core::domain::{CommitSha, PullId};
use url::Url;

/// Largest pointer, in bytes, by the specification.
const MAX_POINTER: u64 = 1023;
/// First line of a pointer.
const VERSION: &str = "version https://git-lfs.github.com/spec/v1\n";
/// Most files that are fetched for one tree.
const MAX_FILES: usize = 2_000;
/// Most bytes of all files of a tree, by their pointers.
const MAX_BYTES: u64 = 2 << 30;
/// Size, in bytes, from which files that git-lfs keeps in a mirror are removed.
const MAX_KEPT: u64 = 2 * MAX_BYTES;
/// Age up to which files that git-lfs wrote may be in use by another tree.
const IN_USE: Duration = Duration::from_secs(60 * 60);
/// File in the server's git directory of a tree that had pointers, with the reason that some are left, and their paths.
const LEFT: &str = "tidelock-lfs";

/// Reason that pointers are left in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointersLeft {
    /// git-lfs is not installed.
    NotInstalled,
    /// The tree has more files of Git LFS than are fetched.
    TooMany,
    /// The repository is not cloned over HTTP, and files are fetched only over HTTP.
    NotOverHttp,
    /// git-lfs could not fetch them.
    Failed,
}

/// Files of a tree that are pointers of Git LFS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftPointers {
    /// Reason that they are left.
    pub why: PointersLeft,
    /// Their paths.
    pub paths: Vec<String>,
}

/// A file of the tree that is a pointer.
struct Pointer {
    path: String,
    /// Bytes of the file that it refers to.
    size: u64,
}

impl PointersLeft {
    const ALL: [PointersLeft; 4] =
        [PointersLeft::NotInstalled, PointersLeft::TooMany, PointersLeft::NotOverHttp, PointersLeft::Failed];

    fn word(self) -> &'static str {
        match self {
            PointersLeft::NotInstalled => "not-installed",
            PointersLeft::TooMany => "too-many",
            PointersLeft::NotOverHttp => "not-over-http",
            PointersLeft::Failed => "failed",
        }
    }
}

impl LeftPointers {
    pub(super) fn text(&self) -> String {
        format!("{}\n{}", self.why.word(), self.paths.join("\0"))
    }

    pub(super) fn parse(text: &str) -> Option<LeftPointers> {
        let (word, paths) = text.split_once('\n')?;
        let why = PointersLeft::ALL.into_iter().find(|why| why.word() == word)?;
        let paths: Vec<String> = paths.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
        (!paths.is_empty()).then_some(LeftPointers { why, paths })
    }
}

impl Checkouts {
    fn has_lfs(&self) -> bool {
        let path = self.env.iter().rev().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value);
        find_on_path(path, Path::new("git-lfs")).is_some()
    }

    /// Marks the trees of a pull request to be written again by the next checkout, if pointers are left that can perhaps be fetched now. To
    /// be called while nothing runs in them.
    pub async fn retry_pointers(&self, pull: &PullId) -> anyhow::Result<()> {
        let (worktrees, ours) = (self.mirror_path(&pull.repo).join("worktrees"), format!("{}-", pull.number));
        let has_lfs = self.has_lfs();
        blocking(move || {
            for entry in fs::read_dir(worktrees).into_iter().flatten().flatten() {
                let (admin, is_ours) = (entry.path(), entry.file_name().to_string_lossy().starts_with(&ours));
                let left = if is_ours { left_in(&admin) } else { None };
                let may_come =
                    left.is_some_and(|left| matches!(left.why, PointersLeft::NotInstalled | PointersLeft::Failed));
                let text = fs::read_to_string(admin.join(MARKER)).unwrap_or_default();
                if let (true, Some(marker)) = (has_lfs && may_come, Marker::parse(&text)) {
                    // As if the machine had started since: every file is written again, and files that steps left stay.
                    let old = Marker { boot: String::new(), ..marker };
                    write_whole(&admin.join(MARKER), &old.text())?;
                }
            }
            Ok(())
        })
        .await
        .context("looking for pointers of Git LFS to fetch again")
    }
}

fn left_in(admin: &Path) -> Option<LeftPointers> {
    LeftPointers::parse(&fs::read_to_string(admin.join(LEFT)).ok()?)
}

impl TreeLocation<'_> {
    /// Returns the pointers that were left when the tree was written.
    pub(super) fn left_pointers(&self) -> Option<LeftPointers> {
        left_in(&self.admin)
    }

    /// Returns true if the tree had files of Git LFS when it was written.
    pub(super) fn has_large_files(&self) -> bool {
        self.admin.join(LEFT).exists()
    }

    /// Replaces pointers by files, after git has written the commit to the tree. Returns true if it has fetched files.
    pub(super) async fn fetch_large_files(
        &self,
        commit: &CommitSha,
        extent: Extent,
        credentials: Option<&Credentials>,
    ) -> Result<bool, CheckoutError> {
        if !self.may_have_pointers().await? {
            remove_file(&self.admin.join(LEFT)).context("cannot forget the pointers of a tree")?;
            return Ok(false);
        }
        let pointers = self.pointers().await?;
        let bytes = pointers.iter().fold(0_u64, |sum, pointer| sum.saturating_add(pointer.size));
        let is_too_much = pointers.len() > MAX_FILES || bytes > MAX_BYTES;
        let mut paths: Vec<String> = pointers.into_iter().map(|pointer| pointer.path).collect();
        let (mut why, mut fetched) = (PointersLeft::Failed, false);
        match lfs_url(&self.mirror.url) {
            _ if paths.is_empty() => {}
            _ if !self.checkouts.has_lfs() => why = PointersLeft::NotInstalled,
            _ if is_too_much => why = PointersLeft::TooMany,
            None => why = PointersLeft::NotOverHttp,
            Some(url) => {
                self.write_large_files(commit, extent, &paths, &url, credentials).await?;
                paths = self.pointers_among(paths).await?.into_iter().map(|pointer| pointer.path).collect();
                fetched = true;
            }
        }
        let left = LeftPointers { why, paths };
        write_whole(&self.admin.join(LEFT), &left.text()).context("cannot note the pointers of a tree")?;
        Ok(fetched)
    }

    /// Returns true if the tree's attributes name the filter of Git LFS. Starts no process, since most repositories do not use it.
    async fn may_have_pointers(&self) -> Result<bool, CheckoutError> {
        let (root, index) = (self.root.clone(), self.admin.join("index"));
        let looked = blocking(move || Ok(attributes::name_the_filter(&Folder::open(&root)?, &fs::read(index)?)));
        Ok(looked.await.context("looking for attributes of Git LFS")?)
    }

    /// Returns the pointers of the tree.
    async fn pointers(&self) -> Result<Vec<Pointer>, CheckoutError> {
        let listed = self.git(&["ls-files", "-z", "--", ":(attr:filter=lfs)"]).with_short_timeout().output().await?;
        self.pointers_among(listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect()).await
    }

    async fn pointers_among(&self, paths: Vec<String>) -> Result<Vec<Pointer>, CheckoutError> {
        let root = self.root.clone();
        let found = blocking(move || {
            let top = Folder::open(&root)?;
            let pointer = |path: String| {
                // A pointer is a small text; files that a sparse tree leaves out are absent.
                let text = top.read_text(Path::new(&path), MAX_POINTER).ok().flatten()?;
                Some(Pointer { size: size_of(&text)?, path })
            };
            Ok(paths.into_iter().filter_map(pointer).collect::<Vec<Pointer>>())
        });
        Ok(found.await.context("looking for pointers of Git LFS")?)
    }

    /// Has git write these files again. Files that cannot be fetched stay pointers.
    async fn write_large_files(
        &self,
        commit: &CommitSha,
        extent: Extent,
        paths: &[String],
        url: &str,
        credentials: Option<&Credentials>,
    ) -> Result<(), CheckoutError> {
        let (root, gone, kept) = (self.root.clone(), paths.to_vec(), self.mirror.path.join("lfs"));
        let removed = blocking(move || {
            make_room(&kept);
            let top = Folder::open(&root)?;
            // git writes only files that differ from its index.
            gone.iter().try_for_each(|path| Ok(top.remove(Path::new(path))?))
        });
        removed.await.context("cannot replace pointers of Git LFS")?;
        // These settings override `.lfsconfig`, from which git-lfs takes the address, both lists and `lfs.<address>.access`.
        let access = format!("lfs.{url}.access");
        let settings = [
            (access.as_str(), if credentials.is_some() { "basic" } else { "none" }),
            ("filter.lfs.process", "git-lfs filter-process"),
            ("lfs.url", url),
            ("lfs.basictransfersonly", "true"),
            ("lfs.skipdownloaderrors", "true"),
            ("lfs.fetchinclude", ""),
            ("lfs.fetchexclude", ""),
            // Otherwise git-lfs writes it into the mirror's configuration.
            ("lfs.repositoryformatversion", "0"),
        ];
        let git = self.read_tree("--reset", commit, extent).credentials(&self.mirror.url, credentials);
        let done = settings.into_iter().fold(git, |git, (key, value)| git.config(key, value)).finish().await?;
        if !done.output.trim().is_empty() {
            tracing::warn!(tree = %self.root.display(), ending = done.ending(), output = done.output, "git-lfs says");
        }
        if !done.success() {
            // Files may be missing now. Writing them again restores at least their pointers.
            self.read_tree("--reset", commit, extent).credentials(&self.mirror.url, credentials).output().await?;
        }
        Ok(())
    }
}

/// Removes files that git-lfs keeps in a mirror, if they take much space. Trees have copies, and removed files can be fetched again.
fn make_room(kept: &Path) {
    let mut files = Vec::new();
    if space::walk(kept, &mut |file| files.push(file.to_owned())) <= MAX_KEPT {
        return;
    }
    for file in files {
        let age = || SystemTime::now().duration_since(fs::metadata(&file).ok()?.modified().ok()?).ok();
        if age().is_some_and(|age| age > IN_USE)
            && let Err(error) = remove_path(&file)
        {
            tracing::warn!(file = %file.display(), %error, "cannot remove a file that git-lfs keeps");
        }
    }
}

/// Returns the size that a pointer names; `None` if the text is not a pointer.
fn size_of(text: &str) -> Option<u64> {
    let rest = text.strip_prefix(VERSION)?;
    let value = |key: &str| rest.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    let hash = value("oid")?.strip_prefix("sha256:")?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    value("size")?.parse().ok().filter(|_| is_hash)
}

/// Returns the address of a repository's files, as git-lfs derives it; only over HTTP.
fn lfs_url(clone_url: &str) -> Option<String> {
    let mut url = Url::parse(clone_url).ok().filter(|url| matches!(url.scheme(), "https" | "http"))?;
    url.set_query(None);
    url.set_fragment(None);
    let base = url.as_str().trim_end_matches('/').trim_end_matches(".git");
    Some(format!("{base}.git/info/lfs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pointer_of_the_specification_is_one() {
        let hash = "a".repeat(64);
        let good = format!("{VERSION}oid sha256:{hash}\nsize 12\n");
        assert_eq!(size_of(&good), Some(12));
        for bad in [
            String::new(),
            format!("oid sha256:{hash}\nsize 12\n"),
            format!("{VERSION}oid sha256:{hash}\nsize -1\n"),
            format!("{VERSION}oid sha256:{}\nsize 12\n", &hash[1..]),
            format!("{VERSION}size 12\n"),
        ] {
            assert_eq!(size_of(&bad), None, "{bad}");
        }
    }

    #[test]
    fn files_are_asked_for_beside_the_repository() {
        let want = Some("https://h/acme/infra.git/info/lfs".to_owned());
        for url in
            ["https://h/acme/infra.git", "https://h/acme/infra", "https://h/acme/infra/", "https://h/acme/infra?a=b#c"]
        {
            assert_eq!(lfs_url(url), want);
        }
        for none in ["/srv/infra.git", "ssh://h/acme/infra.git", "file:///srv/infra.git"] {
            assert_eq!(lfs_url(none), None);
        }
    }

    #[test]
    fn pointers_that_are_left_are_read_as_they_were_noted() {
        for why in PointersLeft::ALL {
            let left = LeftPointers { why, paths: vec!["a b".into(), "c\nd".into()] };
            assert_eq!(LeftPointers::parse(&left.text()), Some(left));
        }
        assert_eq!(LeftPointers::parse("failed\n"), None);
        assert_eq!(LeftPointers::parse(""), None);
    }
}
