//! Reads `module-credentials`: the addresses from which `terraform init` may fetch modules with the server's token.

use super::typed::Reader;
use super::{addresses, hosts};
use url::Url;

/// Reads addresses without a trailing slash: `https://github.com/acme`. The default is that of `write-git-creds`.
pub(super) fn origins(r: &mut Reader, name: &str) -> Vec<String> {
    let given = r.list(name);
    if given.is_empty() && r.switch("write-git-creds") {
        return of_all_hosts(r);
    }
    let mut origins = Vec::new();
    let hosts: Vec<String> = hosts::ALL.iter().map(|host| host.git_address(r)).collect();
    for text in given {
        match origin(&text) {
            Ok(origin) if hosts.iter().any(|host| is_other_port(&origin, host)) => {
                r.wrong(
                    name,
                    format!("has {text}, which is another port of a host than the one that the token is for"),
                );
            }
            Ok(origin) => origins.push(origin),
            Err(what) => r.wrong(name, format!("has {text}, which {what}")),
        }
    }
    origins
}

/// Returns true if the address is another port of this host. That is another program, which must not receive the host's token.
fn is_other_port(address: &str, host: &str) -> bool {
    let parsed = |text: &str| origin(text).ok().and_then(|text| Url::parse(&text).ok());
    parsed(address).zip(parsed(host)).is_some_and(|(address, host)| {
        address.host() == host.host() && address.port_or_known_default() != host.port_or_known_default()
    })
}

/// Returns the hosts of every repository that the server's tokens can read, as Atlantis allows it.
fn of_all_hosts(r: &mut Reader) -> Vec<String> {
    let mut origins = Vec::new();
    for host in hosts::ALL.iter().filter(|host| host.has_account(r)) {
        origins.extend(origin(&host.git_address(r)));
    }
    r.warn(
        "write-git-creds",
        format!(
            "lets every plan read what the server's token can read: it is taken as module-credentials={}. Name organizations there \
             instead, such as github.com/acme. No ~/.git-credentials is written",
            origins.join(",")
        ),
    );
    origins
}

/// Returns the name of the host of an address of `module-credentials`; empty if it has none.
pub fn host_of_origin(address: &str) -> String {
    Url::parse(address).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default()
}

fn origin(text: &str) -> Result<String, &'static str> {
    const FORM: &str = "is not of the form HOST or HOST/ORGANIZATION";
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let url = Url::parse(&with_scheme).map_err(|_| FORM)?;
    if url.host_str().is_none() || url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
        return Err(FORM);
    }
    match url.scheme() {
        "https" => {}
        "http" if addresses::is_loopback(&url) => {}
        _ => return Err("does not begin with https://"),
    }
    // No part may have a meaning in git's configuration, or lead out of its place.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~%+/".contains(c);
    if !url.path().chars().all(plain) || url.path().contains("//") {
        return Err(FORM);
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_port_of_a_host_is_not_the_host() {
        assert!(is_other_port("https://github.com:8443/acme", "github.com"));
        assert!(is_other_port("http://127.0.0.1:1/acme", "http://127.0.0.1:2"));
        assert!(!is_other_port("https://github.com/acme", "github.com"));
        assert!(!is_other_port("https://git.example.com:8443", "git.example.com:8443"));
        assert!(!is_other_port("https://dev.azure.com/acme", "github.com"));
    }

    #[test]
    fn an_origin_is_a_host_with_or_without_an_organization() {
        for (text, expected) in [
            ("github.com", "https://github.com"),
            ("github.com/acme/", "https://github.com/acme"),
            ("https://dev.azure.com/acme", "https://dev.azure.com/acme"),
            ("git.example.com:8443/x", "https://git.example.com:8443/x"),
            ("http://127.0.0.1:3000/acme", "http://127.0.0.1:3000/acme"),
        ] {
            assert_eq!(origin(text).as_deref(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "http://github.com",
            "ssh://git@github.com/acme",
            "https://me@github.com",
            "github.com/a?b",
            "github.com//a",
            "github.com/[x]",
        ] {
            assert!(origin(text).is_err(), "{text}");
        }
    }
}
