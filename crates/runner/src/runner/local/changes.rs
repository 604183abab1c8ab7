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

/// Changes of a plan, as far as they are wanted.
#[derive(Default)]
pub(super) struct PlanChanges {
    /// Their digest; absent if it could not be computed.
    pub(super) digest: Option<ChangesDigest>,
    /// Reason that it could not be computed, in words.
    pub(super) incomparable: Option<String>,
}

/// Reason that a plan has no digest.
enum NoDigest {
    /// The job was stopped.
    Stopped,
    /// It cannot be computed; the plan itself stays valid.
    Incomparable(anyhow::Error),
}

impl From<anyhow::Error> for NoDigest {
    fn from(error: anyhow::Error) -> NoDigest {
        NoDigest::Incomparable(error)
    }
}

impl Stage<'_> {
    /// Returns the changes of the plan that was taken after the steps. The log states the reason if they cannot be compared.
    pub(super) async fn changes(&mut self, key: &str, made: Option<Arc<Sealed>>) -> Result<PlanChanges, Broken> {
        match self.digest(key, made).await {
            Ok(digest) => Ok(PlanChanges { digest: Some(digest), incomparable: None }),
            Err(NoDigest::Stopped) => Err(Broken::Stopped),
            Err(NoDigest::Incomparable(error)) => {
                let why = self.local.redactor.redact(&format!("{error:#}"));
                (self.io.log)(&format!("What this plan changes cannot be compared with other plans: {why}"));
                Ok(PlanChanges { digest: None, incomparable: Some(why) })
            }
        }
    }

    async fn digest(&mut self, key: &str, made: Option<Arc<Sealed>>) -> Result<ChangesDigest, NoDigest> {
        let made = made.context("its workflow leaves no plan file")?;
        let json = self.json_of(made, &[], MAX_SHOWN).await.map_err(|broken| match broken {
            Broken::Stopped => NoDigest::Stopped,
            Broken::Problem(..) => anyhow!("the plan file cannot be shown in JSON").into(),
        })?;
        let shown = String::from_utf8(json).context("the plan in JSON is no text")?;
        self.made_of.note_part(parts::in_shown(&shown));
        Ok(self.read_changes(shown, key).await?)
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
