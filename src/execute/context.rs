//! The services that commands need.

use super::admission::Admission;
use super::capacity::Capacity;
use super::permissions::TeamMembers;
use super::state_locks::OrphanedLocks;
use crate::checkout::Checkouts;
use crate::config::global::GlobalConfig;
use crate::domain::reply::Reply;
use crate::domain::state::Effect;
use crate::executors::Executors;
use crate::meters::WorkMeters;
use crate::notifications::Notifier;
use crate::process::Redactor;
use crate::render::RenderOptions;
use crate::render::statuses::Statuses;
use crate::reply::comments;
use crate::reply::outbox::Outbox;
use crate::runner::local::Local;
use crate::settings::Settings;
use crate::store::Store;
use crate::store::logs::Logs;
use crate::terraform::install::Installer;
use crate::traces::Traces;
use crate::vcs::Hosts;
use std::sync::Arc;
use std::time::Duration;

/// The services that commands need, and the configuration; made by `app`. Clones share the services.
#[derive(Clone)]
pub struct Context {
    pub settings: Arc<Settings>,
    /// Server-side configuration.
    pub global: GlobalConfig,
    /// State.
    pub store: Store,
    /// Logs of jobs.
    pub logs: Logs,
    /// The VCS hosts.
    pub hosts: Hosts,
    /// Working trees.
    pub checkouts: Checkouts,
    /// Terraform binaries.
    pub installer: Arc<Installer>,
    /// Posts recorded effects.
    pub outbox: Outbox,
    /// Notifies receivers besides the pull request.
    pub notifier: Notifier,
    /// Wording of commit statuses.
    pub statuses: Statuses,
    /// Wording of comments.
    pub rendering: RenderOptions,
    /// Masks secrets.
    pub redactor: Redactor,
    /// Limits the jobs of all pull requests together.
    pub admission: Arc<Admission>,
    /// Limits their use of disk and memory.
    pub capacity: Arc<Capacity>,
    /// Runs the steps of jobs on this machine.
    pub runner: Arc<Local>,
    /// Run them elsewhere.
    pub(crate) executors: Arc<Executors>,
    /// Killed jobs that were not reported yet.
    pub orphaned_locks: Arc<OrphanedLocks>,
    /// Counts and measures the work for metrics.
    pub meters: Arc<WorkMeters>,
    /// Collects spans of the work.
    pub traces: Traces,
    /// Memberships of teams.
    pub teams: Arc<TeamMembers>,
}

impl Context {
    /// Returns the comments of a reply, as effects for the outbox.
    pub(crate) fn comments(&self, reply: &Reply) -> Vec<Effect> {
        comments::effects_on(&self.hosts, &self.rendering, reply)
    }
}

/// Waits until the machine has time for background work, at most this long.
pub(crate) async fn calm(ctx: &Context, limit: Duration) {
    let _ = tokio::time::timeout(limit, ctx.admission.calm()).await;
}
