use super::hosts::github::GithubToken;
use super::*;
use crate::config::policies::PolicyEngine;
use crate::domain::Distribution;
use crate::domain::command::CommandName;
use crate::process::RunAsUsers;
use insta::assert_snapshot;
use proptest::prelude::*;

/// Settings that a server requires to start.
pub(super) const NEEDED: [(&str, &str); 5] = [
    ("HOME", "/home/tide"),
    ("ATLANTIS_GH_USER", "bot"),
    ("ATLANTIS_GH_TOKEN", "ghp_token_value"),
    ("ATLANTIS_GH_WEBHOOK_SECRET", "webhook_secret_value"),
    ("ATLANTIS_REPO_ALLOWLIST", "github.com/acme/*"),
];

/// Loads the settings with the required ones; a later variable of the same name replaces one of them.
fn load(args: &[&str], env: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let env: std::collections::BTreeMap<_, _> = NEEDED.iter().chain(env).copied().collect();
    Settings::load(args.iter().map(OsString::from), env.into_iter().map(|(name, value)| (name.into(), value.into())))
}

pub(super) fn loaded(args: &[&str], env: &[(&str, &str)]) -> Settings {
    load(args, env).unwrap_or_else(|error| panic!("{args:?} {env:?}: {error}"))
}

pub(super) fn invalid(args: &[&str], env: &[(&str, &str)]) -> String {
    match load(args, env).err() {
        Some(SettingsError::Invalid(text)) => text,
        other => panic!("{args:?} {env:?}: {other:?}"),
    }
}

pub(super) fn loaded_file(text: &str) -> Settings {
    with_file(text, &[], &[]).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(super) fn invalid_file(text: &str) -> String {
    with_file(text, &[], &[]).err().map(|error| error.to_string()).unwrap_or_else(|| panic!("{text} is taken"))
}

/// Writes a config file and loads it.
fn with_file(text: &str, args: &[&str], env: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let config = file.path().display().to_string();
    load(args, &[env, &[("ATLANTIS_CONFIG", config.as_str())]].concat())
}

#[test]
fn the_reference_page_is_made_from_the_table() {
    let path = format!("{}/docs/settings.md", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, reference()).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(page == reference(), "docs/settings.md is old: UPDATE_DOCS=1 cargo test --lib settings");
}

#[test]
fn every_setting_is_declared_once_and_has_a_default_of_its_kind() {
    let mut names: Vec<_> = table::all().map(|setting| setting.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    for setting in table::all() {
        let default = setting.default;
        match setting.kind {
            table::ValueKind::Switch => assert!(["true", "false"].contains(&default), "{}", setting.name),
            table::ValueKind::Number => {
                assert!(default.is_empty() || default.parse::<i64>().is_ok(), "{}", setting.name)
            }
            table::ValueKind::Secret => assert!(default.is_empty() || setting.name == "web-password"),
            _ => {}
        }
        assert!(setting.help.ends_with('.') && !setting.help.ends_with(".."), "{}", setting.name);
    }
}

#[test]
fn defaults_are_those_of_the_table() {
    let s = loaded(&[], &[]);
    assert_eq!((s.port, s.bind.to_string().as_str()), (4141, "0.0.0.0"));
    assert_eq!(s.data_dir, PathBuf::from("/home/tide/.atlantis"));
    assert_eq!(s.var_file_allowlist, [PathBuf::from("/home/tide/.atlantis")]);
    assert_eq!(s.executable_names, ["atlantis", "tidelock"]);
    assert_eq!(s.emoji_reaction.as_deref(), Some("eyes"));
    assert_eq!(s.max_comments_per_command, 100);
    assert_eq!(s.job_timeout, Duration::from_secs(3600));
    assert_eq!((s.shutdown_grace, s.interrupt_time()), (Duration::from_secs(8), Duration::from_secs(8)));
    assert!(s.parallel_pool_size == 15 && s.tf_download && s.use_tf_plugin_cache && !s.disable_autoplan);
    assert_eq!(s.autoplan_file_list.len(), 8);
    assert!(s.autoplan_modules_from_projects.is_empty() && s.web_basic_auth.is_none() && s.run_as_user.is_none());
    assert_eq!(s.blocked_extra_args, ["-chdir", "--chdir", "-plugin-dir", "--plugin-dir"]);
    let github = s.hosts.github.unwrap();
    assert_eq!((github.hostname.as_str(), github.api_url.as_str()), ("github.com", "https://api.github.com"));
    assert_eq!(s.warnings, [""; 0]);
    use CommandName::*;
    assert_eq!(s.allow_commands, [Plan, Apply, Version, Unlock, ForceUnlock, Cancel, Freeze, Unfreeze, Lock]);
}

#[test]
fn the_command_line_wins_over_variables_and_those_over_the_file() {
    let file = "gh-user: of-file\nport: 1000\nvcs-status-name: of-file\nlog-level: debug\n";
    let env = [("ATLANTIS_PORT", "2000"), ("ATLANTIS_VCS_STATUS_NAME", "a"), ("TIDELOCK_VCS_STATUS_NAME", "t")];
    let s = with_file(file, &["--port", "3000", "--port=3001"], &env).ok().unwrap();
    assert_eq!((s.port, s.vcs_status_name.as_str(), s.log_level.as_str()), (3001, "t", "debug"));
    assert_eq!(s.hosts.github.unwrap().user, "bot");
    let s = with_file(file, &[], &[("TIDELOCK_VCS_STATUS_NAME", ""), ("ATLANTIS_GH_USER", "")]).ok().unwrap();
    assert_eq!(
        (s.port, s.vcs_status_name.as_str(), s.hosts.github.unwrap().user.as_str()),
        (1000, "of-file", "of-file")
    );
}

#[test]
fn switches_are_given_with_or_without_a_value() {
    assert!(loaded(&["--disable-autoplan"], &[]).disable_autoplan);
    assert!(loaded(&["--disable-autoplan=true", "--disable-apply-all"], &[]).disable_autoplan);
    assert!(!loaded(&["--disable-autoplan", "--disable-autoplan=false"], &[]).disable_autoplan);
    assert!(!loaded(&["--tf-download=false"], &[]).tf_download);
    assert!(!loaded(&[], &[("ATLANTIS_TF_DOWNLOAD", "0")]).tf_download);
    assert_eq!(invalid(&[], &[("ATLANTIS_TF_DOWNLOAD", "no")]), "ATLANTIS_TF_DOWNLOAD is neither true nor false");
    assert!(invalid(&["--disable-autoplan", "true"], &[]).contains("settings are written --name=value"));
}

#[test]
fn unknown_flags_stop_the_start_and_name_the_nearest() {
    assert_eq!(invalid(&["--gh-tokn=ghp_x"], &[]), "there is no flag --gh-tokn; did you mean --gh-token?");
    assert_eq!(
        invalid(&["--repo-whitelist", "x"], &[]),
        "there is no flag --repo-whitelist; did you mean --repo-allowlist?"
    );
    assert_eq!(invalid(&["ghp_x"], &[]), "an argument is no flag: settings are written --name=value");
    assert_eq!(invalid(&["--gh-user"], &[]), "--gh-user needs a value: --gh-user=VALUE");
}

#[test]
fn unknown_variables_are_warned_of_and_kubernetes_is_not() {
    let env = [
        ("ATLANTIS_GH_TOKN", "ghp_misspelt"),
        ("ATLANTIS_URL", "https://x"),
        ("ATLANTIS_FOO_BAR", "x"),
        ("ATLANTIS_WEBHOOKS", "x"),
        ("ATLANTIS_PORT", "tcp://10.0.0.1:80"),
        ("ATLANTIS_PORT_80_TCP", "tcp://10.0.0.1:80"),
        ("ATLANTIS_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("ATLANTIS_PORT_80_TCP_PORT", "80"),
        ("ATLANTIS_SERVICE_HOST", "10.0.0.1"),
        ("ATLANTIS_SERVICE_PORT", "80"),
        ("ATLANTIS_SERVICE_PORT_ATLANTIS", "80"),
        ("ATLANTIS_REDIS_PORT", "tcp://10.0.0.2:6379"),
    ];
    let s = loaded(&[], &env);
    assert_eq!(s.port, 4141);
    assert_eq!(
        s.warnings,
        [
            "ATLANTIS_FOO_BAR is no setting and has no effect; `tidelock server --help` lists all",
            "ATLANTIS_GH_TOKN is no setting and has no effect; did you mean ATLANTIS_GH_TOKEN?",
            "ATLANTIS_URL is no setting and has no effect; did you mean ATLANTIS_ATLANTIS_URL?",
            // The setting that ends alike would allow unsigned webhooks.
            "ATLANTIS_WEBHOOKS is no setting and has no effect; `tidelock server --help` lists all",
        ]
    );
    assert!(!s.child_env.iter().any(|(name, _)| name == "ATLANTIS_GH_TOKN"));
    assert_eq!(loaded(&["--port=tcp://10.0.0.1:80"], &[]).port, 4141);
}

#[test]
fn plain_port_is_used_unless_a_variable_or_flag_says_otherwise() {
    assert_eq!(loaded(&[], &[("PORT", "8080")]).port, 8080);
    assert_eq!(loaded(&[], &[("PORT", "8080"), ("ATLANTIS_PORT", "9")]).port, 9);
    assert_eq!(loaded(&["--port=10"], &[("PORT", "8080")]).port, 10);
    assert_eq!(loaded(&[], &[("PORT", "tcp://10.0.0.1:80")]).port, 4141);
    assert_eq!(loaded(&[], &[("PORT", "x")]).warnings, ["PORT is no port and has no effect"]);
}

#[test]
fn zero_and_empty_mean_the_default_except_where_they_mean_none() {
    let s = loaded(&[], &[]);
    assert_eq!(s.apply_timeout, None);
    let limits = |s: &Settings| [CommandName::Plan, CommandName::Apply].map(|name| s.step_limit(name).as_secs());
    assert_eq!(limits(&s), [3600, 365 * 24 * 3600]);
    let s = loaded(&["--job-timeout=60m"], &[]);
    assert_eq!((limits(&s), s.apply_timeout), ([3600, 3600], Some(Duration::from_secs(3600))));
    let s = loaded(&[], &[("ATLANTIS_JOB_TIMEOUT", "5m"), ("TIDELOCK_JOB_TIMEOUT", "2m")]);
    assert_eq!((s.job_timeout.as_secs(), s.apply_timeout), (120, Some(Duration::from_secs(120))));
    let s = loaded(&["--port=0", "--vcs-status-name=", "--job-timeout=0", "--parallel-pool-size=0"], &[]);
    assert_eq!((s.port, s.vcs_status_name.as_str(), s.job_timeout.as_secs()), (4141, "atlantis", 3600));
    assert_eq!(s.apply_timeout, None);
    assert_eq!(s.parallel_pool_size, 15);
    assert_eq!(loaded(&["--max-comments-per-command=0"], &[]).max_comments_per_command, 0);
    assert_eq!(loaded(&["--emoji-reaction="], &[]).emoji_reaction, None);
    assert_eq!(loaded(&[], &[("ATLANTIS_EMOJI_REACTION", "")]).emoji_reaction, None);
    let odd = loaded(&["--emoji-reaction=thumbsup"], &[]);
    assert!(odd.emoji_reaction.is_none() && odd.warnings[0].contains("GitHub's reactions are +1"));
}

#[test]
fn defaults_of_settings_without_an_effect_are_accepted() {
    let off = ["--gh-app-id=0", "--locking-db-type=boltdb", "--gitlab-hostname=gitlab.com", "--language=en-US"];
    loaded(&off, &[("ATLANTIS_SLACK_TOKEN", ""), ("ATLANTIS_REDIS_PORT", "6379")]);
}

#[test]
fn what_has_no_effect_is_warned_of() {
    let s = loaded(&["--checkout-depth=3", "--websocket-check-origin", "--tf-distribution=opentofu"], &[]);
    assert_eq!(
        s.warnings,
        [
            "--checkout-depth has no effect: our mirrors need none",
            "--tf-distribution is the old name of default-tf-distribution",
        ]
    );
    assert_eq!(s.default_tf_distribution, Distribution::OpenTofu);
}

#[test]
fn what_is_left_of_an_atlantis_set_up_and_changes_nothing_is_warned_of() {
    let file = "locking-db-type: redis\nredis-host: redis.internal\nredis-port: 6380\nwrite-git-creds: false\n";
    let args = ["--share-plan-dir=/plans"];
    let env = [
        ("ATLANTIS_REDIS_PASSWORD", "redis-password-value"),
        ("ATLANTIS_REDIS_TLS_ENABLED", "true"),
        ("ATLANTIS_REDIS_DB", "0"),
        ("ATLANTIS_WRITE_GIT_CREDS", "false"),
        ("ATLANTIS_SLACK_TOKEN", "slack-token-value"),
    ];
    let s = with_file(file, &args, &env).unwrap_or_else(|error| panic!("{error}"));
    for name in [
        "locking-db-type in ",
        "redis-host in ",
        "redis-port in ",
        "ATLANTIS_REDIS_PASSWORD ",
        "ATLANTIS_REDIS_TLS_ENABLED ",
    ] {
        let about =
            |text: &&String| text.starts_with(name) && text.ends_with("has no effect: locks are kept in the bucket");
        assert_eq!(s.warnings.iter().filter(about).count(), 1, "{name}: {:#?}", s.warnings);
    }
    for (name, why) in [
        ("--share-plan-dir", "plans are kept in the bucket"),
        ("ATLANTIS_SLACK_TOKEN", "it matters with webhooks in the config file alone"),
    ] {
        assert!(s.warnings.contains(&format!("{name} has no effect: {why}")), "{name}: {:#?}", s.warnings);
    }
    assert_eq!(s.warnings.len(), 7, "{:#?}", s.warnings);
    let secrets: Vec<_> = s.secrets.iter().map(|secret| secret.expose_secret()).collect();
    assert!(secrets.contains(&"redis-password-value") && secrets.contains(&"slack-token-value"));
}

#[test]
fn values_are_masked_that_children_get_all_the_same() {
    let env = [("API_KEY", "key-of-the-cloud"), ("BOTH", "withheld too"), ("SHORT", "abc")];
    let s = loaded(&["--masked-values-from=API_KEY, BOTH,SHORT,NOT_SET", "--masked-variables=BOTH"], &env);
    let names: Vec<_> = s.child_env.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"API_KEY") && names.contains(&"SHORT") && !names.contains(&"BOTH"), "{names:?}");
    let secrets: Vec<_> = s.secrets.iter().map(|secret| secret.expose_secret()).collect();
    for secret in ["key-of-the-cloud", "withheld too"] {
        assert_eq!(secrets.iter().filter(|&&known| known == secret).count(), 1, "{secret}");
    }
    assert_eq!(
        s.warnings,
        [
            "--masked-values-from names SHORT, whose value is shorter than 4 bytes and is not masked",
            "--masked-values-from names NOT_SET, which is not set: nothing is masked for it",
        ]
    );
}

#[test]
fn the_bucket_is_a_directory_or_in_cloud_storage() {
    let directory = |path: &str| BucketAddress::Directory(PathBuf::from(path));
    let cloud = |name: &str, prefix: &str| BucketAddress::CloudStorage {
        name: name.into(),
        prefix: prefix.into(),
        endpoint: None,
    };
    let cases = [
        ("", directory("/srv/data/vault")),
        ("file:///srv/bucket", directory("/srv/bucket")),
        ("file://~/bucket", directory("/home/tide/bucket")),
        ("gs://state-of-tide", cloud("state-of-tide", "")),
        ("gs://state-of-tide/", cloud("state-of-tide", "")),
        ("gs://state-of-tide/prod/eu/", cloud("state-of-tide", "prod/eu")),
    ];
    for (text, expected) in cases {
        let env = [("TIDELOCK_BUCKET", text)];
        assert_eq!(loaded(&["--data-dir=/srv/data"], &env).vault.bucket, expected, "{text}");
    }
    for text in
        ["s3://bucket", "/srv/bucket", "file://srv", "file:srv", "gs://", "gs://No", "gs://tide/a//b", "gs://tide/../b"]
    {
        let error = invalid(&[], &[("TIDELOCK_BUCKET", text)]);
        assert!(error.starts_with("TIDELOCK_BUCKET ") && error.lines().count() == 1, "{text}: {error}");
    }
}

#[test]
fn the_bucket_is_found_without_the_settings_of_a_server() {
    let load = |args: &[&str], env: &[(&str, &str)]| {
        let env = env.iter().chain(&[("HOME", "/home/tide")]).map(|(name, value)| (name.into(), value.into()));
        BucketAddress::load(args.iter().map(OsString::from), env.collect::<Vec<_>>())
    };
    let directory = |path: &str| Ok(BucketAddress::Directory(PathBuf::from(path)));
    assert_eq!(load(&[], &[]), directory("/home/tide/.atlantis/vault"));
    assert_eq!(load(&["--data-dir=/srv"], &[("ATLANTIS_DATA_DIR", "/old")]), directory("/srv/vault"));
    assert_eq!(load(&[], &[("TIDELOCK_BUCKET", "file:///a")]), directory("/a"));
    assert_eq!(load(&["--bucket=file:///b"], &[("TIDELOCK_BUCKET", "file:///a")]), directory("/b"));
    let wrong = load(&["--bucket=s3://b"], &[]).unwrap_err().to_string();
    assert_eq!(wrong, "--bucket is neither gs://NAME/PREFIX nor file:///DIRECTORY");
}

#[test]
fn the_vault_has_limits_for_its_times() {
    let s = loaded(&["--sync-interval=1m", "--lease-ttl=2s", "--vault-keep-days=7", "--vault-keep-states=5"], &[]);
    assert_eq!((s.vault.sync_interval.as_secs(), s.vault.lease_ttl.as_secs()), (60, 2));
    assert_eq!((s.vault.keep.as_secs(), s.vault.keep_states, s.vault.force_takeover), (7 * 24 * 3600, 5, false));
    let s = loaded(&[], &[("TIDELOCK_SYNC_INTERVAL", "60")]);
    assert_eq!((s.vault.sync_interval.as_secs(), s.vault.lease_ttl.as_secs(), s.vault.keep_states), (60, 20, 100));
    assert_eq!(invalid(&["--lease-ttl=1s"], &[]), "--lease-ttl is not from 2s to 600s");
    assert_eq!(invalid(&["--vault-keep-days=9999"], &[]), "--vault-keep-days is no number from 1 to 3650");
}

#[test]
fn the_last_seconds_of_a_shutdown_are_for_interrupting() {
    for (given, grace, last) in [("1s", 1, 1), ("0", 8, 8), ("10m", 600, 8), ("1h", 3600, 8)] {
        let s = loaded(&[&format!("--shutdown-grace={given}")], &[]);
        assert_eq!((s.shutdown_grace.as_secs(), s.interrupt_time().as_secs()), (grace, last), "{given}");
    }
}

#[test]
fn a_rule_of_the_allowlist_without_a_host_is_warned_of() {
    let warned = |rule: &str| {
        let warnings = loaded(&[&format!("--repo-allowlist={rule}")], &[]).warnings;
        warnings.iter().any(|warning| warning.contains("names no host"))
    };
    for (rule, expected) in [
        ("a/*", true),
        ("acme/infra", true),
        ("github.com/*,!acme/secret", true),
        ("github.com/a/*", false),
        ("*/a/*", false),
        ("*,!*/secret", false),
        ("localhost:8080/a/*", false),
    ] {
        assert_eq!(warned(rule), expected, "{rule}");
    }
}

#[test]
fn everything_that_is_missing_is_named_at_once() {
    let nothing = Settings::load(Vec::new(), [("HOME".into(), "/".into())]).err().unwrap();
    assert_snapshot!(nothing, @"
    --gh-token (ATLANTIS_GH_TOKEN) is missing, and so is gh-token-file. A fine-grained token needs, on the repositories: Contents read (and write for automerge), Pull requests read and write, Commit statuses read and write, Issues read and write (reactions); Webhooks read is for `tidelock doctor`. A classic one needs the scope repo (and admin:repo_hook for the doctor)
    --gh-user (ATLANTIS_GH_USER) is missing: the login of the account that the token belongs to. A GitHub App is named by gh-app-id instead
    --gh-webhook-secret (ATLANTIS_GH_WEBHOOK_SECRET) is missing: without it everybody who reaches the port can run commands here. Set the same text here and in the webhook on GitHub; or say --allow-unsigned-webhooks, which is unsafe
    --repo-allowlist is missing: name the repositories to serve, such as github.com/acme/*
    ");
}

#[test]
fn mistakes_are_refused_where_they_are_made() {
    let cases = [
        ("--log-level=loud", "--log-level is none of debug, info, warn, error"),
        ("--automerge-method=octopus", "--automerge-method is none of merge, rebase, squash"),
        ("--checkout-strategy=rebase", "--checkout-strategy is none of branch, merge"),
        ("--default-tf-distribution=x", "--default-tf-distribution is none of terraform, opentofu"),
        ("--autodiscover-mode=sometimes", "--autodiscover-mode is none of auto, enabled, disabled"),
        ("--repo-allowlist=https://github.com/a/*", "--repo-allowlist contains ://"),
        ("--allow-commands=plan,destroy", "--allow-commands names no command: destroy"),
        ("--autoplan-file-list=**/*.tf,!", "--autoplan-file-list has an invalid pattern: !"),
        ("--autoplan-modules-from-projects=[", "--autoplan-modules-from-projects has an invalid pattern: ["),
        ("--port=65536", "--port is no number from 1 to 65535"),
        ("--parallel-pool-size=-1", "--parallel-pool-size is no number from 1 to 1024"),
        ("--job-timeout=soon", "--job-timeout is no duration such as 90s, 10m or 1h"),
        ("--shutdown-grace=61m", "--shutdown-grace is longer than 1h"),
        ("--bind=localhost", "--bind is no IP address"),
        ("--atlantis-url=example.com", "--atlantis-url is no address that begins with http:// or https://"),
        (
            "--gh-hostname=http://git.example.com",
            "--gh-hostname begins with http://, which is for loopback addresses only",
        ),
        ("--default-tf-version=latest", "--default-tf-version is no version such as 1.11.4"),
        ("--run-as-user=nobody", "--run-as-user is not of the form UID or FIRST:LAST, in numbers"),
        ("--run-as-user=0", "--run-as-user is root"),
        ("--executable-name=two words", "--executable-name is not one word"),
        ("--repo-config=/nowhere/repos.yaml", "--repo-config names /nowhere/repos.yaml, which cannot be read"),
        ("--gh-token-file=/nowhere/token", "--gh-token-file and gh-token are both given: leave one out"),
        ("--web-basic-auth", "--web-password is the default password"),
    ];
    for (arg, expected) in cases {
        let text = invalid(&[arg], &[]);
        assert!(text.starts_with(expected), "{arg}: {text}");
    }
}

#[test]
fn values_are_brought_into_form() {
    let args = [
        "--atlantis-url=https://example.com/base/",
        "--default-tf-version=v1.11.4",
        "--executable-name=Terry",
        "--allow-commands=all",
        "--autoplan-modules",
        "--run-as-user=1000:2000",
        "--var-file-allowlist=/a, ~/b",
        "--web-basic-auth",
        "--web-username=tide",
        "--bind=::1",
    ];
    let s = loaded(&args, &[("ATLANTIS_WEB_PASSWORD", "much better"), ("TIDELOCK_GH_USER", "@Bot")]);
    assert_eq!(s.atlantis_url, "https://example.com/base");
    assert_eq!(s.default_tf_version.as_deref(), Some("1.11.4"));
    assert_eq!(s.executable_names, ["terry"]);
    assert_eq!(s.allow_commands.len(), 11);
    assert_eq!(s.autoplan_modules_from_projects, s.autoplan_file_list);
    assert_eq!(s.run_as_user, RunAsUsers::new(1000, 2000));
    assert_eq!(s.var_file_allowlist, [PathBuf::from("/a"), PathBuf::from("/home/tide/b")]);
    assert_eq!(s.web_basic_auth.unwrap().0, "tide");
    assert_eq!(s.hosts.github.unwrap().user, "Bot");
    assert_eq!(s.bind.to_string(), "::1");
    assert!(loaded(&[], &[]).atlantis_url.starts_with("http://"));
    let listed = loaded(&["--allow-commands=state,plan,approve_policies"], &[]);
    assert_eq!(listed.allow_commands, [CommandName::Plan, CommandName::StateRm]);
    assert_eq!(listed.warnings, ["approve_policies has no effect without --enable-policy-checks"]);
    let checked = loaded(&["--enable-policy-checks", "--policy-engine=conftest"], &[]);
    assert!(checked.enable_policy_checks && checked.allow_commands.contains(&CommandName::ApprovePolicies));
    assert_eq!(checked.policy_engine, PolicyEngine::Conftest);
}

#[test]
fn without_a_webhook_secret_a_flag_must_say_so() {
    let unsigned = [("ATLANTIS_GH_WEBHOOK_SECRET", "")];
    assert!(invalid(&[], &unsigned).starts_with("--gh-webhook-secret (ATLANTIS_GH_WEBHOOK_SECRET) is missing"));
    let s = loaded(&["--allow-unsigned-webhooks"], &unsigned);
    assert!(s.hosts.github.unwrap().webhook_secret.is_none());
    assert_eq!(s.warnings, ["deliveries are not signed: everybody who reaches the port can run commands here"]);
}

#[test]
fn children_get_no_secret_and_everything_else() {
    let env = [
        ("PATH", "/bin"),
        ("AWS_SECRET_ACCESS_KEY", "cloud"),
        ("DATABASE_URL", "postgres://masked"),
        ("TIDELOCK_API_SECRET", " api_secret_value\n"),
        ("ATLANTIS_LOG_LEVEL", "debug"),
        ("TIDELOCK_GH_TOKEN", "ghp_winner"),
    ];
    let s = loaded(&["--masked-variables=DATABASE_URL,NOT_SET", "--web-password=of-argv"], &env);
    let names: Vec<_> = s.child_env.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["ATLANTIS_GH_USER", "ATLANTIS_LOG_LEVEL", "ATLANTIS_REPO_ALLOWLIST", "AWS_SECRET_ACCESS_KEY", "HOME", "PATH"]
    );
    let secrets: Vec<_> = s.secrets.iter().map(|secret| secret.expose_secret()).collect();
    for secret in
        ["ghp_token_value", "ghp_winner", "webhook_secret_value", "postgres://masked", "api_secret_value", "of-argv"]
    {
        assert_eq!(secrets.iter().filter(|&&known| known == secret).count(), 1, "{secret} in {secrets:?}");
    }
    assert!(
        matches!(s.hosts.github.unwrap().token, Some(GithubToken::Account(TokenSetting::Value(token))) if token.expose_secret() == "ghp_winner")
    );
    assert!(s.warnings.iter().any(|text| text.starts_with("--web-password is a secret that everybody")));
}

#[test]
fn a_token_file_is_read_for_masking_and_kept_as_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "ghp_of_file\n").unwrap();
    let path = file.path().display().to_string();
    let s = loaded(&["--gh-token-file", &path], &[("ATLANTIS_GH_TOKEN", "")]);
    assert!(s.secrets.iter().any(|secret| secret.expose_secret() == "ghp_of_file"));
    assert!(
        matches!(s.hosts.github.unwrap().token, Some(GithubToken::Account(TokenSetting::File(kept))) if kept == file.path())
    );
    std::fs::write(file.path(), " \n").unwrap();
    assert!(invalid(&["--gh-token-file", &path], &[("ATLANTIS_GH_TOKEN", "")]).ends_with("names an empty file"));
}

#[test]
fn the_config_file_takes_text_numbers_switches_and_lists_as_written() {
    let file = "# comment\ngh-webhook-secret: 0012345\nautomerge: false\nsilence-no-projects: true\nport: 4242\n\
                repo-allowlist:\n- github.com/a/*\n- '!github.com/a/b'\nvar-file-allowlist: /x,/y\nlog-level:\n";
    let s = with_file(file, &[], &[("ATLANTIS_REPO_ALLOWLIST", ""), ("ATLANTIS_GH_WEBHOOK_SECRET", "")]).ok().unwrap();
    assert_eq!(s.hosts.github.unwrap().webhook_secret.unwrap().expose_secret(), "0012345");
    assert_eq!(s.repo_allowlist, ["github.com/a/*", "!github.com/a/b"]);
    assert_eq!(
        (s.port, s.silence_no_projects, s.var_file_allowlist.len(), s.log_level.as_str()),
        (4242, true, 2, "info")
    );
    assert!(with_file("", &[], &[]).is_ok());
}

#[test]
fn a_wrong_config_file_is_refused_without_quoting_it() {
    let cases = [
        ("gh-tokn: ghp_x", "there is no setting \"gh-tokn\"; did you mean gh-token?"),
        ("gh-token: [ghp_x]", ":1:11: this is not YAML of the form"),
        ("gh-token:\n  a: ghp_x", "this is not YAML of the form"),
        ("- ghp_x", ":1:1: this is not YAML of the form"),
        ("ghp_x", "this is not YAML of the form"),
        ("gh-token: \"ghp_x", "this is not YAML of the form"),
        ("gh-token: ghp_x\ngh-token: ghp_y", "this is not YAML of the form"),
        ("automerge: ghp_x", "automerge in "),
        ("port: ghp_x", "is no number from 1 to 65535"),
    ];
    for (file, expected) in cases {
        let text = with_file(file, &[], &[]).err().unwrap_or_else(|| panic!("{file} is taken")).to_string();
        assert!(text.contains(expected) && !text.contains("ghp_x"), "{file}: {text}");
    }
    assert!(invalid(&["--config=/nowhere/x.yaml"], &[]).starts_with("the config file /nowhere/x.yaml cannot be read"));
}

#[test]
fn repo_config_is_read_from_a_file_or_from_json() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "repos: []").unwrap();
    let path = file.path().display().to_string();
    assert_eq!(loaded(&["--repo-config", &path], &[]).repo_config, Some((path.clone(), "repos: []".to_owned())));
    let json = loaded(&["--repo-config-json={}"], &[]).repo_config;
    assert_eq!(json, Some(("repo-config-json".to_owned(), "{}".to_owned())));
    assert!(invalid(&["--repo-config-json={}", "--repo-config", &path], &[]).contains("both given"));
}

#[test]
fn a_file_that_is_no_text_is_named_with_its_line() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"repos:\n- id: \xff\n").unwrap();
    let problem = invalid(&["--repo-config", &file.path().display().to_string()], &[]);
    assert!(problem.ends_with("which is no text in UTF-8: see line 2"), "{problem}");
}

#[test]
fn a_mistyped_rule_of_teams_stops_the_start_by_name() {
    for (rules, problem) in [("sre", "has no command in sre"), ("sre:aply", "has sre:aply"), (":apply", "has :apply")] {
        let said = invalid(&[&format!("--gh-team-allowlist={rules}")], &[]);
        assert!(said.contains(&format!("--gh-team-allowlist {problem}")), "{said}");
    }
}

#[test]
fn titles_are_in_a_built_in_language_or_in_that_of_a_file() {
    use crate::domain::command::CommandName;
    let title = |args: &[&str]| loaded(args, &[]).language.title(CommandName::Plan).map(str::to_owned);
    assert_eq!(title(&[]), None);
    assert_eq!(title(&["--language=es-MX"]).as_deref(), Some("Planificar"));
    assert_eq!(
        invalid(&["--language=de"], &[]),
        "--language is none of en, es: name one of these, or give language-config-file"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display().to_string();
    std::fs::write(file.path(), "command_titles: {plan: Planung}").unwrap();
    assert_eq!(title(&["--language=de", "--language-config-file", &path]).as_deref(), Some("Planung"));
    std::fs::write(file.path(), "command_titles: {plann: Planung}").unwrap();
    let problem = invalid(&["--language-config-file", &path], &[]);
    assert!(problem.contains(&format!("{path}:1:25: command_titles: `plann` is no command")), "{problem}");
}

#[test]
fn own_templates_may_be_absent_where_nobody_named_a_directory() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().to_str().unwrap();
    assert_eq!(loaded(&[], &[("HOME", path)]).markdown_template_overrides_dir, None);
    std::fs::create_dir(home.path().join(".markdown_templates")).unwrap();
    assert_eq!(
        loaded(&[], &[("HOME", path)]).markdown_template_overrides_dir,
        Some(home.path().join(".markdown_templates"))
    );
    assert!(
        invalid(&["--markdown-template-overrides-dir=/nowhere"], &[])
            .ends_with("names /nowhere, which is no directory")
    );
}

#[test]
fn help_shows_every_setting() {
    let Some(SettingsError::Help(text)) = load(&["--help"], &[]).err() else { panic!("no help") };
    for setting in table::all() {
        assert!(text.contains(&format!("--{}", setting.name)), "{}", setting.name);
    }
}

proptest! {
    #[test]
    fn no_value_makes_it_panic_and_no_secret_is_quoted(name in prop::sample::select(table::all().map(|s| s.name).collect::<Vec<_>>()), value in "\\PC{0,12}") {
        _ = load(&[&format!("--{name}={value}")], &[]);
        let secret = format!("zq{value}zq");
        if table::find(name).is_some_and(table::Setting::is_secret) {
            let text = match load(&[&format!("--{name}={secret}")], &[]) {
                Ok(settings) => settings.warnings.join("\n"),
                Err(error) => error.to_string(),
            };
            prop_assert!(!text.contains(&secret), "{}", text);
        }
    }
}

#[test]
fn the_token_for_terraform_enterprise_has_its_host() {
    let s = loaded(&["--tfe-hostname=TFE-1.example.com"], &[("ATLANTIS_TFE_TOKEN", "hunter2-tfe")]);
    assert_eq!(s.tfe.as_ref().unwrap().variable(), "TF_TOKEN_tfe__1_example_com");
    assert!(s.child_env.iter().all(|(name, _)| name != "ATLANTIS_TFE_TOKEN"));
    assert!(s.secrets.iter().any(|secret| secret.expose_secret() == "hunter2-tfe"));
    let s = loaded(&[], &[("TIDELOCK_TFE_TOKEN", "hunter2-tfe")]);
    assert_eq!(s.tfe.unwrap().variable(), "TF_TOKEN_app_terraform_io");
    assert!(loaded(&["--tfe-local-execution-mode", "--tfe-hostname=app.terraform.io"], &[]).tfe.is_none());
    let alone = invalid(&["--tfe-hostname=tfe.example.com"], &[]);
    assert!(alone.contains("--tfe-hostname has no effect without tfe-token"), "{alone}");
    for text in ["https://tfe.example.com", "tfe.example.com:8443", "a..b"] {
        let wrong = invalid(&[&format!("--tfe-hostname={text}")], &[("ATLANTIS_TFE_TOKEN", "hunter2-tfe")]);
        assert!(wrong.contains("--tfe-hostname is no name of a host") && !wrong.contains("hunter2"), "{wrong}");
    }
}

#[test]
fn names_of_figures_begin_with_a_word() {
    assert_eq!(loaded(&[], &[]).stats_namespace, "tidelock");
    assert_eq!(loaded(&["--stats-namespace=acme.infra-1"], &[]).stats_namespace, "acme.infra-1");
    for text in ["1a", "a b", "a\nb", "ä"] {
        assert!(invalid(&[&format!("--stats-namespace={text}")], &[]).contains("--stats-namespace is"), "{text}");
    }
}
