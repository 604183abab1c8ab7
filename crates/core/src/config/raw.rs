//! YAML forms of the configuration files. Only syntax is checked here, and unknown keys are errors.

use super::workflow::raw::RawWorkflow;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// A string with its position in the file.
pub(super) type LocatedText = Spanned<String>;
/// A list that may be absent, which differs from empty.
pub(super) type Texts = Option<Vec<LocatedText>>;

/// A mapping with names of people's choice, which have their positions.
#[derive(Debug)]
pub(super) struct Named<T>(pub(super) Vec<(LocatedText, Option<T>)>);

impl<T> Default for Named<T> {
    fn default() -> Named<T> {
        Named(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Named<T>, D::Error> {
        struct NamedVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for NamedVisitor<T> {
            type Value = Named<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("entries by their names")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Named(entries))
            }
        }
        deserializer.deserialize_map(NamedVisitor(PhantomData))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGlobal {
    pub(super) repos: Option<Vec<Spanned<RawRepo>>>,
    pub(super) workflows: Option<BTreeMap<String, Option<RawWorkflow>>>,
    pub(super) policies: Option<super::policies::RawPolicies>,
    pub(super) metrics: Option<super::metrics::RawMetrics>,
    pub(super) team_authz: Option<Spanned<super::team_authz::RawTeamAuthz>>,
    pub(super) executors: Option<super::executors::RawExecutors>,
    pub(super) people: Option<Vec<Spanned<super::people::RawPerson>>>,
    pub(super) external_stores: Option<Spanned<IgnoredAny>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRepo {
    pub(super) id: Option<LocatedText>,
    pub(super) branch: Option<LocatedText>,
    pub(super) repo_config_file: Option<LocatedText>,
    pub(super) plan_requirements: Texts,
    pub(super) apply_requirements: Texts,
    pub(super) import_requirements: Texts,
    pub(super) pre_workflow_hooks: Option<Vec<Spanned<RawHook>>>,
    pub(super) post_workflow_hooks: Option<Vec<Spanned<RawHook>>>,
    pub(super) workflow: Option<LocatedText>,
    pub(super) allowed_workflows: Texts,
    pub(super) allowed_overrides: Texts,
    pub(super) allow_custom_workflows: Option<bool>,
    pub(super) automerge: Option<bool>,
    pub(super) merge_method: Option<LocatedText>,
    pub(super) delete_source_branch_on_merge: Option<bool>,
    pub(super) replan_after_failed_apply: Option<bool>,
    pub(super) verify_applies: Option<bool>,
    pub(super) deleted_projects: Option<LocatedText>,
    pub(super) destroy_requirements: Texts,
    pub(super) repo_locking: Option<Spanned<bool>>,
    pub(super) repo_locks: Option<RawRepoLocks>,
    pub(super) apply_scope: Option<LocatedText>,
    pub(super) on_merge: Option<LocatedText>,
    pub(super) policy_check: Option<bool>,
    pub(super) custom_policy_check: Option<bool>,
    pub(super) autodiscover: Option<RawAutodiscover>,
    pub(super) silence_pr_comments: Texts,
    pub(super) terragrunt: Option<bool>,
    pub(super) terragrunt_version: Option<LocatedText>,
    pub(super) plan_max_age: Option<LocatedText>,
    pub(super) reminder_interval: Option<LocatedText>,
    pub(super) allowed_users: Texts,
    pub(super) allowed_teams: Texts,
    pub(super) approvals: Option<Spanned<RawApprovals>>,
    pub(super) auto_apply: Option<Spanned<RawAutoApply>>,
    pub(super) freeze: Option<Vec<Spanned<RawFreezeWindow>>>,
    pub(super) guards: Option<Vec<Spanned<super::guards::RawGuard>>>,
    pub(super) secrets: Option<Vec<Spanned<super::secrets::RawSecretRule>>>,
    pub(super) masks: Texts,
    pub(super) executor: Option<Spanned<Vec<Spanned<super::executors::RawExecutorRule>>>>,
    pub(super) drift: Option<Spanned<super::drift::RawDrift>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawApprovals {
    pub(super) any_of: Texts,
    pub(super) all_of: Texts,
    pub(super) count: Option<Spanned<i64>>,
    pub(super) of_plan: Option<bool>,
    pub(super) exclude_pushers: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAutoApply {
    pub(super) when: Option<LocatedText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFreezeWindow {
    pub(super) from: Option<LocatedText>,
    pub(super) to: Option<LocatedText>,
    pub(super) timezone: Option<LocatedText>,
    pub(super) except: Texts,
    pub(super) reason: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHook {
    pub(super) run: Option<String>,
    pub(super) description: Option<String>,
    pub(super) shell: Option<String>,
    #[serde(rename = "shellArgs")]
    pub(super) shell_args: Option<super::workflow::raw::Words>,
    pub(super) commands: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRepoLocks {
    pub(super) mode: Option<LocatedText>,
    pub(super) scope: Option<LocatedText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAutodiscover {
    pub(super) mode: Option<LocatedText>,
    pub(super) ignore_paths: Texts,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRepoConfig {
    pub(super) version: Option<LocatedText>,
    pub(super) projects: Option<Vec<Spanned<RawProject>>>,
    pub(super) workflows: Option<Spanned<BTreeMap<String, Option<RawWorkflow>>>>,
    /// Accepted without an effect, as in Atlantis: the server's policies apply.
    #[serde(rename = "policies")]
    pub(super) _policies: Option<IgnoredAny>,
    pub(super) autodiscover: Option<RawAutodiscover>,
    pub(super) automerge: Option<bool>,
    pub(super) parallel_plan: Option<bool>,
    pub(super) parallel_apply: Option<bool>,
    pub(super) delete_source_branch_on_merge: Option<Spanned<bool>>,
    /// Accepted without an effect, as in Atlantis: the server's flag decides.
    #[serde(rename = "emoji_reaction")]
    pub(super) _emoji_reaction: Option<String>,
    pub(super) allowed_regexp_prefixes: Option<Vec<String>>,
    pub(super) abort_on_execution_order_fail: Option<bool>,
    pub(super) repo_locks: Option<Spanned<RawRepoLocks>>,
    pub(super) silence_pr_comments: Option<Spanned<Vec<LocatedText>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProject {
    pub(super) name: Option<LocatedText>,
    pub(super) branch: Option<LocatedText>,
    pub(super) dir: Option<LocatedText>,
    pub(super) workspace: Option<LocatedText>,
    pub(super) workflow: Option<LocatedText>,
    pub(super) terraform_distribution: Option<LocatedText>,
    pub(super) terraform_version: Option<LocatedText>,
    pub(super) terragrunt: Option<bool>,
    pub(super) terragrunt_version: Option<LocatedText>,
    pub(super) autoplan: Option<RawAutoplan>,
    pub(super) plan_requirements: Option<Spanned<Vec<LocatedText>>>,
    pub(super) apply_requirements: Option<Spanned<Vec<LocatedText>>>,
    pub(super) import_requirements: Option<Spanned<Vec<LocatedText>>>,
    pub(super) depends_on: Option<Vec<String>>,
    pub(super) delete_source_branch_on_merge: Option<Spanned<bool>>,
    pub(super) repo_locking: Option<Spanned<bool>>,
    pub(super) repo_locks: Option<Spanned<RawRepoLocks>>,
    pub(super) apply_scope: Option<LocatedText>,
    pub(super) on_merge: Option<LocatedText>,
    pub(super) policy_check: Option<Spanned<bool>>,
    pub(super) custom_policy_check: Option<Spanned<bool>>,
    pub(super) silence_pr_comments: Option<Spanned<Vec<LocatedText>>>,
    pub(super) execution_order_group: Option<i64>,
    pub(super) plan_max_age: Option<LocatedText>,
    pub(super) reminder_interval: Option<LocatedText>,
    pub(super) allowed_users: Option<Spanned<Vec<LocatedText>>>,
    pub(super) allowed_teams: Option<Spanned<Vec<LocatedText>>>,
    pub(super) approvals: Option<Spanned<RawApprovals>>,
    pub(super) auto_apply: Option<Spanned<RawAutoApply>>,
    pub(super) freeze: Option<Spanned<Vec<Spanned<RawFreezeWindow>>>>,
    pub(super) tags: Option<Spanned<Vec<LocatedText>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAutoplan {
    pub(super) when_modified: Option<Vec<String>>,
    pub(super) enabled: Option<bool>,
}
