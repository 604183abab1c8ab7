//! Which secrets a project gets, and what is refused.

use super::*;
use crate::config::ProjectConfig;
use crate::config::global::{GlobalConfig, RepoRules};
use crate::domain::{ProjectId, RepoId};
use insta::assert_snapshot;

const YAML: &str = r#"
repos:
- id: /.*/
  secrets: [{env: {ALL: "gcp:projects/p/secrets/all"}}]
  masks: ["xoxb-[0-9a-z]+"]
- id: github.com/acme/infra
  secrets:
  - {env: {TOKEN: "vault:secret/data/reader#token", OTHER: "gcp:projects/p/secrets/other/versions/3"}}
  - {dirs: "prod/**", stages: [apply], env: {TOKEN: "vault:secret/data/writer#token"}}
  - {dirs: [prod, live], workspaces: ["eu-*"], env: {OTHER: "azure:https://v.vault.azure.net/secrets/eu"}}
- id: github.com/acme/infra
  branch: /main/
"#;

fn parsed(yaml: &str, name: &str) -> RepoRules {
    let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: name.into() };
    GlobalConfig::parse(yaml, "repos.yaml").unwrap().rules(&repo, "main")
}

fn project(name: &str, dir: &str, workspace: &str) -> ProjectConfig {
    let id = ProjectId { dir: dir.into(), workspace: workspace.into(), name: None };
    ProjectConfig::from_rules(id, &parsed(YAML, name))
}

fn told(name: &str, dir: &str, workspace: &str) -> String {
    let secrets = project(name, dir, workspace).secrets;
    let list = |of: &BTreeMap<String, SecretReference>| {
        of.iter().map(|(name, reference)| format!("{name}={reference}")).collect::<Vec<_>>().join(" ")
    };
    format!("plan: {}; apply: {}", list(&secrets.plan), list(&secrets.apply))
}

#[test]
fn the_last_rule_of_each_variable_and_stage_counts() {
    assert_snapshot!(told("other", "prod/a", "default"), @"plan: ALL=gcp:projects/p/secrets/all; apply: ALL=gcp:projects/p/secrets/all");
    assert_snapshot!(told("infra", "prod/a", "default"), @"plan: OTHER=gcp:projects/p/secrets/other/versions/3 TOKEN=vault:secret/data/reader#token; apply: OTHER=gcp:projects/p/secrets/other/versions/3 TOKEN=vault:secret/data/writer#token");
    assert_snapshot!(told("infra", "live", "eu-1"), @"plan: OTHER=azure:https://v.vault.azure.net/secrets/eu TOKEN=vault:secret/data/reader#token; apply: OTHER=azure:https://v.vault.azure.net/secrets/eu TOKEN=vault:secret/data/reader#token");
    assert_snapshot!(told("infra", "live", "us-1"), @"plan: OTHER=gcp:projects/p/secrets/other/versions/3 TOKEN=vault:secret/data/reader#token; apply: OTHER=gcp:projects/p/secrets/other/versions/3 TOKEN=vault:secret/data/reader#token");
    let rules = parsed(YAML, "infra").secrets;
    assert_eq!(rules.index_for("prod/a", "default", SecretStage::Apply, "TOKEN"), Some(1));
    assert_eq!(rules.index_for("prod/a", "default", SecretStage::Plan, "TOKEN"), Some(0));
    assert_eq!(rules.index_for("prod/a", "default", SecretStage::Plan, "ALL"), None);
    assert_eq!(project("infra", ".", "default").masks, ["xoxb-[0-9a-z]+"]);
}

#[test]
fn commands_get_the_secrets_of_their_stage() {
    use SecretStage::{Apply, Plan};
    for (name, stage) in [
        (CommandName::Plan, Some(Plan)),
        (CommandName::PolicyCheck, Some(Plan)),
        (CommandName::Apply, Some(Apply)),
        (CommandName::Import, Some(Apply)),
        (CommandName::StateRm, Some(Apply)),
        (CommandName::ForceUnlock, Some(Apply)),
    ] {
        assert_eq!(SecretStage::of_command(name), stage, "{name:?}");
    }
    let with_secrets = CommandName::ALL.into_iter().filter(|name| SecretStage::of_command(*name).is_some());
    assert_eq!(with_secrets.count(), 6);
    // Whatever changes a state has the secrets of applies.
    for name in CommandName::ALL.into_iter().filter(|name| name.changes_state()) {
        assert_eq!(SecretStage::of_command(name), Some(Apply), "{name:?}");
    }
    let secrets = project("infra", "prod/a", "default").secrets;
    assert_eq!(secrets.for_command(CommandName::ForceUnlock), &secrets.apply);
    assert!(secrets.for_command(CommandName::Version).is_empty());
}

#[test]
fn a_plan_is_bound_to_its_references_and_a_specification_keeps_them() {
    let (one, other) = (project("infra", "prod/a", "default"), project("infra", "dev", "default"));
    let moved = ProjectConfig { id: one.id.clone(), ..other };
    assert_ne!(one.digest(), moved.digest());
    let without_masks = ProjectConfig { masks: Vec::new(), ..one.clone() };
    assert_eq!(one.digest(), without_masks.digest());
    let read: ProjectConfig = serde_json::from_str(&serde_json::to_string(&one).unwrap()).unwrap();
    assert_eq!(read, one);
}

#[test]
fn references_of_all_stores_are_read_and_written_alike() {
    for text in [
        "gcp:projects/p/secrets/a",
        "gcp:projects/p/secrets/a/versions/latest",
        "gcp:projects/example.com:p/secrets/a/versions/7#password",
        "vault:secret/data/team/ci#api key",
        "aws:arn:aws:secretsmanager:eu-west-1:123456789012:secret:db/main-AbCdEf#password",
        "aws:arn:aws-us-gov:ssm:us-gov-west-1:123456789012:parameter/db/password",
        "azure:https://my-vault.vault.azure.net/secrets/name",
        "azure:https://v.vault.azure.cn/secrets/name/0123456789abcdef",
        "azure:http://127.0.0.1:8080/secrets/name",
    ] {
        assert_eq!(SecretReference::parse(text).map(|parsed| parsed.to_string()), Ok(text.to_owned()));
    }
    for text in [
        "",
        "plain text",
        "env:HOME",
        "gcp:projects/p/secrets/a/versions/",
        "gcp:projects/p/../secrets/a",
        "gcp:projects/p/secrets/a?alt=media",
        "vault:secret/data/ci",
        "vault:secret/data/ci#",
        "vault:/secret/data/ci#a",
        "vault:secret/../sys/seal#a",
        "vault:ci#a",
        "aws:arn:aws:s3:::bucket/key",
        "aws:arn:aws:secretsmanager:evil.example/x:123456789012:secret:a",
        "aws:arn:aws:secretsmanager:eu-west-1:12:secret:a",
        "aws:arn:aws:secretsmanager:eu-west-1:123456789012:secret:a-AbCdEf:password::",
        "aws:arn:aws-iso:secretsmanager:us-iso-east-1:123456789012:secret:a-AbCdEf",
        "aws:arn:aws:ssm:eu-west-1:123456789012:parameter",
        "azure:https://vault.azure.net.example.com/secrets/a",
        "azure:http://v.vault.azure.net/secrets/a",
        "azure:https://u:p@v.vault.azure.net/secrets/a",
        "azure:https://v.vault.azure.net/keys/a",
        "azure:https://v.vault.azure.net/secrets/../keys/a",
        "azure:http://169.254.169.254/secrets/a",
    ] {
        let problem = SecretReference::parse(text).unwrap_err();
        assert!(problem.contains("is not a reference"), "{text}: {problem}");
    }
}

#[test]
fn a_rule_that_only_a_workspace_limits_is_warned_of() {
    let yaml = "repos:\n- id: /.*/\n  secrets:\n  - {workspaces: prod, env: {A: 'vault:a/b#c'}}\n  \
                - {dirs: prod, workspaces: prod, env: {A: 'vault:a/b#c'}}\n";
    let yaml = yaml.replace("workspaces: prod", "workspaces: [prod]");
    let warnings = GlobalConfig::parse(&yaml, "repos.yaml").unwrap().warnings;
    assert_snapshot!(warnings.join("\n"), @"repos.yaml:4:5: secrets: a rule with `workspaces` and without `dirs` is for every directory: a pull request chooses the workspace of its projects, so any of them can get the variables of this rule; add `dirs`");
}

fn error(rest: &str) -> String {
    GlobalConfig::parse(&format!("repos:\n- id: /.*/\n  {rest}\n"), "repos.yaml").unwrap_err().to_string()
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    assert_snapshot!(error("secrets: [{dirs: a}]"), @"repos.yaml:3:13: secrets: a rule needs `env`, variables with references, such as `env: {TOKEN: \"vault:secret/data/ci#token\"}`");
    assert_snapshot!(error("secrets: [{env: {A: 'vault:a'}}]"), @"repos.yaml:3:23: secrets.env.A: `vault:a` is not a reference: write the key too, as `vault:secret/data/ci#token`");
    assert_snapshot!(error("secrets: [{env: {A: null}}]"), @"repos.yaml:3:20: secrets.env: `A` needs a reference");
    assert_snapshot!(error("secrets: [{env: {tf_cli_args_plan: 'vault:a/b#c'}}]"), @"repos.yaml:3:20: secrets.env: `tf_cli_args_plan` is a variable that the server sets, or on which the safety of steps depends; choose another name");
    assert_snapshot!(error("secrets: [{env: {1A: 'vault:a/b#c'}}]"), @"repos.yaml:3:20: secrets.env: `1A` cannot be the name of a variable: it has 1 to 128 characters of A-Z, a-z, 0-9 and `_`");
    assert_snapshot!(error("secrets: [{stages: [init], env: {A: 'vault:a/b#c'}}]"), @"repos.yaml:3:23: secrets.stages: \"init\" is not a stage; there are: plan, apply");
    assert_snapshot!(error("secrets: [{dirs: ../x, env: {A: 'vault:a/b#c'}}]"), @"repos.yaml:3:20: secrets.dirs: `../x` must be relative to the repository's root, without a leading slash and `..`");
    assert_snapshot!(error("secrets: [{workspaces: ['a/b'], env: {A: 'vault:a/b#c'}}]"), @"repos.yaml:3:27: secrets.workspaces: `a/b` is no name of a workspace with `*` and `?`");
    assert_snapshot!(error("masks: ['a(b']"), @"repos.yaml:3:11: masks: `a(b` is not a valid regex: unclosed group");
    assert_snapshot!(error("masks: ['(a{1000}){1000}']"), @"repos.yaml:3:11: masks: `(a{1000}){1000}` is not a valid regex: Compiled regex exceeds size limit of 1048576 bytes.");
    assert_snapshot!(error("masks: ['x|']"), @"repos.yaml:3:11: masks: `x|` matches the empty text, and would mask every line");
    assert_snapshot!(error("allowed_overrides: [secrets]").split(';').next().unwrap(), @"repos.yaml:3:23: allowed_overrides: \"secrets\" is not a key to override");
    for name in
        ["PATH", "LD_PRELOAD", "TF_CLI_ARGS", "TF_DATA_DIR", "TIDELOCK_JOB", "ATLANTIS_URL", "GIT_ASKPASS", "HOME"]
    {
        assert!(
            error(&format!("secrets: [{{env: {{{name}: 'vault:a/b#c'}}}}]")).contains("choose another name"),
            "{name}"
        );
    }
}
