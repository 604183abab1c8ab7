//! Check of the URLs that git fetches from: the server's token is sent to them.

use super::RepoId;
use url::{Host, Url};

impl RepoId {
    /// Checks a clone URL that a host gave for this repository. It has to lead to the configured host and to this repository only,
    /// encrypted unless it stays on this machine.
    ///
    /// # Errors
    ///
    /// Reason, as text that follows "the address".
    pub fn check_clone_url(&self, url: &str) -> Result<(), String> {
        let Ok(parsed) = Url::parse(url) else { return Err("is no address".to_owned()) };
        let is_loopback = match parsed.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        };
        if parsed.scheme() != "https" && !(parsed.scheme() == "http" && is_loopback) {
            return Err("does not begin with https://".to_owned());
        }
        if !parsed.host_str().is_some_and(|name| name.eq_ignore_ascii_case(&self.host)) {
            return Err(format!("is not at {}: is --gh-hostname right?", self.host));
        }
        let path = format!("/{}.git", self.full_name());
        if !parsed.username().is_empty() || parsed.password().is_some() || !parsed.path().eq_ignore_ascii_case(&path) {
            return Err(format!("does not lead to {path}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_repositorys_own_address_is_taken() {
        let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
        for (url, wrong) in [
            ("https://github.com/acme/infra.git", ""),
            ("https://GitHub.com/Acme/INFRA.git", ""),
            ("https://github.com/acme/other.git", "does not lead to"),
            ("https://github.com/acme/infra.git/../other.git", "does not lead to"),
            ("https://me:secret@github.com/acme/infra.git", "does not lead to"),
            ("https://evil.example/acme/infra.git", "is not at github.com"),
            ("http://github.com/acme/infra.git", "does not begin with https"),
            ("ssh://git@github.com/acme/infra.git", "does not begin with https"),
            ("github.com/acme/infra.git", "is no address"),
        ] {
            let said = repo.check_clone_url(url).err().unwrap_or_default();
            assert!(said.contains(wrong) && said.is_empty() == wrong.is_empty(), "{url}: {said}");
        }
    }
}
