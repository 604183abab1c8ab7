//! What a plan changes, as a digest: Terraform shows the plan file in JSON, and nothing of that is kept.

use super::code;
use super::environment;
use super::files;
use super::stage::{Broken, Stage};
use crate::domain::plan_digest::ChangesDigest;
use crate::terraform::changes::digest;
use anyhow::{Context as _, Result, anyhow};
use std::path::PathBuf;

/// Largest plan in JSON, in bytes. What a larger one changes is not known.
const MAX_SHOWN: u64 = 64 << 20;

impl Stage<'_> {
    /// The digest of the plan that the steps made. Where it cannot be found, the log says why, and the plan is as good as any other.
    pub(super) async fn changes(&mut self, key: &str) -> Result<Option<ChangesDigest>, Broken> {
        let plan_file = PathBuf::from(self.place.plan_file.file_name().unwrap_or_default());
        if self.place.in_dir(move |dir| dir.kind(&plan_file)).await.ok().flatten().is_none() {
            return Ok(None);
        }
        // Steps may have left something for others where a `show` step writes.
        let mut shown = self.place.plan_file.with_extension("").into_os_string();
        shown.push("-changes.json");
        environment::set(&mut self.env, "SHOWFILE", shown.to_string_lossy());
        let found = match self.show(&[]).await {
            Ok(()) => self.read_changes(PathBuf::from(shown), key).await,
            Err(Broken::Stopped) => return Err(Broken::Stopped),
            Err(Broken::Problem(..)) => Err(anyhow!("the plan file cannot be shown in JSON")),
        };
        Ok(found.map(Some).unwrap_or_else(|error| {
            let why = self.local.redactor.redact(&format!("{error:#}"));
            (self.io.log)(&format!("What this plan changes cannot be compared with other plans: {why}"));
            None
        }))
    }

    async fn read_changes(&self, shown: PathBuf, key: &str) -> Result<ChangesDigest> {
        let (root, dir) = (self.place.tree.root.clone(), self.place.dir.clone());
        let (key, config) = (key.to_owned(), self.spec.project.digest());
        let data_dir = environment::get(&self.env, "TF_DATA_DIR").unwrap_or(".terraform").to_owned();
        let reading = move || -> Result<ChangesDigest> {
            let text = files::take_text(&root, &shown, MAX_SHOWN)?.context("nothing was shown")?;
            let bound = format!("{config} {}", code::digest(&root, &dir, &data_dir)?);
            digest(&text, &key, &bound).map(ChangesDigest).map_err(|problem| anyhow!("{problem}"))
        };
        tokio::task::spawn_blocking(reading).await?
    }
}
