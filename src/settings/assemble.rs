//! Values → [`Settings`]: which setting becomes which field.

use super::typed::Reader;
use super::{GithubSettings, Settings, access, bucket, check};
use crate::checkout::Strategy;
use crate::config::global::AutodiscoverMode;
use crate::domain::Distribution;
use std::path::PathBuf;

const STRATEGIES: [(&str, Strategy); 2] = [("branch", Strategy::Branch), ("merge", Strategy::Merge)];
const DISTRIBUTIONS: [(&str, Distribution); 2] =
    [("terraform", Distribution::Terraform), ("opentofu", Distribution::OpenTofu)];
const MODES: [(&str, AutodiscoverMode); 3] = [
    ("auto", AutodiscoverMode::Auto),
    ("enabled", AutodiscoverMode::Enabled),
    ("disabled", AutodiscoverMode::Disabled),
];
const LEVELS: [(&str, &str); 4] = [("debug", "debug"), ("info", "info"), ("warn", "warn"), ("error", "error")];

/// All settings; what is wrong is in `r.problems` afterwards.
pub(super) fn settings(r: &mut Reader) -> Settings {
    check::old_distribution(r);
    check::language(r);
    check::masked_values(r);
    let masked_variables = check::masked_variables(r);
    let github = check::github(r);
    let port = u16::try_from(r.number("port", 1, 65_535)).unwrap_or_default();
    let data_dir = r.path("data-dir").unwrap_or_default();
    Settings { masked_variables, ..fields(r, github, port, data_dir) }
}

/// All but what has to be masked first.
fn fields(r: &mut Reader, github: Option<GithubSettings>, port: u16, data_dir: PathBuf) -> Settings {
    Settings {
        access: access::settings(r, github.as_ref()),
        allow_commands: check::allow_commands(r),
        allow_draft_prs: r.switch("allow-draft-prs"),
        allow_fork_prs: r.switch("allow-fork-prs"),
        allow_unauthenticated_pages: r.switch("allow-unauthenticated-pages"),
        allow_unsigned_webhooks: r.switch("allow-unsigned-webhooks"),
        api_secret: r.secret("api-secret"),
        approval_of_head: r.switch("approval-of-head"),
        atlantis_url: check::atlantis_url(r, port),
        autodiscover_mode: r.choice("autodiscover-mode", &MODES, AutodiscoverMode::Auto),
        autoplan_file_list: check::globs(r, "autoplan-file-list"),
        autoplan_modules_from_projects: check::modules(r),
        bind: check::bind(r),
        blocked_extra_args: r.list("blocked-extra-args"),
        checkout_strategy: r.choice("checkout-strategy", &STRATEGIES, Strategy::Branch),
        default_tf_distribution: r.choice("default-tf-distribution", &DISTRIBUTIONS, Distribution::Terraform),
        default_tf_version: check::default_version(r),
        disable_apply_all: r.switch("disable-apply-all"),
        disable_autoplan: r.switch("disable-autoplan"),
        disable_autoplan_label: r.optional("disable-autoplan-label"),
        disable_global_apply_lock: r.switch("disable-global-apply-lock"),
        disable_markdown_folding: r.switch("disable-markdown-folding"),
        disable_repo_locking: r.switch("disable-repo-locking"),
        disable_unlock_label: r.optional("disable-unlock-label"),
        emoji_reaction: check::reaction(r),
        enable_diff_markdown_format: r.switch("enable-diff-markdown-format"),
        enable_regexp_cmd: r.switch("enable-regexp-cmd"),
        executable_names: check::executable_names(r),
        fail_on_pre_workflow_hook_error: r.switch("fail-on-pre-workflow-hook-error"),
        github,
        hide_unchanged_plan_comments: r.switch("hide-unchanged-plan-comments"),
        include_git_untracked_files: r.switch("include-git-untracked-files"),
        job_timeout: r.duration("job-timeout"),
        log_level: r.choice("log-level", &LEVELS, "info").to_owned(),
        max_comments_per_command: u32::try_from(r.number("max-comments-per-command", 0, 10_000)).unwrap_or_default(),
        limits: check::limits(r),
        parallel_apply: r.switch("parallel-apply"),
        parallel_plan: r.switch("parallel-plan"),
        parallel_pool_size: check::pool_size(r),
        masked_variables: Vec::new(),
        port,
        reconcile_interval: r.duration("reconcile-interval"),
        reconcile_unknown: r.switch("reconcile-unknown"),
        repo_allowlist: check::repo_allowlist(r),
        repo_config: check::repo_config(r),
        restrict_file_list: r.switch("restrict-file-list"),
        run_as_user: check::run_as_user(r),
        silence_allowlist_errors: r.is_given("silence-allowlist-errors").then(|| r.switch("silence-allowlist-errors")),
        silence_fork_pr_errors: r.switch("silence-fork-pr-errors"),
        silence_no_projects: r.switch("silence-no-projects"),
        silence_vcs_status_no_plans: r.switch("silence-vcs-status-no-plans"),
        silence_vcs_status_no_projects: r.switch("silence-vcs-status-no-projects"),
        shutdown_grace: check::shutdown_grace(r),
        sparse_checkout: r.switch("sparse-checkout"),
        tf_download: r.switch("tf-download"),
        tf_download_url: check::address(r, "tf-download-url"),
        tofu_download_url: check::address(r, "tofu-download-url"),
        tf_download_allow_unsigned: r.switch("tf-download-allow-unsigned"),
        use_tf_plugin_cache: r.switch("use-tf-plugin-cache"),
        var_file_allowlist: check::var_file_allowlist(r, &data_dir),
        vault: bucket::settings(r, &data_dir),
        vcs_status_name: r.text("vcs-status-name"),
        web_basic_auth: check::web_basic_auth(r),
        cloud_logging: cloud_logging(r),
        data_dir,
        child_env: Vec::new(),
        secrets: Vec::new(),
        warnings: Vec::new(),
    }
}

/// On Cloud Run, which says so in its own variable, or where a project is named.
fn cloud_logging(r: &Reader) -> Option<Option<String>> {
    let project = r.optional("log-project");
    (project.is_some() || r.environment.others.contains_key("K_SERVICE")).then_some(project)
}
