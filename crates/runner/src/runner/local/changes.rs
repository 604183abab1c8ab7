//! Digest of a plan's changes. Terraform shows the plan file in JSON, and the JSON is not kept.

use super::sealed::Sealed;
use super::stage::{Broken, Stage};
use super::{code, environment, made_of};
use crate::terraform::changes::digest;
use crate::terraform::parts;
use anyhow::{Context as _, Result, anyhow};
use std::sync::Arc;
use tidelock_core::domain::plan_digest::ChangesDigest;

/// Largest plan in JSON, in bytes. The changes of a larger one are not known.
const MAX_SHOWN: usize = 64 << 20;

impl Stage<'_> {
    /// Returns the digest of the plan that was taken after the steps, or the reason that there is none. The log states that reason; the
    /// plan itself stays valid.
    pub(super) async fn changes(
        &mut self,
        key: &str,
        made: Option<Arc<Sealed>>,
    ) -> Result<Result<ChangesDigest, String>, Broken> {
        let found = match self.shown_plan(made).await {
            Ok(Ok(shown)) => {
                self.made_of.note_part(parts::in_shown(&shown));
                self.read_changes(shown, key).await
            }
            Ok(Err(error)) => Err(error),
            Err(broken) => return Err(broken),
        };
        Ok(found.map_err(|error| {
            let why = self.local.redactor.redact(&format!("{error:#}"));
            (self.io.log)(&format!("What this plan changes cannot be compared with other plans: {why}"));
            why
        }))
    }

    /// Returns the plan in JSON. The outer error means that the job was stopped.
    async fn shown_plan(&self, made: Option<Arc<Sealed>>) -> Result<Result<String>, Broken> {
        let Some(made) = made else { return Ok(Err(anyhow!("its workflow leaves no plan file"))) };
        match self.json_of(made, &[], MAX_SHOWN).await {
            Ok(json) => Ok(String::from_utf8(json).context("the plan in JSON is no text")),
            Err(Broken::Stopped) => Err(Broken::Stopped),
            Err(Broken::Problem(..)) => Ok(Err(anyhow!("the plan file cannot be shown in JSON"))),
        }
    }

    async fn read_changes(&self, shown: String, key: &str) -> Result<ChangesDigest> {
        let bound = self.bound()?;
        let (root, dir) = (self.place.tree.root.clone(), self.place.dir.clone());
        let data_dir = environment::get(&self.env, "TF_DATA_DIR").unwrap_or(".terraform").to_owned();
        let reading = move || {
            Ok::<_, anyhow::Error>((code::digest(&root, &dir, &data_dir)?, made_of::backend(&root, &dir, &data_dir)?))
        };
        let (code, backend) = tokio::task::spawn_blocking(reading).await??;
        let (config, tool) = (self.spec.project.digest(), self.place.tool.to_string());
        let backend = self.without_tree(&backend);
        let bound = [code, config, tool, bound.arguments, bound.files, bound.environment, backend];
        let key = key.to_owned();
        let digesting = move || digest(&shown, &key, &bound).map(ChangesDigest).map_err(|problem| anyhow!("{problem}"));
        tokio::task::spawn_blocking(digesting).await?
    }
}
