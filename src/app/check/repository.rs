//! Identifies the repository of a directory from git's own files: its remote `origin` and the default branch of that remote.

use crate::domain::RepoId;
use std::fs;
use std::path::Path;
use url::Url;

/// Largest file of git's that is read, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// Parses `HOST/OWNER/NAME`; an owner may have several parts.
pub(super) fn parse(text: &str) -> Option<RepoId> {
    let (host, rest) = text.split_once('/')?;
    let (owner, name) = rest.rsplit_once('/')?;
    let whole =
        [host, name].into_iter().chain(owner.split('/')).all(|part| !part.is_empty() && !part.contains([':', ' ']));
    whole.then(|| RepoId { host: host.to_lowercase(), owner: owner.to_owned(), name: name.to_owned() })
}

/// Returns the repository that the remote `origin` of a checkout names.
pub(super) fn from_checkout(dir: &Path) -> Option<RepoId> {
    let config = read(&dir.join(".git/config"))?;
    let mut in_origin = false;
    for line in config.lines().map(str::trim) {
        if line.starts_with('[') {
            in_origin = line == "[remote \"origin\"]";
        } else if let Some((key, value)) = line.split_once('=')
            && in_origin
            && key.trim() == "url"
        {
            return address(value.trim());
        }
    }
    None
}

/// Returns the default branch of the remote, as the clone recorded it.
pub(super) fn default_branch(dir: &Path) -> Option<String> {
    let head = read(&dir.join(".git/refs/remotes/origin/HEAD"))?;
    head.trim().strip_prefix("ref: refs/remotes/origin/").map(str::to_owned)
}

fn read(path: &Path) -> Option<String> {
    fs::metadata(path).ok().filter(|found| found.is_file() && found.len() <= MAX_FILE)?;
    fs::read_to_string(path).ok()
}

/// Parses an address for git: `https://HOST/…`, `ssh://git@HOST/…`, `git@HOST:…`.
fn address(text: &str) -> Option<RepoId> {
    let (host, path) = match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "https" | "http" | "ssh" | "git") => {
            (url.host_str()?.to_owned(), url.path().to_owned())
        }
        _ => {
            let (host, path) = text.split_once(':').filter(|(_, path)| !path.starts_with("//"))?;
            (host.rsplit('@').next()?.to_owned(), path.to_owned())
        }
    };
    let path = path.trim_matches('/').trim_end_matches(".git").replace("/_git/", "/");
    parse(&format!("{host}/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_all_forms_name_their_repository() {
        for (text, repo) in [
            ("https://github.com/acme/infra.git", "github.com/acme/infra"),
            ("https://me:secret@github.com/acme/infra", "github.com/acme/infra"),
            ("git@GitHub.com:acme/infra.git", "github.com/acme/infra"),
            ("ssh://git@git.example.com:2222/acme/infra.git", "git.example.com/acme/infra"),
            ("https://dev.azure.com/acme/platform/_git/infra", "dev.azure.com/acme/platform/infra"),
        ] {
            assert_eq!(address(text).map(|repo| repo.to_string()).as_deref(), Some(repo), "{text}");
        }
        for text in ["../infra.git", "/srv/git/infra.git", "file:///srv/infra.git", "infra", "https://github.com/acme"]
        {
            assert_eq!(address(text), None, "{text}");
        }
    }

    #[test]
    fn the_remote_and_its_branch_are_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!((from_checkout(dir.path()), default_branch(dir.path())), (None, None));
        fs::create_dir_all(dir.path().join(".git/refs/remotes/origin")).unwrap();
        let config = "[core]\n\turl = no\n[remote \"upstream\"]\n\turl = https://a.b/c/d\n[remote \"origin\"]\n\turl = git@github.com:acme/infra.git\n";
        fs::write(dir.path().join(".git/config"), config).unwrap();
        fs::write(dir.path().join(".git/refs/remotes/origin/HEAD"), "ref: refs/remotes/origin/release/2\n").unwrap();
        assert_eq!(from_checkout(dir.path()).map(|repo| repo.to_string()).as_deref(), Some("github.com/acme/infra"));
        assert_eq!(default_branch(dir.path()).as_deref(), Some("release/2"));
    }
}
