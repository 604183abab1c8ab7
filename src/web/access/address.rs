//! The origin of a delivery: the client's address behind trusted proxies, and the ranges that may send deliveries.

use http::HeaderMap;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

const FORWARDED_FOR: &str = "x-forwarded-for";
/// Most entries of `X-Forwarded-For`.
const MAX_ENTRIES: usize = 64;
/// Most ranges of one published list.
const MAX_RANGES: usize = 1000;

/// GitHub's ranges for webhooks (api.github.com/meta, `hooks`; as of November 2026), used until they are refreshed.
const GITHUB: &[&str] =
    &["192.30.252.0/22", "185.199.108.0/22", "140.82.112.0/20", "143.55.64.0/20", "2a0a:a440::/29", "2606:50c0::/32"];
/// Interval of refreshing the published ranges, and the delay after a failure.
const REFRESH: Duration = Duration::from_secs(6 * 3600);
const TRY_AGAIN: Duration = Duration::from_secs(600);
/// Azure DevOps' ranges for service hooks (learn.microsoft.com, "Allowed IP addresses and domain URLs"; as of November
/// 2026). Microsoft publishes no machine-readable list of these.
const AZURE_DEVOPS: &[&str] = &[
    "20.37.158.0/23",
    "20.37.194.0/24",
    "20.39.13.0/26",
    "20.41.6.0/23",
    "20.41.194.0/24",
    "20.42.5.0/24",
    "20.42.134.0/23",
    "20.42.226.0/24",
    "20.45.196.64/26",
    "20.91.148.128/25",
    "20.125.155.0/24",
    "20.166.41.0/24",
    "20.189.107.0/24",
    "20.195.68.0/24",
    "20.204.197.192/26",
    "20.233.130.0/25",
    "40.74.28.0/23",
    "40.80.187.0/24",
    "40.82.252.0/24",
    "40.119.10.0/24",
    "51.104.26.0/24",
    "52.150.138.0/24",
    "52.228.82.0/24",
    "191.235.226.0/24",
];

/// The client's address: the peer's without trusted proxies, otherwise the `hops`th entry of `X-Forwarded-For` from the
/// right. Each proxy appends the address that it saw; entries further left are the client's own and not trusted. `None`
/// if there are too few entries or the entry is no address.
pub fn client(peer: SocketAddr, headers: &HeaderMap, hops: u8) -> Option<IpAddr> {
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

/// The addresses that may send deliveries.
pub struct Sources {
    fixed: Vec<IpNet>,
    github: Option<RwLock<Vec<IpNet>>>,
}

impl Sources {
    /// Parses the words of `--webhook-allowlist`: `github`, `azuredevops`, addresses and ranges. `None` for an empty
    /// list: all addresses may send deliveries, and signatures decide.
    ///
    /// # Errors
    ///
    /// The first invalid word.
    pub fn parse(words: &[String]) -> Result<Option<Sources>, String> {
        let mut sources = Sources { fixed: Vec::new(), github: None };
        for word in words {
            match word.to_ascii_lowercase().as_str() {
                "github" => sources.github = Some(RwLock::new(nets(GITHUB))),
                "azuredevops" => sources.fixed.extend(nets(AZURE_DEVOPS)),
                other => {
                    let net = other.parse().or_else(|_| other.parse::<IpAddr>().map(IpNet::from));
                    sources.fixed.push(net.map_err(|_| {
                        format!("`{word}` is no range: `github`, `azuredevops`, or ranges such as 192.0.2.0/24")
                    })?);
                }
            }
        }
        Ok((!words.is_empty()).then_some(sources))
    }

    /// Whether this address may send deliveries.
    pub fn allow(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let has = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&address));
        has(&self.fixed)
            || self.github.as_ref().is_some_and(|nets| has(&nets.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Refreshes the ranges that GitHub publishes at `meta_url`, now and every few hours, forever. A failure keeps the
    /// old ones.
    pub async fn keep_fresh(&self, meta_url: &str) {
        while self.github.is_some() {
            match self.refresh(meta_url).await {
                Ok(count) => {
                    tracing::info!(count, url = meta_url, "GitHub's published ranges for deliveries are in force");
                    tokio::time::sleep(REFRESH).await;
                }
                Err(error) => {
                    tracing::warn!(
                        url = meta_url,
                        "GitHub's published ranges could not be read, so those known before stay in force: {error:#}"
                    );
                    tokio::time::sleep(TRY_AGAIN).await;
                }
            }
        }
    }

    /// Loads the published ranges and returns their number.
    async fn refresh(&self, meta_url: &str) -> anyhow::Result<usize> {
        let Some(github) = &self.github else { return Ok(0) };
        let client = super::iap::client()?;
        let request = client.get(meta_url).header("user-agent", "tidelock").header("accept", "application/json");
        let body = super::iap::bounded(request.send().await?.error_for_status()?).await?;
        let meta: Meta = serde_json::from_slice(&body)?;
        let nets: Vec<IpNet> = meta.hooks.iter().take(MAX_RANGES).filter_map(|text| text.parse().ok()).collect();
        // An empty list or a range of almost everything is rejected.
        anyhow::ensure!(!nets.is_empty() && nets.iter().all(|net| net.prefix_len() >= 8), "its `hooks` are no ranges");
        let count = nets.len();
        *github.write().unwrap_or_else(PoisonError::into_inner) = nets;
        Ok(count)
    }
}

#[derive(serde::Deserialize)]
struct Meta {
    hooks: Vec<String>,
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
        assert!(Sources::parse(&[]).unwrap().is_none());
        let sources =
            Sources::parse(&words(&["GitHub", "azuredevops", "192.0.2.0/24", "2001:db8::7"])).unwrap().unwrap();
        let allowed = ["192.30.252.9", "140.82.127.255", "2606:50c0::1", "20.37.159.1", "192.0.2.7", "2001:db8::7"];
        for address in allowed {
            assert!(sources.allow(address.parse().unwrap()), "{address}");
        }
        for address in ["192.30.251.255", "192.0.3.1", "2001:db8::8", "127.0.0.1", "::1"] {
            assert!(!sources.allow(address.parse().unwrap()), "{address}");
        }
        assert!(sources.allow("::ffff:192.0.2.7".parse().unwrap()));
        let error = Sources::parse(&words(&["gitea"])).err().unwrap();
        assert_eq!(error, "`gitea` is no range: `github`, `azuredevops`, or ranges such as 192.0.2.0/24");
        assert_eq!(nets(GITHUB).len(), GITHUB.len());
        assert_eq!(nets(AZURE_DEVOPS).len(), AZURE_DEVOPS.len());
    }
}
