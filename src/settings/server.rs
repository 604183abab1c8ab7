//! The settings of `tidelock server`: each is declared here, those of a host's account in the host's file, and those without effect in
//! `without_effect`.

use super::bucket::{self, BucketAddress};
use super::check::{self, choice, globs, number};
use super::hosts::{HostsSettings, github};
use super::tfe::{self, TfeSettings};
use super::{
    HttpsFiles, MetricsSettings, NotificationSettings, ServedRules, SettingsSource, SignInSettings, TraceSettings,
};
use super::{access, comments, https, modules, notifications, poll, reread, sign_in, sleep, steps};
use crate::checkout::Strategy;
use crate::config::global::AutodiscoverMode;
use crate::config::policies::PolicyEngine;
use crate::domain::Distribution;
use crate::domain::command::CommandName;
use crate::domain::language::CommentLanguage;
use crate::domain::reply::CommentStyle;
use crate::process::{RunAsUsers, StepConfinement};
use secrecy::SecretString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time;
use tidelock_secrets::SecretReader;

/// Default of `autoplan-file-list`.
const FILE_LIST: &str = "**/*.tf,**/*.tf.json,**/*.tfvars,**/*.tfvars.json,**/*.tofu,**/*.tofu.json,\
    **/terragrunt.hcl,**/.terraform.lock.hcl";

settings! {
    /// All settings of `tidelock server`, typed and checked.
    pub struct Settings, static SETTINGS {
        [
            /// Hosts of repositories, and the account on each.
            hosts: HostsSettings = HostsSettings::read,
            /// Access to the server.
            access: AccessSettings = AccessSettings::read,
            /// How people sign in, where it is neither Identity-Aware Proxy nor `web_basic_auth`.
            sign_in: Option<SignInSettings> = sign_in::read,
            /// Limits of the machine's resources for work.
            limits: MachineLimits = MachineLimits::read,
            /// Separation of steps from files of others.
            steps: StepSettings = StepSettings::read,
            /// Place of the state, and how long it is kept.
            vault: VaultSettings = VaultSettings::read,
            /// When the server sleeps, and what wakes it.
            sleep: SleepSettings = SleepSettings::read,
            /// Labels and names of metrics.
            metrics: MetricsSettings = MetricsSettings::read,
            /// Export of traces.
            traces: TraceSettings = TraceSettings::read,
            /// Token for Terraform Cloud or Enterprise, and its host.
            tfe: Option<TfeSettings> = tfe::read,
            /// Receivers of notifications besides the pull request: `webhooks` of the config file.
            notifications: Arc<NotificationSettings> = notifications::read,
            /// `job-timeout` for commands that change a state; absent if it is not set, so that nothing interrupts them.
            apply_timeout: Option<time::Duration> = check::apply_timeout,
            /// Path and text of `repo-config`, or of `repo-config-json`.
            repo_config: Option<(String, String)> = check::repo_config,
            /// Titles of commands in comments: `language` and `language-config-file`.
            language: CommentLanguage = comments::language,
            /// Certificate and private key, if the port speaks HTTPS.
            https: Option<HttpsFiles> = https::files,
            /// User and password, if `web-basic-auth` is on.
            web_basic_auth: Option<(String, SecretString)> = check::web_basic_auth,
            /// Reads the secrets of projects, with variables that the steps may not get.
            secret_reader: Arc<SecretReader> = check::secret_reader,
            /// Environment of children: the server's own without secrets (settings of ours that are secret, variables of ours that look
            /// like one, and `masked_variables`).
            child_env: Vec<(String, String)> = check::filled_later,
            /// Values that are masked in every stream.
            secrets: Vec<SecretString> = check::filled_later,
            /// Origin of the settings, to read them again.
            source: Option<Arc<SettingsSource>> = reread::no_source,
            /// Rules of `repo-allowlist` that are in use now; shared by all readings of the settings.
            served: ServedRules = reread::no_rules,
            /// Warnings for the log of the start: unknown variables, settings without an effect, and the like.
            warnings: Vec<String> = check::filled_later,
        ]
        Atlantis {
            /// Commands that comments may use, of version, plan, apply, cancel, unlock, force-unlock, lock, freeze, unfreeze,
            /// approve_policies, import, state; or all. Without apply nothing can be applied.
            allow_commands: List -> Vec<CommandName> = "version,plan,apply,unlock,force-unlock,lock,freeze,unfreeze,approve_policies,cancel" => check::allow_commands,
            /// Plan draft pull requests automatically.
            allow_draft_prs [live]: Switch = "false",
            /// Accept commands on pull requests from forks: whoever opens one runs code here.
            allow_fork_prs [live]: Switch = "false",
            /// Token that callers of /api/* send as X-Atlantis-Token. Without it, calls that change state are off.
            api_secret: Secret,
            /// Address of this server in links, with its base path; by default http://HOSTNAME:PORT.
            atlantis_url: Text => check::atlantis_url,
            /// Find projects that no repo config names: auto, enabled or disabled.
            autodiscover_mode [live]: Text -> AutodiscoverMode = "auto" => choice,
            /// Merge a pull request when all that was planned of it is applied, where a repo config does not say.
            automerge [live]: Switch = "false",
            /// How to merge then: merge, rebase or squash. By default what the repository allows, in this order.
            automerge_method [live]: Text -> Option<String> => check::merge_method,
            /// Globs of changed files that make a discovered project be planned.
            autoplan_file_list [live]: List = FILE_LIST => globs,
            /// Globs of files whose local modules are followed; turns autoplan-modules on. By default autoplan-file-list, if
            /// autoplan-modules is on.
            autoplan_modules_from_projects [live]: List => check::modules,
            /// Arguments for Terraform that comments may not give.
            blocked_extra_args [live]: List = "-chdir,--chdir,-plugin-dir,--plugin-dir",
            /// branch: the head as it is; merge: the head merged into the base branch.
            checkout_strategy: Text -> Strategy = "branch" => choice,
            /// Directory of state, checkouts, logs and binaries.
            data_dir: Path -> PathBuf = "~/.atlantis" => check::data_dir,
            /// Terraform or OpenTofu, where a project does not say: terraform or opentofu.
            default_tf_distribution: Text -> Distribution = "terraform" => choice,
            /// Version where a project does not say; by default the binary on PATH.
            default_tf_version: Text -> Option<String> => check::default_version,
            /// Refuse apply without -d, -w or -p.
            disable_apply_all [live]: Switch = "false",
            /// Label of pull requests that are not merged automatically.
            disable_automerge_label [live]: Text -> Option<String> => check::optional,
            /// Plan only on request.
            disable_autoplan [live]: Switch = "false",
            /// Label of pull requests that are planned only on request.
            disable_autoplan_label [live]: Text -> Option<String> => check::optional,
            /// Remove the apply lock from pages and API.
            disable_global_apply_lock: Switch = "false",
            /// Never fold output in comments.
            disable_markdown_folding [live]: Switch = "false",
            /// Do not lock projects: two pull requests may plan the same one.
            disable_repo_locking: Switch = "false",
            /// Label of pull requests for which the comment unlock is refused; the pages do not look at it.
            disable_unlock_label [live]: Text -> Option<String> => check::optional,
            /// Take back all approvals when somebody comments plan, before anything is planned.
            discard_approval_on_plan [live]: Switch = "false",
            /// Reaction on comments that are commands; an empty value means none.
            emoji_reaction [live]: Text -> Option<String> = "eyes" => check::reaction,
            /// Move + - ~ of plans to the first column, so that they are coloured.
            enable_diff_markdown_format [live]: Switch = "true",
            /// Look for drift by API, /api/drift/* (docs/drift.md).
            enable_drift_detection: Switch = "false",
            /// Let /api/drift/remediate apply what it plans, where it is asked to: action apply (docs/drift.md).
            enable_drift_remediation: Switch = "false",
            /// Check plans against the policy sets of repos.yaml; what fails is not applied unless its owners approve (docs/policies.md).
            enable_policy_checks [live]: Switch = "false",
            /// Read -p as a regular expression over project names.
            enable_regexp_cmd [live]: Switch = "false",
            /// First word of comments; by default both atlantis and tidelock.
            executable_names as "executable-name": Text -> Vec<String> => check::executable_names,
            /// Stop a command when a pre-workflow hook fails.
            fail_on_pre_workflow_hook_error [live]: Switch = "false",
            /// Where the branch requires the status of our own apply, leave it out of the requirement mergeable: it is judged by the branch's other
            /// rules. GitHub alone; the token needs to read checks.
            gh_allow_mergeable_bypass_apply: Switch = "false",
            /// Which teams may use which commands in repositories on GitHub, TEAM:COMMAND, such as devs:plan,sre:apply; * stands for any.
            /// By default everybody may. More is said in repos.yaml (docs/permissions.md).
            gh_team_allowlist [live]: List => check::team_allowlist,
            /// Hide earlier results of the same command once a newer one tells them: folded as outdated on GitHub, folded on GitLab and
            /// Gitea, a closed thread on Azure DevOps, a resolved one on
            /// Bitbucket Data Center. Bitbucket Cloud cannot hide comments.
            hide_prev_plan_comments [live]: Switch = "false",
            /// Leave projects without changes out of comments.
            hide_unchanged_plan_comments [live]: Switch = "false",
            /// With gh-allow-mergeable-bypass-apply: first parts of the names of other servers' statuses, such as atlantis-2, that are left out
            /// too.
            ignore_vcs_status_names: List => check::ignored_statuses,
            /// Count files that hooks made as changed files.
            include_git_untracked_files [live]: Switch = "false",
            /// debug, info, warn or error.
            log_level: Text = "info" => check::log_level,
            /// Directory with comment templates of your own; docs/templates.md.
            markdown_template_overrides_dir: Path -> Option<PathBuf> = "~/.markdown_templates" => comments::templates_dir,
            /// Most comments that one answer is split into, up to 100; 0: 100. With comment-style short at most 2.
            max_comments_per_command [live]: Number -> u32 = "100" => number::<0, 10_000, _>,
            /// Apply projects at the same time, where a repo config does not say.
            parallel_apply [live]: Switch = "false",
            /// Plan projects at the same time, where a repo config does not say.
            parallel_plan [live]: Switch = "false",
            /// Most jobs of one command at the same time. Jobs beyond the number of processors and one start only while the machine is idle.
            parallel_pool_size: Number -> usize = "15" => number::<1, 1024, _>,
            /// Comment on policy checks only when they fail.
            quiet_policy_checks [live]: Switch = "false",
            /// Port to listen on; the variable PORT is read as well.
            port: Number -> u16 = "4141" => number::<1, 65_535, _>,
            /// Repositories to serve, such as github.com/acme/*; ! in front excludes. There is no default.
            repo_allowlist [live]: List => check::repo_allowlist,
            /// Refuse plan -d for directories that the pull request does not change.
            restrict_file_list [live]: Switch = "false",
            /// Stay quiet in repositories that are not allowlisted; false: comment there and log it. Not set: comment only where a rule
            /// with ! excludes the repository.
            silence_allowlist_errors [live]: Switch -> Option<bool> = "true" => check::if_given,
            /// Do not answer on pull requests from forks.
            silence_fork_pr_errors [live]: Switch = "false",
            /// Do not answer when no project matches.
            silence_no_projects [live]: Switch = "false",
            /// Set no commit status when autoplan finds no project.
            silence_vcs_status_no_plans [live]: Switch = "false",
            /// Set no commit status when no project matches.
            silence_vcs_status_no_projects [live]: Switch = "false",
            /// First part of the names of figures (/metrics, and the statsd of repos.yaml).
            stats_namespace: Text = "tidelock" => check::stats_namespace,
            /// Download versions that are not installed.
            tf_download: Switch = "true",
            /// Where Terraform is downloaded from.
            tf_download_url: Text = "https://releases.hashicorp.com" => check::address,
            /// Share downloaded providers among projects.
            use_tf_plugin_cache: Switch = "true",
            /// Directories from which -var-file may read; by default data-dir.
            var_file_allowlist: List -> Vec<PathBuf> => check::var_file_allowlist,
            /// First part of the names of commit statuses.
            vcs_status_name: Text = "atlantis",
        }
        Tidelock {
            /// Show pages and API to everybody who reaches the port, as Atlantis does.
            allow_unauthenticated_pages: Switch = "false",
            /// Start without gh-webhook-secret: everybody who reaches the port can then run commands, and code, here.
            allow_unsigned_webhooks: Switch = "false",
            /// Count only approvals of the current head commit.
            approval_of_head [live]: Switch = "false",
            /// Address to listen on.
            bind: Text -> IpAddr = "0.0.0.0" => check::bind,
            /// Google Cloud project: log lines are in the format of Cloud Logging, and name the trace of their request in that project. On
            /// Cloud Run the format is the default, without the trace.
            cloud_logging as "log-project": Text -> Option<Option<String>> => check::cloud_logging,
            /// For tests: http://LOOPBACK:PORT of a double of Cloud Run.
            cloud_run_endpoint: Text -> Option<String> => bucket::double,
            /// How much of an answer is posted. short: one comment, and a second one for a single result that needs it; many results are folded,
            /// the same plan or refusal is told once, and what does not fit is left out, with a link to the log or the run. full: everything.
            comment_style [live]: Text -> CommentStyle = "short" => choice,
            /// How long a step may run. Only a value that is given limits apply, import and state rm as well: by default they are never
            /// interrupted.
            job_timeout [live]: Duration = "60m",
            /// Variables of the server's environment that steps and Terraform do not get; their values are masked in all output.
            masked_variables: List,
            /// Where terraform init may fetch private modules with the server's own token, such as
            /// github.com/acme,dev.azure.com/acme: a host, or a host and an organization. By default nowhere: docs/security.md says what a
            /// pull request can do with it.
            module_credentials: List => modules::origins,
            /// Refuse to apply plans that are older, such as 24h, where plan_max_age of repos.yaml does not say; 0: no limit.
            plan_max_age [live]: Duration = "0",
            /// What evaluates policies: builtin, which needs nothing to be installed, or conftest.
            policy_engine [live]: Text -> PolicyEngine = "builtin" => choice,
            /// Ask the hosts for changes at this interval, such as 15s, instead of taking deliveries; quiet repositories are asked every two
            /// minutes. Needs no webhook, no webhook secret and no public address; docs/poll.md. 0: take deliveries.
            poll: Duration -> Option<time::Duration> = "0" => poll::interval,
            /// Interval at which the host is asked for closed pull requests, pushes and comments whose deliveries never came.
            reconcile_interval: Duration = "5m",
            /// Plan open pull requests of which no delivery ever came, if they were opened after this bucket first served their repository.
            reconcile_unknown [live]: Switch = "true",
            /// Run steps, Terraform and hooks as this user. The server needs the right to change users. UID is one user for all pull requests;
            /// FIRST:LAST, such as 10000:10063, gives each pull request at work its own. The group id of a user is its user id.
            run_as_user: Text -> Option<RunAsUsers> => check::run_as_user,
            /// How long a running apply may continue after SIGTERM, from 1s to 1h: in its last eight seconds it is interrupted, then
            /// killed. Whatever stops the process (Kubernetes' terminationGracePeriodSeconds, docker stop --time) has to wait two seconds
            /// longer; Cloud Run waits ten in all.
            shutdown_grace: Duration = "8s" => check::shutdown_grace,
            /// Check out only what the planned projects need, and everything where their code does not tell what it reads.
            sparse_checkout: Switch = "false",
            /// Accept releases without a signature; checksums are still verified.
            tf_download_allow_unsigned: Switch = "false",
            /// Where OpenTofu is downloaded from.
            tofu_download_url: Text = "https://github.com/opentofu/opentofu/releases/download" => check::address,
            /// Keep one comment with plans up to date: a plan that the server makes by itself, as after a push, is written over the earlier
            /// comment that it replaces. The answer to a command is a new comment, and hides earlier ones as with hide-prev-plan-comments.
            update_plan_comments [live]: Switch = "false",
        }
    }
}

settings! {
    /// Settings of the access to the server.
    #[derive(Debug, Clone, Default)]
    pub struct AccessSettings, static ACCESS {
        []
        Tidelock {
            /// Admit people through Google's Identity-Aware Proxy alone, with assertions for one of these audiences, such as
            /// /projects/NUMBER/global/backendServices/ID.
            iap_audience: List => access::iap_audience,
            /// For tests: where the keys of these assertions are.
            iap_keys_url: Text -> Option<String> => access::test_address,
            /// Number of proxies before this server that add an address to X-Forwarded-For, 0 to 2: 0 takes the address of the connection,
            /// 1 the last entry, 2 the one before it. Cloud Run adds one; a load balancer before it adds another.
            trusted_proxy_hops: Number -> u8 = "0" => number::<0, 2, _>,
            /// Addresses that may call /events: github, gitlab, bitbucket (Cloud) and azuredevops (their published ranges; other hosts publish
            /// none), addresses, ranges such as 192.0.2.0/24; by default all. Signatures are verified either way.
            webhook_allowlist: List,
            /// For tests: where the ranges are published that github in webhook-allowlist stands for.
            github_meta_url: Text -> Option<String> => github::meta_url,
            /// Serve only /events and probes: store deliveries in the bucket for the server that leads, and never lead. Needs no token.
            events_only: Switch = "false",
            /// Emails, and domains of Google Workspace such as @example.com, that may unlock, stop applies and change anything else on the
            /// pages; by default everybody who is admitted. Needs iap-audience, oidc-issuer or gh-oauth-client-id; the last takes accounts
            /// and teams, as in web-viewers.
            admins: List => access::admins,
        }
    }
}

settings! {
    /// Settings of a server that sleeps when it has nothing to do.
    #[derive(Debug, Clone, Default)]
    pub struct SleepSettings, static SLEEP {
        []
        Tidelock {
            /// Give up the lead and make no request to the bucket after this time without work and visitors, such as 10m, until a
            /// delivery, a page or /wake comes; 0: never.
            idle_release: Duration -> Option<time::Duration> = "0" => sleep::idle_release,
            /// Queue of Cloud Tasks, projects/PROJECT/locations/REGION/queues/NAME, for a container that has no processor while no request
            /// is open: its tasks call wake-url while there is work, and when something is due.
            wake_queue: Text -> Option<String> => sleep::queue,
            /// Address that tasks call, https://HOST/wake, which is also the audience of their tokens.
            wake_url: Text -> Option<String> => sleep::url,
            /// Service account whose tokens /wake accepts.
            wake_account: Text -> Option<String> => sleep::account,
            /// For tests: where the keys of these tokens are.
            wake_keys_url: Text -> Option<String> => access::test_address,
            /// For tests: http://LOOPBACK:PORT of a double of Cloud Tasks.
            cloud_tasks_endpoint: Text -> Option<String> => bucket::double,
        }
    }
}

settings! {
    /// Limits of the machine's resources for work.
    #[derive(Debug, Clone, Copy)]
    pub struct MachineLimits, static LIMITS {
        []
        Tidelock {
            /// Start no plan while more than this percentage of the container's memory is in use; 0: no limit. It has no effect in a
            /// container without a memory limit.
            max_memory_percent: Number -> u64 = "85" => number::<0, 100, _>,
            /// Most mebibytes in the data directory, where its file system does not report the limit (a Kubernetes emptyDir with a
            /// sizeLimit); 0: all that the file system has. Idle checkouts, binaries and mirrors are removed before it is reached.
            scratch_quota_mib: Number -> u64 = "0" => number::<0, { 1 << 30 }, _>,
        }
    }
}

settings! {
    /// Separation of steps from files of others.
    #[derive(Debug, Clone, Default)]
    pub struct StepSettings, static STEPS {
        [
            /// Files with secrets that other settings name.
            secret_files: Vec<PathBuf> = steps::secret_files,
            /// Files and directories that other settings name, and that steps have no reason to change.
            files: Vec<PathBuf> = steps::files,
        ]
        Tidelock {
            /// Whether Landlock keeps steps away from the server's files and from other pull requests: auto, where the kernel has it;
            /// required, or the server does not start; off.
            confinement as "step-confinement": Text -> StepConfinement = "auto" => choice,
            /// Directory whose contents are copied into the home directory that each command gets for its steps, where Landlock confines
            /// them; by default the configuration of cloud tools, git and Terraform in the server's own.
            home as "step-home": Path -> Option<PathBuf> => steps::home,
            /// Directories outside of the checkout that confined steps may write to, such as /mnt/cache; none stands for no directory. By
            /// default all but those of the system, of the server and on PATH.
            writable as "step-writable": List -> Option<Vec<PathBuf>> => steps::writable,
        }
    }
}

settings! {
    /// Place of the state, and how long it is kept.
    #[derive(Debug, Clone)]
    pub struct VaultSettings, static VAULT {
        []
        Tidelock {
            /// Where all state is kept: gs://NAME/PREFIX, or file:///DIRECTORY; by default the folder vault of data-dir, which is then
            /// all that must not be lost.
            bucket: Text -> BucketAddress => bucket::address,
            /// Lead although the last server on this bucket had another host, account or allowlist.
            force_takeover: Switch = "false",
            /// Days for which every state in the bucket stays restorable.
            keep as "vault-keep-days": Number -> time::Duration = "1" => check::days::<3650>,
            /// Number of the last states that stay restorable, however old they are.
            keep_states as "vault-keep-states": Number -> u64 = "100" => number::<1, 1_000_000, _>,
            /// Another server takes over when the leader has not renewed its lease for this long.
            lease_ttl: Duration = "20s" => bucket::lease_ttl,
            /// How often logs of running jobs are saved in the bucket; all else is saved before it becomes visible.
            sync_interval: Duration = "60s",
        }
    }
}

rows! {
    static PARTS {
        Atlantis {
            /// Plan projects whose local modules changed.
            autoplan_modules [live]: Switch = "false",
            /// YAML file with settings: their names are the keys.
            config: Path,
            /// Language of the titles of commands in comments: en, es, or any other with language-config-file.
            language [live]: Text = "en",
            /// YAML file with titles of commands in another language; docs/templates.md.
            language_config_file: Path,
            /// Server-side configuration of repositories, repos.yaml.
            repo_config [live]: Path,
            /// The same as JSON.
            repo_config_json [live]: Text,
            /// Token of the Slack app that notifies, where webhooks in the config file name Slack; docs/notifications.md.
            slack_token: Secret,
            /// Certificate in PEM, with those between it and its issuer, for HTTPS on the port; needs ssl-key-file. Both are read again when
            /// they change.
            ssl_cert_file: Path,
            /// Private key of the certificate, in PEM.
            ssl_key_file: Path,
            /// Old name of default-tf-distribution.
            tf_distribution: Text,
            /// Terraform Cloud or Enterprise, for which tfe-token is: the name of its host.
            tfe_hostname: Text = tfe::DEFAULT,
            /// Token for Terraform Cloud or Enterprise: steps get it, as the variable in which Terraform 1.2 and newer look for it
            /// (docs/security.md).
            tfe_token: Secret,
            /// Ask for web-username and web-password on pages and API.
            web_basic_auth: Switch = "false",
            /// Password for web-basic-auth; the default is refused.
            web_password: Secret = "atlantis",
            /// User for web-basic-auth.
            web_username: Text = "atlantis",
            /// Headers of HTTP notifications, as a JSON object of texts or lists of texts.
            webhook_http_headers: Secret,
            /// Without module-credentials: the same as module-credentials with the name of each host that the server has a token for.
            write_git_creds: Switch = "false",
        }
        Tidelock {
            /// For tests: http://LOOPBACK:PORT of a double of Cloud Storage.
            bucket_endpoint: Text,
            /// Where Slack's API is: https://slack-gov.com/api for GovSlack.
            slack_api_url: Text = "https://slack.com/api",
            /// Variables of the server's environment whose values are masked in all output; steps and Terraform still get them.
            masked_values_from: List,
        }
    }
}
