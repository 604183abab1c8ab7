//! Addresses on Azure DevOps: `https://dev.azure.com/ORGANIZATION/PROJECT/_git/REPOSITORY` on Services, and
//! `https://HOST/tfs/COLLECTION/PROJECT/_git/REPOSITORY` on Server. A repository's owner is `ORGANIZATION/PROJECT`.
//!
//! Names of organizations are case-insensitive, and addresses have them as somebody typed them. They are in lower case here, so that a
//! repository has one id. Names of projects and repositories are those of the host's own JSON.

use crate::vcs::HostError;
use crate::vcs::http::segment;
use tidelock_core::domain::RepoId;
use url::Url;

/// Host name of Azure DevOps Services.
const SERVICES: &str = "dev.azure.com";
/// End of an organization's former host name, `ORGANIZATION.visualstudio.com`. Deliveries still use it.
const FORMER: &str = ".visualstudio.com";
/// Longest accepted name of an organization, a project or a repository, in bytes.
const MAX_NAME: usize = 256;

/// Address of a host: Azure DevOps Services or Server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AzureDevOpsAddress {
    hostname: String,
    base: String,
}

impl AzureDevOpsAddress {
    /// Takes the host name of repository ids, and the prefix of every address, with the path before collections.
    pub fn new(hostname: &str, base: &str) -> AzureDevOpsAddress {
        AzureDevOpsAddress { hostname: hostname.to_ascii_lowercase(), base: base.trim_end_matches('/').to_owned() }
    }

    /// Host name, as in repository ids.
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// Prefix of every address, without a slash at its end.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns the organization or collection of an address, in lower case; absent if the address is another host's. On a Server whose
    /// setting has no path, it is all that comes before `project` (name and id): a collection, or a virtual directory and a collection
    /// (`tfs/defaultcollection`).
    pub fn organization(&self, address: &str, project: [&str; 2]) -> Option<String> {
        let url = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "https" | "http"))?;
        let host = url.host_str()?.to_ascii_lowercase();
        if self.hostname == SERVICES
            && let Some(name) = host.strip_suffix(FORMER)
        {
            return Some(name.to_owned()).filter(|name| !name.contains('.') && is_sound(name));
        }
        if host != self.hostname {
            return None;
        }
        let root = Url::parse(&self.base).ok()?;
        let root = root.path().trim_end_matches('/');
        if root.is_empty() && self.hostname != SERVICES {
            return below_server(url.path(), project);
        }
        let rest = url.path().get(root.len()..).filter(|_| url.path()[..root.len()].eq_ignore_ascii_case(root))?;
        decoded(rest.strip_prefix('/')?.split('/').next()?)
            .map(|name| name.to_lowercase())
            .filter(|name| is_sound(name))
    }

    /// Returns the repository of these names, the organization in any case; absent if one of them cannot be a name.
    pub fn repository(&self, organization: &str, project: &str, name: &str) -> Option<RepoId> {
        let sound = is_organization(organization) && [project, name].into_iter().all(is_sound);
        sound.then(|| RepoId {
            host: self.hostname.clone(),
            owner: format!("{}/{project}", organization.to_lowercase()),
            name: name.to_owned(),
        })
    }

    /// Address from which git fetches a repository.
    pub fn clone_url(&self, repo: &RepoId) -> Option<String> {
        let (organization, project) = parts(repo)?;
        Some(format!("{}/{}/{}/_git/{}", self.base, segments(organization), segment(project), segment(&repo.name)))
    }

    /// Page of a pull request for people.
    pub fn pull_page(&self, repo: &RepoId, number: u64) -> Option<String> {
        Some(format!("{}/pullrequest/{number}", self.clone_url(repo)?))
    }
}

/// Organization and project of a repository; absent if a name is not sound.
pub(super) fn parts(repo: &RepoId) -> Option<(&str, &str)> {
    let (organization, project) = repo.owner.rsplit_once('/')?;
    (is_organization(organization) && is_sound(project) && is_sound(&repo.name)).then_some((organization, project))
}

/// `/ORGANIZATION/PROJECT/_apis`, percent-encoded.
pub(super) fn project_path(repo: &RepoId) -> Result<String, HostError> {
    let message = "no such repository can exist".to_owned();
    let (organization, project) =
        parts(repo).ok_or_else(|| HostError::Rejected { what: repo.to_string(), status: 404, message })?;
    Ok(format!("/{}/{}/_apis", segments(organization), segment(project)))
}

/// Path of a repository in the API.
pub(super) fn repo_path(repo: &RepoId) -> Result<String, HostError> {
    Ok(format!("{}/git/repositories/{}", project_path(repo)?, segment(&repo.name)))
}

/// Organization of a repository; empty if the owner names none.
pub(super) fn organization_of(repo: &RepoId) -> &str {
    repo.owner.rsplit_once('/').map_or("", |(organization, _)| organization)
}

/// Returns true if a name stays one segment of a path. Names of projects and repositories may have spaces and most signs.
fn is_sound(name: &str) -> bool {
    let odd = |char: char| char.is_control() || "/\\:*?\"<>|".contains(char);
    !name.is_empty()
        && name.len() <= MAX_NAME
        && !name.starts_with('-')
        && !name.contains(odd)
        && !name.chars().all(|char| char == '.' || char == ' ')
}

/// Returns true if a name is a collection, or a virtual directory and a collection.
fn is_organization(name: &str) -> bool {
    name.split('/').count() <= 2 && name.split('/').all(is_sound)
}

/// Segments of an organization, percent-encoded.
pub(super) fn segments(organization: &str) -> String {
    organization.split('/').map(segment).collect::<Vec<_>>().join("/")
}

/// Returns the organization in a path from the server's root: the segments before the project, or before `_git` or `_apis`.
fn below_server(path: &str, project: [&str; 2]) -> Option<String> {
    let all = path.split('/').filter(|segment| !segment.is_empty());
    let mut before: Vec<String> = Vec::new();
    let mut is_within = false;
    for segment in all.map(decoded) {
        let segment = segment?;
        if matches!(segment.as_str(), "_git" | "_apis") {
            is_within = true;
            break;
        }
        before.push(segment);
    }
    let is_project = |name: &String| project.iter().any(|known| !known.is_empty() && known.eq_ignore_ascii_case(name));
    // An address may leave out the project if the repository has the project's name.
    if is_within && before.len() > 1 && before.last().is_some_and(is_project) {
        before.pop();
    }
    let name = before.join("/").to_lowercase();
    (!before.is_empty() && before.iter().all(|part| is_sound(part)) && is_organization(&name)).then_some(name)
}

/// Returns a segment of a path without its percent-encoding; absent if it is malformed or not UTF-8.
fn decoded(segment: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(segment.len()), segment.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_organization_is_found_in_every_form_of_an_address() {
        let services = AzureDevOpsAddress::new("dev.azure.com", "https://dev.azure.com");
        let server = AzureDevOpsAddress::new("tfs.example.com", "https://tfs.example.com:8080/tfs");
        for (address, host, wanted) in [
            ("https://dev.azure.com/acme/Infra/_git/live", &services, Some("acme")),
            ("https://acme@dev.azure.com/ACME/Infra/_git/live", &services, Some("acme")),
            ("https://ACME.visualstudio.com/Infra/_git/live", &services, Some("acme")),
            ("https://acme.visualstudio.com/DefaultCollection/_git/live", &services, Some("acme")),
            ("https://acme.visualstudio.com/", &services, Some("acme")),
            ("https://acme.vssps.visualstudio.com/_apis", &services, None),
            ("https://dev.azure.com/", &services, None),
            ("https://dev.azure.com.evil.example/acme/x", &services, None),
            ("https://evil.example/acme/x", &services, None),
            ("https://tfs.example.com:8080/tfs/DefaultCollection/x/_git/y", &server, Some("defaultcollection")),
            ("http://TFS.example.com/TFS/My%20Collection/", &server, Some("my collection")),
            ("https://tfs.example.com/other/DefaultCollection", &server, None),
            ("https://acme.visualstudio.com/x", &server, None),
            ("https://tfs.example.com/tfs/..%2fx", &server, None),
            ("ssh://git@tfs.example.com/tfs/x", &server, None),
            ("not an address", &server, None),
        ] {
            assert_eq!(host.organization(address, ["", ""]).as_deref(), wanted, "{address}");
        }
    }

    #[test]
    fn a_virtual_directory_that_the_setting_does_not_name_is_part_of_the_organization() {
        let server = AzureDevOpsAddress::new("tfs.example.com", "https://tfs.example.com");
        for (address, wanted) in [
            ("https://tfs.example.com/tfs/DefaultCollection/Cloud%20Infra/_git/live", Some("tfs/defaultcollection")),
            ("https://tfs.example.com/tfs/DefaultCollection/_git/Cloud%20Infra", Some("tfs/defaultcollection")),
            (
                "https://tfs.example.com/tfs/DefaultCollection/d3d3/_apis/git/repositories/c2",
                Some("tfs/defaultcollection"),
            ),
            ("https://tfs.example.com/tfs/DefaultCollection/_apis/git/repositories/c2", Some("tfs/defaultcollection")),
            ("https://tfs.example.com/tfs/DefaultCollection/", Some("tfs/defaultcollection")),
            ("https://tfs.example.com/DefaultCollection/Cloud%20Infra/_git/live", Some("defaultcollection")),
            ("https://tfs.example.com/DefaultCollection/_apis/git/repositories/c2", Some("defaultcollection")),
            ("https://tfs.example.com/DefaultCollection/", Some("defaultcollection")),
            ("https://tfs.example.com/a/b/c/Cloud%20Infra/_git/live", None),
            ("https://tfs.example.com/tfs/..%2fx/_git/live", None),
            ("https://tfs.example.com/", None),
        ] {
            assert_eq!(server.organization(address, ["Cloud Infra", "d3d3"]).as_deref(), wanted, "{address}");
        }
        let repo = server.repository("tfs/DefaultCollection", "Cloud Infra", "live").unwrap();
        let url = "https://tfs.example.com/tfs/defaultcollection/Cloud%20Infra/_git/live";
        assert_eq!(server.clone_url(&repo).unwrap(), url);
        assert_eq!(repo_path(&repo).unwrap(), "/tfs/defaultcollection/Cloud%20Infra/_apis/git/repositories/live");
        assert_eq!(organization_of(&repo), "tfs/defaultcollection");
        assert!(server.repository("a/b/c", "p", "r").is_none());
    }

    #[test]
    fn names_with_spaces_and_signs_stay_in_their_place() {
        let server = AzureDevOpsAddress::new("tfs.example.com", "https://tfs.example.com/tfs/");
        let repo = server.repository("DefaultCollection", "Cloud & Co", "infra+live #1").unwrap();
        assert_eq!(repo.to_string(), "tfs.example.com/defaultcollection/Cloud & Co/infra+live #1");
        let url = "https://tfs.example.com/tfs/defaultcollection/Cloud%20%26%20Co/_git/infra%2Blive%20%231";
        assert_eq!(server.clone_url(&repo).unwrap(), url);
        assert_eq!(server.pull_page(&repo, 7).unwrap(), format!("{url}/pullrequest/7"));
        let path = "/defaultcollection/Cloud%20%26%20Co/_apis/git/repositories/infra%2Blive%20%231";
        assert_eq!(repo_path(&repo).unwrap(), path);
        for name in ["", "..", ". .", "a/b", "a\\b", "-x", "a\nb", "a?b"] {
            assert!(server.repository("c", "p", name).is_none(), "{name:?}");
            assert!(server.repository("c", name, "r").is_none(), "{name:?}");
        }
        let odd = RepoId { owner: "only-one".into(), ..repo };
        assert!(repo_path(&odd).is_err() && server.clone_url(&odd).is_none());
    }
}
