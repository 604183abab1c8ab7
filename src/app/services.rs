//! Parts of a leading server: those that are made once, and services that are made anew at each start of leadership.

use super::configuration::{NextConfiguration, ServerConfiguration};
use super::executors;
use super::hosts::{self, JoinedHost};
use super::module_origins;
use crate::checkout::{Checkouts, StepUsers};
use crate::comment::ParserSettings;
use crate::dispatch::{Allowlist, DispatchConfiguration, Handle};
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
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::Notify;

/// Limit of concurrent jobs of all pull requests: this many times one command's pool, at least [`ADMISSION_MIN`].
const ADMISSION_POOLS: usize = 4;
const ADMISSION_MIN: usize = 16;
/// Longest comment, in characters, until the host of a pull request is known.
const LEAST_COMMENT: usize = 65_536;

/// Parts that outlive a role.
pub(super) struct Parts {
    /// Settings of the start. [`Parts::now`] has the present ones.
    pub(super) settings: Arc<Settings>,
    /// Verifies deliveries from the inbox.
    pub(super) intake: Intake,
    now: RwLock<Arc<ServerConfiguration>>,
    joined: Vec<JoinedHost>,
    hosts: Hosts,
    /// Confinement of steps.
    pub(super) protection: Protection,
    /// Counts the work of all terms of this process.
    pub(super) work: Arc<WorkMeters>,
    pub(super) traces: Traces,
}

impl Parts {
    /// Returns the present configuration.
    pub(super) fn now(&self) -> Arc<ServerConfiguration> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the APIs of the hosts.
    pub(super) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Replaces the configuration, for the next start of the services.
    pub(super) fn set(&self, configuration: ServerConfiguration) {
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(configuration);
    }

    /// Reads the configuration again. Blocks. An error leaves the present one as it is.
    pub(super) fn read_again(&self) -> Result<NextConfiguration> {
        self.now().read_again(&self.joined, &self.hosts)
    }

    /// Reads the files that the settings name; an error stops the start.
    pub(super) fn new(settings: Arc<Settings>, joined: &[JoinedHost]) -> Result<Parts> {
        let (intake, hosts) = (hosts::intake(joined), hosts::apis(joined)?);
        let now = ServerConfiguration::read(Arc::clone(&settings), joined, &hosts)?;
        now.warn();
        let protection = Protection::of_steps(settings.steps.confinement)?;
        let work = Arc::new(WorkMeters::new(settings.metrics.labels));
        let traces = Traces::start(&settings.traces)?;
        let (now, joined) = (RwLock::new(Arc::new(now)), joined.to_vec());
        Ok(Parts { settings, intake, now, joined, hosts, protection, work, traces })
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
        let configuration = self.configuration();
        let outbox =
            Outbox::start(store.clone(), self.hosts.clone(), configuration.rendering.clone(), self.traces.clone())
                .await?;
        let notifications = Arc::clone(&self.settings.notifications);
        let notifier = Notifier::start(store.clone(), notifications, hosts::kinds(&self.settings)).await?;
        let (settings, protection) = (Arc::clone(&self.settings), self.protection.clone());
        let executors = executors::executors(&self.settings, &configuration.global, &self.hosts, bucket).await?;
        executors.check();
        // Only then this directory is the server's own.
        let trees = (!executors.is_empty()).then(|| PathBuf::from(TREES));
        let separating = tokio::task::spawn_blocking(move || {
            if trees.is_some() {
                make_place_of_trees()?;
            }
            separation(&settings, &protection, trees)
        });
        let services = ContextServices { store: store.clone(), logs: logs.clone(), outbox, notifier, executors };
        let ctx = self.context(&configuration, services, separating.await??)?;
        let DispatchConfiguration { names, allowlist, .. } = configuration;
        let dispatch = Handle::start(ctx, names, allowlist, self.intake.clone()).await?;
        Ok(Services { store, logs, dispatch, leader, look })
    }

    /// Returns what the present configuration is for commands.
    pub(super) fn configuration(&self) -> DispatchConfiguration {
        let now = self.now();
        let ServerConfiguration { settings, global, templates } = &*now;
        DispatchConfiguration {
            settings: Arc::clone(settings),
            global: global.clone(),
            rendering: rendering(settings, templates),
            names: names(settings),
            allowlist: Allowlist::new(&settings.repo_allowlist),
        }
    }

    fn context(
        &self,
        configuration: &DispatchConfiguration,
        services: ContextServices,
        separation: Separation,
    ) -> Result<Context> {
        let ContextServices { store, logs, outbox, notifier, executors } = services;
        let settings = Arc::clone(&configuration.settings);
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
            secret_reader: Arc::clone(&settings.secret_reader),
            tfe_token: settings.tfe.as_ref().map(|tfe| (tfe.variable(), tfe.token.clone())),
        };
        let pool = settings.parallel_pool_size.saturating_mul(ADMISSION_POOLS).max(ADMISSION_MIN);
        Ok(Context {
            checkouts,
            runner: Arc::new(runner),
            executors: Arc::new(executors),
            statuses: Statuses {
                prefix: settings.vcs_status_name.clone(),
                url: settings.atlantis_url.clone(),
                pulls: self.hosts.pull_names().clone(),
                has_details: self.hosts.iter().any(|host| host.profile().status_details),
            },
            admission: Arc::new(Admission::new(pool)),
            capacity: Arc::new(Capacity::new(&settings.data_dir, &settings.limits)),
            orphaned_locks: Arc::new(OrphanedLocks::default()),
            teams: Arc::new(TeamMembers::default()),
            meters: Arc::clone(&self.work),
            traces: self.traces.clone(),
            installer,
            rendering: configuration.rendering.clone(),
            settings,
            global: configuration.global.clone(),
            store,
            logs,
            hosts: self.hosts.clone(),
            outbox,
            notifier,
            redactor,
        })
    }
}

/// Services of one term that commands need.
struct ContextServices {
    store: Store,
    logs: Logs,
    outbox: Outbox,
    notifier: Notifier,
    executors: Executors,
}

/// Returns the settings of the parser.
fn names(settings: &Settings) -> ParserSettings {
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
