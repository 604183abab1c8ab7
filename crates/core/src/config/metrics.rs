//! `metrics` of `repos.yaml`: receivers of the server's metrics besides `/metrics`.

use super::raw::LocatedText;
use super::yaml::{error_at, quoted};
use super::{ConfigError, ConfigErrors};
use serde::Deserialize;
use serde_saphyr::Spanned;

/// Longest `endpoint`, and longest name of a host.
const MAX_LENGTH: usize = 253;

/// Receivers of metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    /// `prometheus.endpoint`: another path for `/metrics`.
    pub endpoint: Option<String>,
    /// `statsd`.
    pub statsd: Option<StatsdAddress>,
}

/// Address of a statsd server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsdAddress {
    /// Name or address.
    pub host: String,
    /// UDP port.
    pub port: u16,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMetrics {
    prometheus: Option<Spanned<RawPrometheus>>,
    statsd: Option<Spanned<RawStatsd>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPrometheus {
    endpoint: Option<LocatedText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStatsd {
    host: Option<LocatedText>,
    port: Option<LocatedText>,
}

impl Metrics {
    pub(super) fn from_raw(raw: RawMetrics, file: &str, errors: &mut ConfigErrors) -> Metrics {
        let endpoint = errors.key(raw.prometheus.as_ref().map(|raw| endpoint(raw, file)));
        Metrics { endpoint, statsd: errors.key(raw.statsd.as_ref().map(|raw| statsd(raw, file))) }
    }
}

fn endpoint(raw: &Spanned<RawPrometheus>, file: &str) -> Result<String, ConfigError> {
    let needed = || error_at(file, raw, "prometheus: it needs `endpoint`, such as `endpoint: /metrics`");
    let text = raw.value.endpoint.as_ref().ok_or_else(needed)?;
    let path = text.value.as_str();
    let is_part = |part: &str| {
        let letters = part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '~'));
        letters && !part.trim_matches('.').is_empty()
    };
    let parts = path.strip_prefix('/').filter(|_| path.len() <= MAX_LENGTH);
    match parts.is_some_and(|parts| parts.split('/').all(is_part)) {
        true => Ok(path.to_owned()),
        false => {
            let message = format!("endpoint: `{}` is no path such as `/metrics`", quoted(path));
            Err(error_at(file, text, message))
        }
    }
}

fn statsd(raw: &Spanned<RawStatsd>, file: &str) -> Result<StatsdAddress, ConfigError> {
    let (Some(host), Some(port)) = (&raw.value.host, &raw.value.port) else {
        return Err(error_at(
            file,
            raw,
            "statsd: it needs `host` and `port`, such as `host: 127.0.0.1` and `port: 8125`",
        ));
    };
    let name = host.value.as_str();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if name.is_empty() || name.len() > MAX_LENGTH || !name.chars().all(is_name) {
        return Err(error_at(file, host, format!("host: `{}` is no name or address of a host", quoted(name))));
    }
    let number = port.value.parse::<u16>().ok().filter(|port| *port > 0);
    let number =
        number.ok_or_else(|| error_at(file, port, format!("port: `{}` is no port of UDP", quoted(&port.value))))?;
    Ok(StatsdAddress { host: name.to_owned(), port: number })
}
