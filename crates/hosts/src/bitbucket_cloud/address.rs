//! Addresses of Bitbucket Cloud: the API at `https://api.bitbucket.org/2.0`, pages and repositories at `https://bitbucket.org`. A proxy
//! serves both below one address, the API at `/2.0`.

use crate::vcs::HostError;
use crate::vcs::http::segment;
use tidelock_core::domain::RepoId;
use url::Url;

/// Hosts of the API and of the pages.
const OWN_HOSTS: [&str; 2] = ["api.bitbucket.org", "bitbucket.org"];
/// Path of the API below the address of a host or a proxy.
const API: &str = "/2.0";
/// Longest name of a workspace or repository that is accepted, in bytes: a bound of our own.
const MAX_NAME: usize = 128;

/// Address of Bitbucket Cloud, or of a proxy before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitbucketCloudAddress {
    hostname: String,
    site: String,
    api: String,
}

impl Default for BitbucketCloudAddress {
    /// Returns the address of bitbucket.org.
    fn default() -> BitbucketCloudAddress {
        BitbucketCloudAddress {
            hostname: OWN_HOSTS[1].to_owned(),
            site: format!("https://{}", OWN_HOSTS[1]),
            api: format!("https://{}{API}", OWN_HOSTS[0]),
        }
    }
}

impl BitbucketCloudAddress {
    /// Reads the setting `--bitbucket-base-url`.
    ///
    /// # Errors
    ///
    /// Reason, as text that follows the setting's name: it is no address, or that of Bitbucket Data Center.
    pub fn of_base_url(url: &str) -> Result<BitbucketCloudAddress, String> {
        let Ok(parsed) = Url::parse(url) else { return Err("is no address".to_owned()) };
        let Some(host) = parsed.host_str().filter(|_| matches!(parsed.scheme(), "https" | "http")) else {
            return Err("does not begin with https://".to_owned());
        };
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err("contains a user name or a password".to_owned());
        }
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err("has a query or a fragment".to_owned());
        }
        if OWN_HOSTS.contains(&host) {
            return match parsed.scheme() {
                "https" => Ok(BitbucketCloudAddress::default()),
                _ => Err("does not begin with https://".to_owned()),
            };
        }
        let whole = parsed.as_str().trim_end_matches('/');
        match whole.strip_suffix(API) {
            Some(site) => Ok(BitbucketCloudAddress {
                hostname: host.to_ascii_lowercase(),
                site: site.to_owned(),
                api: whole.to_owned(),
            }),
            None => Err(format!(
                "is neither https://{} nor an address that ends with {API}: Bitbucket Data Center is not supported",
                OWN_HOSTS[0]
            )),
        }
    }

    /// Host name, as in repository ids.
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// Prefix of the addresses of pages and repositories, without a slash at its end.
    pub fn site(&self) -> &str {
        &self.site
    }

    /// Prefix of the addresses of the API, without a slash at its end.
    pub fn api(&self) -> &str {
        &self.api
    }

    /// Returns the repository of a full name; absent if it cannot be one.
    pub fn repository(&self, full_name: &str) -> Option<RepoId> {
        let (owner, name) = full_name.split_once('/')?;
        let repo = RepoId { host: self.hostname.clone(), owner: owner.to_owned(), name: name.to_owned() };
        is_sound(&repo).then_some(repo)
    }

    /// Address from which git fetches a repository; absent if its names cannot be a repository's.
    pub fn clone_url(&self, repo: &RepoId) -> Option<String> {
        is_sound(repo).then(|| format!("{}/{}.git", self.site, repo.full_name()))
    }

    /// Path of a repository in the API, such as `/repositories/acme/infra`.
    ///
    /// # Errors
    ///
    /// [`HostError::Rejected`] if the names cannot be a repository's.
    pub fn repo_path(&self, repo: &RepoId) -> Result<String, HostError> {
        if is_sound(repo) {
            return Ok(format!("/repositories/{}/{}", segment(&repo.owner), segment(&repo.name)));
        }
        let message = "no such repository can exist".to_owned();
        Err(HostError::Rejected { what: repo.to_string(), status: 404, message })
    }
}

/// Returns true if the names can be a repository's: letters, digits, `_`, `-` and `.`.
fn is_sound(repo: &RepoId) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part.len() <= MAX_NAME
            && part.chars().all(|char| char.is_ascii_alphanumeric() || "_-.".contains(char))
            && part.chars().any(|char| char != '.')
    };
    is_part(&repo.owner) && is_part(&repo.name) && !repo.name.to_ascii_lowercase().ends_with(".git")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_url_is_of_the_host_or_of_a_proxy() {
        for url in [
            "https://api.bitbucket.org",
            "https://api.bitbucket.org/",
            "https://api.bitbucket.org/2.0",
            "https://Bitbucket.org",
        ] {
            assert_eq!(BitbucketCloudAddress::of_base_url(url), Ok(BitbucketCloudAddress::default()), "{url}");
        }
        let proxy = BitbucketCloudAddress::of_base_url("http://127.0.0.4:7990/bb/2.0/").unwrap();
        assert_eq!(
            (proxy.hostname(), proxy.site(), proxy.api()),
            ("127.0.0.4", "http://127.0.0.4:7990/bb", "http://127.0.0.4:7990/bb/2.0")
        );
        for (url, why) in [
            ("bitbucket.org", "no address"),
            ("ssh://bitbucket.org", "https://"),
            ("http://api.bitbucket.org", "https://"),
            ("https://bitbucket.example.com", "Data Center"),
            ("https://bitbucket.example.com/rest/api/2.0x", "Data Center"),
            ("https://me:secret@bitbucket.example.com/2.0", "password"),
            ("https://bitbucket.example.com/2.0?a=b", "query"),
            ("https://bitbucket.org.evil.example", "Data Center"),
        ] {
            let refused = BitbucketCloudAddress::of_base_url(url).unwrap_err();
            assert!(refused.contains(why), "{url}: {refused}");
        }
    }

    #[test]
    fn a_repository_has_one_id_and_one_address() {
        let address = BitbucketCloudAddress::default();
        for name in ["acme/infra", "a_b-c/infra.v2", "acme/-"] {
            let repo = address.repository(name).unwrap();
            assert_eq!(repo.to_string(), format!("bitbucket.org/{name}"));
            assert_eq!(address.clone_url(&repo).unwrap(), format!("https://bitbucket.org/{name}.git"));
            assert_eq!(address.repo_path(&repo).unwrap(), format!("/repositories/{name}"));
            assert_eq!(repo.check_clone_url(&address.clone_url(&repo).unwrap()), Ok(()));
        }
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_no_repository() {
        let address = BitbucketCloudAddress::default();
        let long = format!("acme/{}", "a".repeat(MAX_NAME + 1));
        for name in
            ["infra", "/infra", "acme/", "acme/..", "../infra", "a b/infra", "acme/a.git", "acme/a/b", "a?/b", &long]
        {
            assert_eq!(address.repository(name), None, "{name}");
        }
        let odd = RepoId { host: "bitbucket.org".into(), owner: "{}".into(), name: "a".into() };
        assert!(address.clone_url(&odd).is_none() && address.repo_path(&odd).is_err());
    }
}
