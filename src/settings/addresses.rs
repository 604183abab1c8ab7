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
