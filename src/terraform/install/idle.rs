//! Downloaded binaries that nobody needs now: they can go to make room, and come again when they are asked for.

use super::Installer;
use anyhow::Context as _;
use std::time::SystemTime;
use tokio::sync::OwnedRwLockReadGuard;

impl Installer {
    /// As long as the answer lives, no binary is removed.
    pub async fn using(&self) -> OwnedRwLockReadGuard<()> {
        std::sync::Arc::clone(&self.in_use).read_owned().await
    }

    /// Removes the binary that was used last the longest ago, if nobody uses any now; says which, and its size in bytes.
    pub async fn remove_idle(&self) -> anyhow::Result<Option<(String, u64)>> {
        let Ok(_alone) = self.in_use.try_write() else { return Ok(None) };
        let dir = self.settings.data_dir.join("bin");
        tokio::task::spawn_blocking(move || {
            let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
            let oldest = entries
                .filter_map(|entry| {
                    let meta = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
                    // Read times are as exact as the mount keeps them: a day at worst.
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
