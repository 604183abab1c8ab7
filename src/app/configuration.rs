//! The configuration that may change while the server runs: settings, `repos.yaml` and comment templates. It is read and checked as a
//! whole, at the start and again when its files change.

use super::hosts::{self, JoinedHost};
use super::{comment_templates, executors, policies};
use crate::config::changed_keys::changed_keys;
use crate::config::global::GlobalConfig;
use crate::render::CommentTemplates;
use crate::settings::{RereadSettings, Settings};
use crate::vcs::Hosts;
use anyhow::{Result, anyhow, bail};
use std::sync::Arc;

/// One version of the configuration.
pub(super) struct ServerConfiguration {
    pub(super) settings: Arc<Settings>,
    pub(super) global: GlobalConfig,
    pub(super) templates: CommentTemplates,
}

/// A later version.
pub(super) struct NextConfiguration {
    pub(super) configuration: ServerConfiguration,
    /// Names of what is new: settings, and keys of `repos.yaml`.
    pub(super) changed: Vec<String>,
    /// Names of what stays as it is until the next start.
    pub(super) needs_restart: Vec<String>,
}

impl ServerConfiguration {
    /// Reads the files that the settings name, and checks them. Blocks.
    ///
    /// # Errors
    ///
    /// The first mistake, by file and line where it has one.
    pub(super) fn read(settings: Arc<Settings>, joined: &[JoinedHost], hosts: &Hosts) -> Result<ServerConfiguration> {
        let global = match &settings.repo_config {
            Some((origin, text)) => GlobalConfig::parse(text, origin)?,
            None => GlobalConfig::without_file(),
        };
        hosts::check_people(&global, joined)?;
        hosts::check_merge_methods(&global, joined)?;
        executors::check(&settings, &global)?;
        if let Some(problem) = executors::out_of_reach(&settings, &global) {
            bail!(problem);
        }
        hosts::check_issues(&global, hosts)?;
        let templates = comment_templates::read(settings.markdown_template_overrides_dir.as_deref())?;
        Ok(ServerConfiguration { settings, global, templates })
    }

    /// Logs probable mistakes.
    pub(super) fn warn(&self) {
        for warning in self.global.warnings.iter().chain(&policies::warnings(&self.settings, &self.global)) {
            tracing::warn!("{warning}");
        }
    }

    /// Reads the configuration again. Blocks.
    ///
    /// # Errors
    ///
    /// As [`ServerConfiguration::read`]. Also for an executor that is new: the server connects to executors at its start.
    pub(super) fn read_again(&self, joined: &[JoinedHost], hosts: &Hosts) -> Result<NextConfiguration> {
        let read = self.settings.read_again().map_err(|error| anyhow!("{error}"))?;
        let RereadSettings { settings, mut changed, mut needs_restart } = read;
        let mut configuration = ServerConfiguration::read(Arc::new(settings), joined, hosts)?;
        let next = &mut configuration.global;
        if let Some(name) = next.executors.keys().find(|name| !self.global.executors.contains_key(*name)) {
            bail!(
                "repos.yaml: the executor `{name}` is new, and the server connects to executors at its start: restart it, or take \
                 the executor away"
            );
        }
        if next.executors != self.global.executors {
            next.executors.clone_from(&self.global.executors);
            needs_restart.push("executors in repos.yaml".to_owned());
        }
        if next.metrics != self.global.metrics {
            next.metrics.clone_from(&self.global.metrics);
            needs_restart.push("metrics in repos.yaml".to_owned());
        }
        let kept = |key: &String| !["executors", "metrics"].iter().any(|kept| key.split('.').next() == Some(*kept));
        let text =
            |settings: &Settings| settings.repo_config.as_ref().map(|(_, text)| text.clone()).unwrap_or_default();
        let (before, after) = (text(&self.settings), text(&configuration.settings));
        let keys = changed_keys(&before, &after).into_iter().filter(kept);
        changed.extend(keys.map(|key| format!("{key} in repos.yaml")));
        if configuration.settings.language != self.settings.language && !changed.iter().any(|name| name == "language") {
            changed.push("language-config-file".to_owned());
        }
        if !configuration.templates.has_same_texts(&self.templates) {
            changed.push("comment templates".to_owned());
        }
        Ok(NextConfiguration { configuration, changed, needs_restart })
    }
}
