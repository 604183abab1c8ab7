//! Parses addresses: `gh-hostname`, and those of other servers.

use std::net::IpAddr;
use url::{Host, Url};

/// Name for repository ids, and base of the API.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GithubHost {
    pub(super) hostname: String,
    pub(super) api_url: String,
}

impl GithubHost {
    /// Returns true for GitHub's own hosts, as opposed to an Enterprise server.
    pub(super) fn is_githubs_own(&self) -> bool {
        self.hostname == "github.com" || self.hostname.ends_with(".ghe.com")
    }
}

/// Reads `gh-hostname`: `github.com`, `NAME.ghe.com`, `HOST[:PORT]`, or `http://LOOPBACK:PORT`.
pub(super) fn github(text: &str) -> Result<GithubHost, &'static str> {
    const FORM: &str = "is not of the form HOST or HOST:PORT";
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let url = Url::parse(&with_scheme).map_err(|_| FORM)?;
    let has_more = url.path() != "/" || url.query().is_some() || url.fragment().is_some() || !url.username().is_empty();
    let hostname = url.host_str().filter(|_| !has_more).ok_or(FORM)?.to_owned();
    let scheme = match url.scheme() {
        "https" => "https",
        "http" if is_loopback(&url) => "http",
        "http" => return Err("begins with http://, which is for loopback addresses only"),
        _ => return Err(FORM),
    };
    let port = url.port().map_or(String::new(), |port| format!(":{port}"));
    let api_url = match hostname.as_str() {
        "github.com" if scheme == "https" && port.is_empty() => "https://api.github.com".to_owned(),
        name if name.ends_with(".ghe.com") => format!("https://api.{name}{port}"),
        name => format!("{scheme}://{name}{port}/api/v3"),
    };
    Ok(GithubHost { hostname, api_url })
}

/// Returns true if the host of an address is this machine, judged by its form.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

/// Checks an `http` or `https` address, and removes its trailing slash.
pub(super) fn address(text: &str) -> Result<String, &'static str> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
            Ok(text.trim_end_matches('/').to_owned())
        }
        _ => Err("is no address that begins with http:// or https://"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_gh_hostname_leads_to_its_api() {
        let cases = [
            ("github.com", "github.com", "https://api.github.com"),
            ("GitHub.com", "github.com", "https://api.github.com"),
            ("https://github.com/", "github.com", "https://api.github.com"),
            ("acme.ghe.com", "acme.ghe.com", "https://api.acme.ghe.com"),
            ("git.example.com", "git.example.com", "https://git.example.com/api/v3"),
            ("localhost:8443", "localhost", "https://localhost:8443/api/v3"),
            ("http://127.0.0.1:4000", "127.0.0.1", "http://127.0.0.1:4000/api/v3"),
            ("http://localhost:4000", "localhost", "http://localhost:4000/api/v3"),
        ];
        for (text, hostname, api_url) in cases {
            let expected = GithubHost { hostname: hostname.to_owned(), api_url: api_url.to_owned() };
            assert_eq!(github(text), Ok(expected), "{text}");
        }
        for text in
            ["http://git.example.com", "git.example.com/path", "ftp://x", "", "a b", "u:p@host", "http://128.0.0.1"]
        {
            assert!(github(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_lose_their_trailing_slash() {
        assert_eq!(address("https://example.com/base/"), Ok("https://example.com/base".to_owned()));
        assert!(address("example.com").is_err());
        assert!(address("ftp://example.com").is_err());
    }
}
