//! Settings of the vault: where it lies, how long its leader may be silent, what stays restorable.

use super::check::expand;
use super::hosts::is_loopback;
use super::typed::Reader;
use super::{BucketAddress, VaultSettings};
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

/// Folder of the data directory that is the bucket unless another one is named.
const FOLDER: &str = "vault";
/// Least and longest life of a lease: Cloud Storage allows one write a second to one object, and people wait for a takeover.
const LEASE_TTL: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(600)];
/// Most days and states that may be kept.
const MAX_DAYS: i64 = 3650;
const MAX_STATES: i64 = 1_000_000;

/// All of them.
pub(super) fn settings(r: &mut Reader, data_dir: &Path) -> VaultSettings {
    VaultSettings {
        bucket: address(r, data_dir),
        force_takeover: r.switch("force-takeover"),
        keep: keep(r),
        keep_states: keep_states(r),
        lease_ttl: lease_ttl(r),
        sync_interval: r.duration("sync-interval"),
    }
}

/// `--bucket`.
pub(super) fn address(r: &mut Reader, data_dir: &Path) -> BucketAddress {
    let default = BucketAddress::Directory(data_dir.join(FOLDER));
    let Some(text) = r.optional("bucket") else { return default };
    let parsed = if let Some(path) = text.strip_prefix("file://") {
        directory(path, r).map(BucketAddress::Directory)
    } else if let Some(rest) = text.strip_prefix("gs://") {
        cloud_storage(rest).and_then(|(name, prefix)| {
            let endpoint = endpoint(&r.text("bucket-endpoint"))?;
            Ok(BucketAddress::CloudStorage { name, prefix, endpoint })
        })
    } else {
        Err("is neither gs://NAME/PREFIX nor file:///DIRECTORY".into())
    };
    parsed.map_err(|what| r.wrong("bucket", what)).unwrap_or(default)
}

fn directory(path: &str, r: &Reader) -> Result<PathBuf, String> {
    if !(path.starts_with('/') || path.starts_with("~/")) {
        return Err("names no absolute directory: write file:///DIRECTORY, with three slashes".into());
    }
    expand(path, &r.environment)
}

/// Names as Cloud Storage allows them, as far as a mistake would be hard to find later.
fn cloud_storage(rest: &str) -> Result<(String, String), String> {
    let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.trim_end_matches('/');
    let in_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    let in_prefix = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !(3..=222).contains(&name.len()) || !name.bytes().all(in_name) {
        return Err("names no bucket: its name has 3 to 222 lower-case letters, digits, dashes, dots".into());
    }
    let is_sound = |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(in_prefix);
    if !prefix.is_empty() && !prefix.split('/').all(is_sound) {
        return Err("has a prefix that is not made of letters, digits, dashes, dots, and single slashes".into());
    }
    Ok((name.into(), prefix.into()))
}

/// A double of the service gets no credentials, and no state that leaves this machine unprotected.
fn endpoint(text: &str) -> Result<Option<String>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match Url::parse(text) {
        Ok(url) if url.scheme() == "http" && is_loopback(&url) => Ok(Some(text.trim_end_matches('/').to_owned())),
        _ => Err("has a bucket-endpoint that is not http://LOOPBACK:PORT".into()),
    }
}

/// `--lease-ttl`.
fn lease_ttl(r: &mut Reader) -> Duration {
    let [least, longest] = LEASE_TTL;
    let ttl = r.duration("lease-ttl");
    if !(least..=longest).contains(&ttl) {
        r.wrong("lease-ttl", format!("is not from {}s to {}s", least.as_secs(), longest.as_secs()));
    }
    ttl.clamp(least, longest)
}

/// `--vault-keep-days`.
fn keep(r: &mut Reader) -> Duration {
    Duration::from_secs(r.number("vault-keep-days", 1, MAX_DAYS).unsigned_abs() * 24 * 3600)
}

/// `--vault-keep-states`.
fn keep_states(r: &mut Reader) -> u64 {
    r.number("vault-keep-states", 1, MAX_STATES).unsigned_abs()
}
