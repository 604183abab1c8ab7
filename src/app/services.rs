//! Parts of a leading server: those that are made once, and services that are made anew at each start of leadership.

use super::hosts::{self, JoinedHost};
use super::{comment_templates, executors, module_origins, policies};
use crate::checkout::{Checkouts, StepUsers};
use crate::comment::ParserSettings;
use crate::config::global::GlobalConfig;
use crate::config::metrics::Metrics;
use crate::dispatch::{Allowlist, Handle};
use crate::domain::Login;
use crate::domain::command::CommandName;
use crate::execute::permissions::TeamMembers;
use crate::execute::state_locks::OrphanedLocks;
use crate::execute::{Admission, Capacity, Context, before_restore};
use crate::executors::{Executors, TREES, make_place_of_trees};
use crate::meters::WorkMeters;
use crate::notifications::Notifier;
use crate::process::{Protection, Redactor};
use crate::render::statuses::Statuses;
use crate::render::{CommentTemplates, RenderOptions};
use crate::reply::outbox::Outbox;
use crate::runner::local::{DirectoryLocks, Local, Separation, SeparationSettings};
use crate::server_status::Services;
use crate::settings::{BucketAddress, Settings};
use crate::store::Store;
use crate::store::logs::Logs;
use crate::terraform::install::{InstallSettings, Installer};
use crate::traces::Traces;
use crate::vault::bucket::Bucket;
use crate::vault::leader::Leader;
use crate::vcs::Hosts;
use crate::webhook::Intake;
use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Notify;

/// Limit of concurrent jobs of all pull requests: this many times one command's pool, at least [`ADMISSION_MIN`].
const ADMISSION_POOLS: usize = 4;
const ADMISSION_MIN: usize = 16;
/// Longest comment, in characters, until the host of a pull request is known.
const LEAST_COMMENT: usize = 65_536;

/// Parts that outlive a role.
pub(super) struct Parts {
    pub(super) settings: Arc<Settings>,
    /// Verifies deliveries from the inbox.
    pub(super) intake: Intake,
    global: GlobalConfig,
    hosts: Hosts,
    templates: CommentTemplates,
    /// Confinement of steps.
    pub(super) protection: Protection,
    /// Counts the work of all terms of this process.
    pub(super) work: Arc<WorkMeters>,
    pub(super) traces: Traces,
}

impl Parts {
    /// Returns the server-side configuration.
    pub(super) fn global(&self) -> &GlobalConfig {
        &self.global
    }

    /// Returns the APIs of the hosts.
    pub(super) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Returns the destinations of metrics.
    pub(super) fn metrics(&self) -> &Metrics {
        &self.global.metrics
    }

    /// Reads the files that the settings name; an error stops the start.
    pub(super) fn new(settings: Arc<Settings>, joined: &[JoinedHost]) -> Result<Parts> {
        let global = match &settings.repo_config {
            Some((origin, text)) => GlobalConfig::parse(text, origin)?,
            None => GlobalConfig::without_file(),
        };
        hosts::check_people(&global, joined)?;
        hosts::check_merge_methods(&global, joined)?;
        for warning in &global.warnings {
            tracing::warn!("{warning}");
        }
        for warning in policies::warnings(&settings, &global) {
            tracing::warn!("{warning}");
        }
        executors::check(&settings, &global)?;
        if let Some(problem) = executors::out_of_reach(&settings, &global) {
            bail!(problem);
        }
        let templates = comment_templates::read(settings.markdown_template_overrides_dir.as_deref())?;
        let protection = Protection::of_steps(settings.steps.confinement)?;
        let (intake, hosts) = (hosts::intake(joined), hosts::apis(joined)?);
        hosts::check_issues(&global, &hosts)?;
        let work = Arc::new(WorkMeters::new(settings.metrics.labels));
        let traces = Traces::start(&settings.traces)?;
        Ok(Parts { settings, intake, global, hosts, templates, protection, work, traces })
    }

    /// Frees space on a nearly full disk before anything is written to it. Failures are only logged: the start itself fails on a full
    /// disk.
    pub(super) async fn make_room(&self) {
        let settings = Arc::clone(&self.settings);
        let made = async {
            let data_dir = settings.data_dir.clone();
            let alone = tokio::task::spawn_blocking(move || Store::alone_in(&data_dir)).await??;
            let (Some(_alone), redactor) = (alone, Redactor::new(settings.secrets.clone())) else { return Ok(()) };
            let checkouts = checkouts(&settings, &self.hosts, redactor.clone())?;
            before_restore(&settings.data_dir, &checkouts, &installer(&settings, redactor)).await
        };
        if let Err(error) = made.await {
            tracing::warn!(error = format!("{error:#}"), "room on the disk could not be looked after");
        }
    }

    /// Starts the services on an open state, and resumes unfinished work.
    pub(super) async fn start(
        &self,
        store: Store,
        leader: Leader,
        bucket: Arc<dyn Bucket>,
        look: Arc<Notify>,
    ) -> Result<Services> {
        let logs = Logs::new(&self.settings.data_dir);
        let outbox = Outbox::start(
            store.clone(),
            self.hosts.clone(),
            rendering(&self.settings, &self.templates),
            self.traces.clone(),
        )
        .await?;
        let allowlist = Allowlist::new(&self.settings.repo_allowlist);
        let notifications = Arc::clone(&self.settings.notifications);
        let notifier = Notifier::start(store.clone(), notifications, hosts::kinds(&self.settings)).await?;
        let (settings, protection) = (Arc::clone(&self.settings), self.protection.clone());
        let executors = executors::executors(&self.settings, &self.global, &self.hosts, bucket).await?;
        executors.check();
        // Only then this directory is the server's own.
        let trees = (!executors.is_empty()).then(|| PathBuf::from(TREES));
        let separating = tokio::task::spawn_blocking(move || {
            if trees.is_some() {
                make_place_of_trees()?;
            }
            separation(&settings, &protection, trees)
        });
        let ctx = self.context(store.clone(), logs.clone(), outbox, notifier, separating.await??, executors)?;
        let dispatch = Handle::start(ctx, self.names(), allowlist, self.intake.clone()).await?;
        Ok(Services { store, logs, dispatch, leader, look })
    }

    fn names(&self) -> ParserSettings {
        let settings = &self.settings;
        ParserSettings {
            executables: settings.executable_names.clone(),
            is_default: settings.executable_names.len() > 1,
            bot_login: Login::unknown(),
            allowed: settings.allow_commands.clone(),
            blocked_extra_args: settings.blocked_extra_args.clone(),
            pull_mark: '#',
            apply_disabled: !settings.allow_commands.contains(&CommandName::Apply),
        }
    }

    fn context(
        &self,
        store: Store,
        logs: Logs,
        outbox: Outbox,
        notifier: Notifier,
        separation: Separation,
        executors: Executors,
    ) -> Result<Context> {
        let settings = Arc::clone(&self.settings);
        let redactor = Redactor::new(settings.secrets.clone());
        let (checkouts, installer) =
            (checkouts(&settings, &self.hosts, redactor.clone())?, Arc::new(installer(&settings, redactor.clone())));
        let runner = Local {
            checkouts: checkouts.clone(),
            installer: Arc::clone(&installer),
            directories: DirectoryLocks::default(),
            redactor: redactor.clone(),
            data_dir: settings.data_dir.clone(),
            env: settings.child_env.clone(),
            separation,
            use_plugin_cache: settings.use_tf_plugin_cache,
            own_program: std::env::current_exe().context("the path of this program is not known")?,
            module_origins: module_origins::of_server(&settings, &self.hosts),
            tfe_token: settings.tfe.as_ref().map(|tfe| (tfe.variable(), tfe.token.clone())),
        };
        let pool = settings.parallel_pool_size.saturating_mul(ADMISSION_POOLS).max(ADMISSION_MIN);
        Ok(Context {
            checkouts,
            runner,
            executors: Arc::new(executors),
            statuses: Statuses {
                prefix: settings.vcs_status_name.clone(),
                url: settings.atlantis_url.clone(),
                pulls: self.hosts.pull_names().clone(),
            },
            admission: Admission::new(pool),
            capacity: Capacity::new(&settings.data_dir, &settings.limits),
            orphaned_locks: OrphanedLocks::default(),
            teams: TeamMembers::default(),
            meters: Arc::clone(&self.work),
            traces: self.traces.clone(),
            installer,
            rendering: rendering(&settings, &self.templates),
            settings,
            global: self.global.clone(),
            store,
            logs,
            hosts: self.hosts.clone(),
            outbox,
            notifier,
            redactor,
        })
    }
}

/// Builds the separation of steps from the server's files. Blocks.
fn separation(settings: &Settings, protection: &Protection, trees: Option<PathBuf>) -> Result<Separation> {
    let mut hidden = hidden_files(settings);
    hidden.extend(trees);
    let data_dir = std::path::absolute(&settings.data_dir)?;
    // The default is the whole data directory, which confined steps may not read.
    let readable = settings.var_file_allowlist.iter().filter(|path| **path != settings.data_dir).cloned().collect();
    Separation::new(
        protection,
        SeparationSettings {
            writable: settings.steps.writable.as_deref(),
            home: settings.steps.home.as_deref(),
            data_dir: &data_dir,
            hidden,
            kept: kept_files(settings),
            readable,
            env: &settings.child_env,
            users: settings.run_as_user,
        },
    )
}

/// Returns files and directories of the server that no step can open.
pub(super) fn hidden_files(settings: &Settings) -> Vec<PathBuf> {
    let mut hidden = settings.steps.secret_files.clone();
    if let BucketAddress::Directory(bucket) = &settings.vault.bucket {
        hidden.push(bucket.clone());
    }
    hidden
}

/// Returns files of the server that no step can change.
pub(super) fn kept_files(settings: &Settings) -> Vec<PathBuf> {
    settings.steps.files.iter().chain(&settings.markdown_template_overrides_dir).cloned().collect()
}

fn checkouts(settings: &Settings, hosts: &Hosts, redactor: Redactor) -> Result<Checkouts> {
    let (strategy, env) = (settings.checkout_strategy, settings.child_env.clone());
    let mut checkouts = Checkouts::new(&settings.data_dir, strategy, redactor, env)?;
    checkouts.sparse = settings.sparse_checkout;
    checkouts.by_host = hosts.iter().count() > 1;
    checkouts.users = settings.run_as_user.map(StepUsers::new);
    Ok(checkouts)
}

fn installer(settings: &Settings, redactor: Redactor) -> Installer {
    Installer::new(install_settings(settings, redactor))
}

/// Returns the settings of an installer that downloads nothing.
pub(super) fn without_downloads(settings: &Settings, redactor: Redactor) -> InstallSettings {
    InstallSettings { download: false, ..install_settings(settings, redactor) }
}

fn install_settings(settings: &Settings, redactor: Redactor) -> InstallSettings {
    let path = settings.child_env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    InstallSettings {
        data_dir: settings.data_dir.clone(),
        download: settings.tf_download,
        terraform_url: settings.tf_download_url.clone(),
        opentofu_url: settings.tofu_download_url.clone(),
        allow_unsigned: settings.tf_download_allow_unsigned,
        default_version: settings.default_tf_version.clone(),
        default_distribution: settings.default_tf_distribution,
        path: path.unwrap_or_default(),
        redactor,
        keys: None,
    }
}

/// Returns the options of rendering that do not depend on the host of a pull request.
fn rendering(settings: &Settings, templates: &CommentTemplates) -> RenderOptions {
    let apply_allowed = settings.allow_commands.contains(&CommandName::Apply);
    RenderOptions {
        executable: settings.executable_names.first().cloned().unwrap_or_else(|| "atlantis".into()),
        url: settings.atlantis_url.clone(),
        commit_address: None,
        comment_limit: LEAST_COMMENT,
        html_comments: true,
        pull_mark: '#',
        style: settings.comment_style,
        max_comments: settings.max_comments_per_command,
        disable_folding: settings.disable_markdown_folding,
        diff_format: settings.enable_diff_markdown_format,
        hide_unchanged: settings.hide_unchanged_plan_comments,
        hide_replaced: settings.hide_prev_plan_comments || settings.update_plan_comments,
        update_plans: settings.update_plan_comments,
        offer_apply: apply_allowed,
        offer_apply_all: apply_allowed && !settings.disable_apply_all,
        locking: !settings.disable_repo_locking,
        now: Timestamp::now(),
        templates: templates.clone(),
        language: Arc::new(settings.language.clone()),
    }
}
