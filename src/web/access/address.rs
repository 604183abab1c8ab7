//! The origin of a delivery: the client's address behind trusted proxies, and the ranges that may send deliveries.

use http::HeaderMap;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

const FORWARDED_FOR: &str = "x-forwarded-for";
/// Maximum number of entries of `X-Forwarded-For`.
const MAX_ENTRIES: usize = 64;
/// Maximum number of ranges of one published list.
const MAX_RANGES: usize = 1000;

/// Interval of refreshing the published ranges, and the delay after a failure.
const REFRESH: Duration = Duration::from_secs(6 * 3600);
const TRY_AGAIN: Duration = Duration::from_secs(600);
/// Returns the client's address: the peer's without trusted proxies, otherwise the `hops`th entry of `X-Forwarded-For` from the right.
/// Each proxy appends the address that it saw; entries further left are the client's own and not trusted. `None` if there are too few
/// entries or the entry is no address.
pub(crate) fn client(peer: SocketAddr, headers: &HeaderMap, hops: u8) -> Option<IpAddr> {
    let Some(place) = usize::from(hops).checked_sub(1) else { return Some(peer.ip().to_canonical()) };
    let mut entries = Vec::new();
    for value in headers.get_all(FORWARDED_FOR) {
        entries.extend(value.to_str().ok()?.split(',').map(str::trim));
        if entries.len() > MAX_ENTRIES {
            return None;
        }
    }
    let entry = entries.iter().rev().nth(place)?;
    entry.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// Address ranges that a host publishes.
pub struct Published {
    /// Their word in `--webhook-allowlist`, lower case.
    pub word: &'static str,
    /// Used until they are refreshed.
    pub known: &'static [&'static str],
    /// Address of the published list; `None` if the host has none.
    pub address: Option<String>,
    /// Reads the ranges from that list.
    pub read: fn(&[u8]) -> Option<Vec<String>>,
}

/// Addresses that may send deliveries.
pub struct Sources {
    fixed: Vec<IpNet>,
    published: Vec<(Published, RwLock<Vec<IpNet>>)>,
}

impl Sources {
    /// Parses the words of `--webhook-allowlist`: those of `hosts`, addresses and ranges. `None` for an empty list: all addresses may
    /// send deliveries, and their signatures are verified.
    pub fn parse(words: &[String], hosts: Vec<Published>) -> Result<Option<Sources>, String> {
        let mut sources = Sources { fixed: Vec::new(), published: Vec::new() };
        let is_host = |word: &String| hosts.iter().any(|host| word.eq_ignore_ascii_case(host.word));
        for word in words.iter().filter(|word| !is_host(word)) {
            let lower = word.to_ascii_lowercase();
            let net = lower.parse().or_else(|_| lower.parse::<IpAddr>().map(IpNet::from));
            sources.fixed.push(net.map_err(|_| {
                let hosts: Vec<String> = hosts.iter().map(|host| format!("`{}`", host.word)).collect();
                format!("`{word}` is no range: {}, or ranges such as 192.0.2.0/24", hosts.join(", "))
            })?);
        }
        let named = hosts.into_iter().filter(|host| words.iter().any(|word| word.eq_ignore_ascii_case(host.word)));
        sources.published.extend(named.map(|host| {
            let known = nets(host.known);
            (host, RwLock::new(known))
        }));
        Ok((!words.is_empty()).then_some(sources))
    }

    /// Returns true if this address may send deliveries.
    pub fn allow(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let has = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&address));
        let is_in = |nets: &RwLock<Vec<IpNet>>| has(&nets.read().unwrap_or_else(PoisonError::into_inner));
        has(&self.fixed) || self.published.iter().any(|(_, nets)| is_in(nets))
    }

    /// Refreshes the ranges that hosts publish, now and every few hours, forever. A failure keeps the old ones.
    pub async fn keep_fresh(&self) {
        futures::future::join_all(self.published.iter().map(|(host, nets)| keep_fresh(host, nets))).await;
    }
}

async fn keep_fresh(host: &Published, nets: &RwLock<Vec<IpNet>>) {
    let Some(url) = &host.address else { return };
    loop {
        match refresh(host, url, nets).await {
            Ok(count) => {
                tracing::info!(count, url, host = host.word, "the host's published ranges for deliveries are in force");
                tokio::time::sleep(REFRESH).await;
            }
            Err(error) => {
                tracing::warn!(
                    url,
                    host = host.word,
                    "the host's published ranges could not be read, so those known before stay in force: {error:#}"
                );
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
    }
}

/// Refreshes the ranges of a host, and returns their number.
async fn refresh(host: &Published, url: &str, nets: &RwLock<Vec<IpNet>>) -> anyhow::Result<usize> {
    let client = super::google_tokens::client()?;
    let request = client.get(url).header("user-agent", "tidelock").header("accept", "application/json");
    let body = super::google_tokens::bounded(request.send().await?.error_for_status()?).await?;
    let found = (host.read)(&body).unwrap_or_default();
    let found: Vec<IpNet> = found.iter().take(MAX_RANGES).filter_map(|text| text.parse().ok()).collect();
    // An empty list, and one with a range of nearly all addresses, are invalid.
    anyhow::ensure!(!found.is_empty() && found.iter().all(|net| net.prefix_len() >= 8), "no ranges are in it");
    let count = found.len();
    *nets.write().unwrap_or_else(PoisonError::into_inner) = found;
    Ok(count)
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn seen(chain: &[&str], hops: u8) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in chain {
            headers.append(FORWARDED_FOR, HeaderValue::from_str(value).unwrap());
        }
        client("203.0.113.9:1234".parse().unwrap(), &headers, hops).map(|address| address.to_string())
    }

    #[test]
    fn the_client_is_the_entry_that_the_trusted_proxies_wrote() {
        let vectors: [(&[&str], u8, Option<&str>); 13] = [
            (&[], 0, Some("203.0.113.9")),
            (&["198.51.100.1"], 0, Some("203.0.113.9")),
            (&["198.51.100.1"], 1, Some("198.51.100.1")),
            (&["10.0.0.1, 198.51.100.1"], 1, Some("198.51.100.1")),
            (&["140.82.112.1, 198.51.100.1, 35.191.0.1"], 2, Some("198.51.100.1")),
            (&["140.82.112.1", "198.51.100.1, 35.191.0.1"], 2, Some("198.51.100.1")),
            (&["198.51.100.1", "35.191.0.1"], 2, Some("198.51.100.1")),
            (&["198.51.100.1"], 2, None),
            (&[], 1, None),
            (&["unknown"], 1, None),
            (&["198.51.100.1,"], 1, None),
            (&["198.51.100.1:443"], 1, None),
            (&["2001:db8::1"], 1, Some("2001:db8::1")),
        ];
        for (chain, hops, expected) in vectors {
            assert_eq!(seen(chain, hops).as_deref(), expected, "{chain:?} {hops}");
        }
        assert_eq!(seen(&["198.51.100.1,".repeat(70).as_str()], 1), None);
        assert_eq!(seen(&["::ffff:198.51.100.1"], 1).as_deref(), Some("198.51.100.1"));
    }

    #[test]
    fn ranges_are_named_or_written_out() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(Sources::parse(&[], Vec::new()).unwrap().is_none());
        let hosts = || {
            let known: [(&str, &[&str]); 3] = [
                ("one", &["192.30.252.0/22", "2606:50c0::/32"]),
                ("two", &["20.37.158.0/23"]),
                ("three", &["0.0.0.0/8"]),
            ];
            known.map(|(word, known)| Published { word, known, address: None, read: |_| None }).into()
        };
        let parse = |list: &[&str]| Sources::parse(&words(list), hosts());
        let sources = parse(&["One", "two", "192.0.2.0/24", "2001:db8::7"]).unwrap().unwrap();
        let allowed = ["192.30.252.9", "2606:50c0::1", "20.37.159.1", "192.0.2.7", "2001:db8::7"];
        for address in allowed {
            assert!(sources.allow(address.parse().unwrap()), "{address}");
        }
        for address in ["192.30.251.255", "192.0.3.1", "2001:db8::8", "127.0.0.1", "::1", "0.0.0.1"] {
            assert!(!sources.allow(address.parse().unwrap()), "{address}");
        }
        assert!(sources.allow("::ffff:192.0.2.7".parse().unwrap()));
        let error = parse(&["four"]).err().unwrap();
        assert_eq!(error, "`four` is no range: `one`, `two`, `three`, or ranges such as 192.0.2.0/24");
    }
}
