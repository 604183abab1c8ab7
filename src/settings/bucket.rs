//! Checks of the settings of the vault, and the format of a bucket's address.

use super::SettingsError;
use super::addresses::is_loopback;
use super::check::expand;
use super::typed::{Reader, none_of};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// Folder of the data directory that is the default bucket.
const FOLDER: &str = "vault";
/// Shortest and longest life of a lease: Cloud Storage allows one write a second to one object, and people wait for a takeover.
const LEASE_TTL: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(600)];

/// Place of the vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BucketAddress {
    /// Directory of this machine, with an absolute path.
    Directory(PathBuf),
    /// Bucket of Cloud Storage.
    CloudStorage {
        /// Name of the bucket.
        name: String,
        /// Segments joined by `/`, without slashes around them; may be empty.
        prefix: String,
        /// Address of a double of the service on this machine, for tests.
        endpoint: Option<String>,
    },
}

impl BucketAddress {
    /// Returns the bucket that a server with these flags (`--bucket`, `--data-dir`, `--config`) and variables would use.
    pub fn load(
        args: impl IntoIterator<Item = OsString>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<BucketAddress, SettingsError> {
        let mut reader = Reader::new(args, env)?;
        let address = address(&mut reader, "bucket");
        none_of(&reader.finish().2).map(|()| address)
    }

    /// Loads like [`BucketAddress::load`], with the variables of this process.
    pub fn from_process(args: impl IntoIterator<Item = OsString>) -> Result<BucketAddress, SettingsError> {
        BucketAddress::load(args, std::env::vars_os())
    }
}

/// Reads `--bucket`; the default is a folder of the data directory.
pub(super) fn address(r: &mut Reader, name: &str) -> BucketAddress {
    let default = |r: &mut Reader| BucketAddress::Directory(super::check::data_dir(r, "data-dir").join(FOLDER));
    let Some(text) = r.optional(name) else { return default(r) };
    let parsed = if let Some(path) = text.strip_prefix("file://") {
        directory(path, r).map(BucketAddress::Directory)
    } else if let Some(rest) = text.strip_prefix("gs://") {
        cloud_storage(rest).and_then(|(name, prefix)| {
            let endpoint =
                endpoint(&r.text("bucket-endpoint")).map_err(|what| format!("has a bucket-endpoint that {what}"))?;
            Ok(BucketAddress::CloudStorage { name, prefix, endpoint })
        })
    } else {
        Err("is neither gs://NAME/PREFIX nor file:///DIRECTORY".into())
    };
    parsed.unwrap_or_else(|what| {
        r.wrong(name, what);
        default(r)
    })
}

fn directory(path: &str, r: &Reader) -> Result<PathBuf, String> {
    if !(path.starts_with('/') || path.starts_with("~/")) {
        return Err("names no absolute directory: write file:///DIRECTORY, with three slashes".into());
    }
    expand(path, &r.environment)
}

/// Splits a bucket's name and prefix. Rejects names that Cloud Storage does not allow, as far as such a mistake would be hard to find
/// later.
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

/// Parses the address of a double of the service, which must be on this machine: it gets no credentials, and no state may leave
/// unprotected.
fn endpoint(text: &str) -> Result<Option<String>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match Url::parse(text) {
        Ok(url) if url.scheme() == "http" && is_loopback(&url) => Ok(Some(text.trim_end_matches('/').to_owned())),
        _ => Err("is not http://LOOPBACK:PORT".into()),
    }
}

/// Reads the address of a double of another service.
pub(super) fn double(r: &mut Reader, name: &str) -> Option<String> {
    endpoint(&r.text(name)).unwrap_or_else(|what| {
        r.wrong(name, what);
        None
    })
}

/// Reads `--lease-ttl`.
pub(super) fn lease_ttl(r: &mut Reader, name: &str) -> Duration {
    let [least, longest] = LEASE_TTL;
    let ttl = r.duration(name);
    if !(least..=longest).contains(&ttl) {
        r.wrong(name, format!("is not from {}s to {}s", least.as_secs(), longest.as_secs()));
    }
    ttl.clamp(least, longest)
}
