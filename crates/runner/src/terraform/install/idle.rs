//! Removes downloaded binaries to free space; they are downloaded again when needed.

use super::Installer;
use anyhow::Context as _;
use std::time::SystemTime;
use tokio::sync::OwnedRwLockReadGuard;

impl Installer {
    /// Returns a guard that prevents the removal of binaries.
    pub async fn using(&self) -> OwnedRwLockReadGuard<()> {
        std::sync::Arc::clone(&self.in_use).read_owned().await
    }

    /// Removes the least recently used binary, unless any binary is in use. Returns its name and size in bytes.
    pub async fn remove_idle(&self) -> anyhow::Result<Option<(String, u64)>> {
        let Ok(_alone) = self.in_use.try_write() else { return Ok(None) };
        let dir = self.settings.data_dir.join("bin");
        tokio::task::spawn_blocking(move || {
            let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
            let oldest = entries
                .filter_map(|entry| {
                    let meta = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
                    // Access times are as exact as the mount keeps them: at worst, to a day.
                    Some((meta.accessed().unwrap_or(SystemTime::UNIX_EPOCH), meta.len(), entry.path()))
                })
                .min();
            let Some((_, bytes, path)) = oldest else { return Ok(None) };
            std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            Ok(Some((path.display().to_string(), bytes)))
        })
        .await?
    }
}
