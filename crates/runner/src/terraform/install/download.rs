//! Downloads from release servers in HashiCorp's and OpenTofu's layouts. Files are verified before they can be run.

use super::signature;
use super::{InstallSettings, OPENTOFU_RELEASES};
use anyhow::{Context, anyhow, bail, ensure};
use backon::{ExponentialBuilder, Retryable as _};
use semver::Version;
use serde::Deserialize;
use serde::de::IgnoredAny;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tidelock_core::domain::Distribution;
use tokio::io::AsyncWriteExt;

/// Largest list of versions, checksums or signatures, in bytes.
const LARGEST_TEXT: usize = 64 << 20;
/// Largest zip, in bytes.
const LARGEST_ZIP: u64 = 512 << 20;
/// Largest binary in a zip, in bytes.
const LARGEST_BINARY: u64 = 1 << 30;
/// Waits before repeated requests, if the server or the network fails.
const RETRIES: ExponentialBuilder =
    tidelock_retry::jittered(Duration::from_millis(300), Duration::from_secs(1)).with_max_times(2);
/// Timeout of connecting, and of the wait between two chunks of a response.
const CONNECT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(60);
/// Age from which unfinished files of killed servers are removed.
const LEFT_OVER: Duration = Duration::from_secs(3600);
/// Prefix of unfinished files.
const UNFINISHED: &str = ".download-";

/// A client of release servers, created when it is first needed.
#[derive(Default)]
pub(super) struct Downloads {
    client: OnceLock<reqwest::Client>,
}

impl Downloads {
    fn client(&self) -> anyhow::Result<reqwest::Client> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        // Another part of the process may have installed one already, which is used then.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = reqwest::Client::builder().user_agent("tidelock").connect_timeout(CONNECT).read_timeout(SILENCE);
        let client = builder.build().context("cannot make an HTTP client")?;
        Ok(self.client.get_or_init(|| client).clone())
    }

    /// Returns a response with status 2xx; `None` for 404, and for 403, which object stores return for missing objects.
    async fn get(&self, url: &str) -> anyhow::Result<Option<reqwest::Response>> {
        let client = self.client()?;
        let answered = (|| request(&client, url)).retry(RETRIES).await.flatten();
        answered.with_context(|| format!("cannot download {url}"))
    }

    async fn text(&self, url: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let Some(mut response) = self.get(url).await? else { return Ok(None) };
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.with_context(|| format!("cannot download {url}"))? {
            ensure!(body.len() + chunk.len() <= LARGEST_TEXT, "{url} is longer than {LARGEST_TEXT} bytes");
            body.extend_from_slice(&chunk);
        }
        Ok(Some(body))
    }

    /// Returns all versions of the release server, without enterprise builds.
    pub(super) async fn versions(
        &self,
        settings: &InstallSettings,
        which: Distribution,
    ) -> anyhow::Result<Vec<Version>> {
        #[derive(Deserialize)]
        struct HashiCorp {
            versions: HashMap<String, IgnoredAny>,
        }
        #[derive(Deserialize)]
        struct OpenTofu {
            versions: Vec<OpenTofuVersion>,
        }
        #[derive(Deserialize)]
        struct OpenTofuVersion {
            id: String,
        }
        let base = settings.base_url(which);
        let url = match which {
            Distribution::Terraform => format!("{base}/terraform/index.json"),
            Distribution::OpenTofu if base == OPENTOFU_RELEASES => "https://get.opentofu.org/tofu/api.json".into(),
            Distribution::OpenTofu => format!("{base}/api.json"),
        };
        let body = self.text(&url).await?.with_context(|| format!("there is no list of versions at {url}"))?;
        let unreadable = || format!("cannot read the list of versions at {url}");
        let names: Vec<String> = match which {
            Distribution::Terraform => {
                serde_json::from_slice::<HashiCorp>(&body).with_context(unreadable)?.versions.into_keys().collect()
            }
            Distribution::OpenTofu => {
                let list: OpenTofu = serde_json::from_slice(&body).with_context(unreadable)?;
                list.versions.into_iter().map(|version| version.id).collect()
            }
        };
        let versions = names.iter().filter_map(|name| Version::parse(name).ok()).filter(|v| v.build.is_empty());
        Ok(versions.collect())
    }

    /// Downloads, verifies and installs the binary of this version at `target`. Returns false if the server does not have that version.
    pub(super) async fn fetch(
        &self,
        settings: &InstallSettings,
        which: Distribution,
        version: &Version,
        target: &Path,
    ) -> anyhow::Result<bool> {
        let (base, name) = (settings.base_url(which), which.binary());
        let folder = match which {
            Distribution::Terraform => format!("{base}/terraform/{version}"),
            Distribution::OpenTofu => format!("{base}/v{version}"),
        };
        let sums_url = format!("{folder}/{name}_{version}_SHA256SUMS");
        let Some(sums) = self.text(&sums_url).await? else { return Ok(false) };
        self.check_signature(settings, which, &sums_url, &sums).await?;
        let zip_name = format!("{name}_{version}_{}_{}.zip", os(), arch());
        let expected = checksum(&sums, &zip_name)
            .with_context(|| format!("{sums_url} does not name {zip_name}: there is no release for this platform"))?;

        let dir = target.parent().context("no folder for binaries")?;
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        sweep(dir);
        let zip = ScratchFile::new(dir);
        let url = format!("{folder}/{zip_name}");
        tracing::info!(%url, "downloading");
        let found = self.save(&url, &zip.0).await?;
        ensure!(
            found == expected,
            "{url} has the SHA-256 {found}, but the signed list says {expected}: the download was cut or changed"
        );
        let (target, name) = (target.to_owned(), name.to_owned());
        tokio::task::spawn_blocking(move || unpack(&zip, &name, &target)).await.context("unpacking ended early")??;
        tracing::info!(%url, "checked and installed");
        Ok(true)
    }

    async fn check_signature(
        &self,
        settings: &InstallSettings,
        which: Distribution,
        sums_url: &str,
        sums: &[u8],
    ) -> anyhow::Result<()> {
        let (url, built_in) = match which {
            Distribution::Terraform => (format!("{sums_url}.sig"), signature::HASHICORP),
            Distribution::OpenTofu => (format!("{sums_url}.gpgsig"), signature::OPENTOFU),
        };
        let keys = settings.keys.clone().unwrap_or_else(|| vec![built_in.to_owned()]);
        match self.text(&url).await? {
            Some(signature) => signature::verify(sums, &signature, &keys)
                .with_context(|| format!("{sums_url} is not trusted; nothing of this version is installed")),
            None if settings.allow_unsigned => {
                tracing::warn!(%url, "the release is not signed; accepted because --tf-download-allow-unsigned is set");
                Ok(())
            }
            None => bail!(
                "the release server has no signature {url}, so nothing of it is installed; for a mirror without signatures \
                 set --tf-download-allow-unsigned (checksums are still checked)"
            ),
        }
    }

    /// Saves a file and returns its SHA-256 in hex.
    async fn save(&self, url: &str, path: &Path) -> anyhow::Result<String> {
        let mut response = self.get(url).await?.with_context(|| format!("{url} is not there"))?;
        let mut file =
            tokio::fs::File::create(path).await.with_context(|| format!("cannot write {}", path.display()))?;
        let (mut digest, mut size) = (Sha256::new(), 0);
        while let Some(chunk) = response.chunk().await.with_context(|| format!("{url} was cut"))? {
            size += chunk.len() as u64;
            ensure!(size <= LARGEST_ZIP, "{url} is larger than {LARGEST_ZIP} bytes");
            digest.update(&chunk);
            file.write_all(&chunk).await.with_context(|| format!("cannot write {}", path.display()))?;
        }
        file.flush().await?;
        Ok(hex::encode(digest.finalize()))
    }
}

/// Sends one request. The outer error may be temporary; the inner one would be the same at the next attempt.
async fn request(client: &reqwest::Client, url: &str) -> anyhow::Result<anyhow::Result<Option<reqwest::Response>>> {
    let response = client.get(url).send().await.map_err(reqwest::Error::without_url)?;
    match response.status().as_u16() {
        200..=299 => Ok(Ok(Some(response))),
        403 | 404 => Ok(Ok(None)),
        status @ (429 | 500..) => Err(anyhow!("it answered {status}")),
        status => Ok(Err(anyhow!("it answered {status}"))),
    }
}

/// Extracts the binary and syncs it to disk, completely or not at all.
fn unpack(zip: &ScratchFile, name: &str, target: &Path) -> anyhow::Result<()> {
    let mut archive = zip::ZipArchive::new(File::open(&zip.0)?).context("the zip cannot be read")?;
    let entry = archive.by_name(name).with_context(|| format!("there is no {name} in the zip"))?;
    let binary = ScratchFile::new(target.parent().context("no folder for binaries")?);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(&binary.0)?;
    let size = std::io::copy(&mut entry.take(LARGEST_BINARY + 1), &mut file).context("the zip is damaged")?;
    ensure!(size <= LARGEST_BINARY, "the {name} in the zip is larger than {LARGEST_BINARY} bytes");
    file.sync_all()?;
    drop(file);
    fs::rename(&binary.0, target).with_context(|| format!("cannot write {}", target.display()))
}

/// Returns the checksum of this file in the list.
fn checksum(sums: &[u8], name: &str) -> Option<String> {
    let text = std::str::from_utf8(sums).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let (sum, _) = lines.find(|(_, file)| file.trim_start().trim_start_matches('*').trim_end() == name)?;
    Some(sum.to_ascii_lowercase())
}

fn os() -> &'static str {
    if std::env::consts::OS == "macos" { "darwin" } else { std::env::consts::OS }
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

/// A file that is removed when dropped.
struct ScratchFile(PathBuf);

impl ScratchFile {
    fn new(dir: &Path) -> ScratchFile {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        ScratchFile(dir.join(format!("{UNFINISHED}{}-{count}", std::process::id())))
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // The file may have been renamed or never created.
        let _ = fs::remove_file(&self.0);
    }
}

/// Removes unfinished files of killed servers. Failures are ignored until the next attempt.
fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let old = || SystemTime::now().duration_since(entry.metadata().ok()?.modified().ok()?).ok();
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) && old().is_some_and(|age| age > LEFT_OVER) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
