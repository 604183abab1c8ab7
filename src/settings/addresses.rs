//! Parses addresses of other servers.

use std::net::IpAddr;
use url::{Host, Url};

/// Returns true if the host of an address is this machine, judged by its form.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

/// Parses `HOST[:PORT][/PATH]`, with or without `https://`, or `http://LOOPBACK[:PORT][/PATH]`. Returns the host's name, and the prefix of
/// every address there, without a slash at its end. The error for any other text is `form`.
pub(super) fn host_and_base(text: &str, form: &'static str) -> Result<(String, String), &'static str> {
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let url = Url::parse(&with_scheme).map_err(|_| form)?;
    let has_more = url.query().is_some() || url.fragment().is_some() || !url.username().is_empty();
    let hostname = url.host_str().filter(|_| !has_more).ok_or(form)?.to_owned();
    match url.scheme() {
        "https" => {}
        "http" if is_loopback(&url) => {}
        "http" => return Err("begins with http://, which is for loopback addresses only"),
        _ => return Err(form),
    }
    let port = url.port().map_or(String::new(), |port| format!(":{port}"));
    let path = url.path().trim_end_matches('/');
    let base = format!("{}://{hostname}{port}{path}", url.scheme());
    Ok((hostname, base))
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
    fn addresses_lose_their_trailing_slash() {
        assert_eq!(address("https://example.com/base/"), Ok("https://example.com/base".to_owned()));
        assert!(address("example.com").is_err());
        assert!(address("ftp://example.com").is_err());
    }
}
