//! The file `CODEOWNERS` of a repository's default branch.

use crate::config::codeowners::{MAX_OWNERS_FILE, OwnerRules};
use crate::execute::command_run::CommandRun;
use crate::execute::context::Context;
use crate::execute::prepare::{self, Stop};
use anyhow::anyhow;

/// The file `CODEOWNERS` of the default branch.
pub(in crate::execute) enum OwnersFile {
    Rules(OwnerRules),
    /// Reason for which there are no rules, as text for people.
    Missing(String),
}

/// Reads the code owners from the `CODEOWNERS` of the default branch, as the author of a pull request chooses its base branch.
pub(in crate::execute) async fn owners_file(ctx: &Context, work: &CommandRun) -> Result<OwnersFile, Stop> {
    let credentials = prepare::credentials(ctx, work).await;
    let tip = ctx.checkouts.default_tip(&work.pull, credentials.as_ref()).await?;
    let Ok(host) = ctx.hosts.for_repo(&work.pull.id.repo) else {
        return Ok(OwnersFile::Missing("its host is not configured, so nobody is a code owner".to_owned()));
    };
    let language = host.profile().owner_language;
    let mut text = None;
    for place in host.profile().owner_files {
        text = ctx.checkouts.file_at(&work.pull, &tip, place, MAX_OWNERS_FILE, credentials.as_ref()).await?;
        if text.is_some() {
            break;
        }
    }
    let Some(text) = text else {
        return Ok(OwnersFile::Missing("the default branch has no CODEOWNERS, so nobody is a code owner".to_owned()));
    };
    let parsed = tokio::task::spawn_blocking(move || OwnerRules::parse(language, &text)).await;
    let rules = parsed.map_err(|error| anyhow!(error).context("reading CODEOWNERS"))?;
    Ok(match rules {
        Ok(rules) => OwnersFile::Rules(rules),
        Err(problem) => OwnersFile::Missing(format!("the CODEOWNERS of the default branch cannot be read: {problem}")),
    })
}
