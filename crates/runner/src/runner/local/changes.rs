//! A plan in JSON, and the digest of its changes. Terraform shows the plan file; the JSON is not kept.

use super::sealed::Sealed;
use super::stage::{Broken, Stage};
use super::{code, environment, made_of};
use crate::runner::result::StepProblem;
use crate::terraform::changes::digest;
use crate::terraform::parts;
use anyhow::{Result, anyhow};
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

/// A plan in JSON, or the reason that there is none.
pub(super) type PlanInJson = Result<String, NotShown>;

/// Reason that a plan is not shown in JSON, in words.
#[derive(Debug)]
pub(super) enum NotShown {
    /// It has no file.
    NoFile(&'static str),
    /// Its file cannot be shown.
    Broken(&'static str),
}

impl NotShown {
    fn why(&self) -> &'static str {
        match self {
            NotShown::NoFile(why) | NotShown::Broken(why) => why,
        }
    }
}

impl Stage<'_> {
    /// Returns the plan that was taken after the steps in JSON.
    pub(super) async fn shown_json(&mut self, made: Option<Arc<Sealed>>) -> Result<PlanInJson, Broken> {
        let Some(made) = made else { return Ok(Err(NotShown::NoFile("its workflow leaves no plan file"))) };
        match self.json_of(made, &[], MAX_SHOWN).await {
            Ok(json) => Ok(String::from_utf8(json).map_err(|_| NotShown::Broken("the plan in JSON is no text"))),
            Err(Broken::Stopped) => Err(Broken::Stopped),
            Err(Broken::Problem(StepProblem::RemotePlan, _)) => {
                Ok(Err(NotShown::NoFile("the plan file cannot be shown in JSON")))
            }
            Err(Broken::Problem(..)) => Ok(Err(NotShown::Broken("the plan file cannot be shown in JSON"))),
        }
    }

    /// Returns the changes of a plan in JSON. The log states the reason if they cannot be compared.
    pub(super) async fn changes(&mut self, key: &str, shown: &Arc<PlanInJson>) -> PlanChanges {
        match self.digest(key, shown).await {
            Ok(digest) => PlanChanges { digest: Some(digest), incomparable: None },
            Err(error) => {
                let why = self.redactor.redact(&format!("{error:#}"));
                (self.io.log)(&format!("What this plan changes cannot be compared with other plans: {why}"));
                PlanChanges { digest: None, incomparable: Some(why) }
            }
        }
    }

    async fn digest(&mut self, key: &str, shown: &Arc<PlanInJson>) -> Result<ChangesDigest> {
        let json = shown.as_ref().as_ref().map_err(|reason| anyhow!(reason.why()))?;
        self.made_of.note_part(parts::in_shown(json));
        self.read_changes(Arc::clone(shown), key).await
    }

    async fn read_changes(&self, shown: Arc<PlanInJson>, key: &str) -> Result<ChangesDigest> {
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
        let digesting = move || {
            let json = shown.as_ref().as_ref().map_err(|reason| anyhow!(reason.why()))?;
            digest(json, &key, &bound).map(ChangesDigest).map_err(|problem| anyhow!("{problem}"))
        };
        tokio::task::spawn_blocking(digesting).await?
    }
}
