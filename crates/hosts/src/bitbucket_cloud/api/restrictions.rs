//! Branch restrictions, of which some are conditions of a merge (`GET /repositories/{workspace}/{repo_slug}/branch-restrictions`). Only an
//! administrator of the repository may read them. The host insists on the conditions only where `enforce_merge_checks` is among them;
//! without it they are warnings (support.atlassian.com/bitbucket-cloud/docs/suggest-or-require-checks-before-a-merge).

use super::{BitbucketCloud, answers, statuses};
use crate::vcs::HostError;
use serde_json::Value;
use std::collections::BTreeSet;
use tidelock_core::domain::PullRequest;

/// Most pages of restrictions of one repository.
const MAX_PAGES: u32 = 10;
/// Most pages of default reviewers of one repository.
const REVIEWER_PAGES: u32 = 10;
/// Most statuses that are named.
const MAX_NAMED: usize = 5;
/// Longest pattern and branch that are compared, in bytes. The cost of a comparison is their product.
const MAX_GLOB: usize = 1_000;

/// Conditions of a merge that are judged here.
const JUDGED: [&str; 5] = [
    "require_approvals_to_merge",
    "require_default_reviewer_approvals_to_merge",
    "require_no_changes_requested",
    "require_passing_builds_to_merge",
    "require_tasks_to_be_completed",
];

/// Returns what the restrictions of the base branch demand besides our own statuses; empty if nothing. What cannot be read or judged is an
/// obstacle: an apply must not run whose merge the host refuses.
pub(super) async fn obstacles(
    host: &BitbucketCloud,
    pull: &PullRequest,
    told: &Value,
) -> Result<Vec<String>, HostError> {
    let path = format!("{}/branch-restrictions?pagelen=100", host.address.repo_path(&pull.id.repo)?);
    let rows = match host.http.value_pages(&path, MAX_PAGES).await {
        Ok(found) => found.rows,
        Err(HostError::Denied { what, message }) => {
            tracing::debug!("{what}: {message}");
            return Ok(vec![format!(
                "the branch restrictions cannot be read: the account of `--bitbucket-token` has to be an administrator of {}, and an API \
                 token needs the scope `admin:repository:bitbucket`",
                pull.id.repo
            )]);
        }
        Err(error) => return Err(error),
    };
    let rules = of_branch(host, pull, &rows).await?;
    let mut found = Vec::new();
    if rules.iter().any(|rule| rule["kind"] == "restrict_merges" && !may_merge(host, rule)) {
        found.push(format!("the server's account may not merge into `{}`", answers::quoted(&pull.base.branch)));
    }
    if !rules.iter().any(|rule| rule["kind"] == "enforce_merge_checks") {
        return Ok(found);
    }
    found.extend(of_people(host, pull, told, &rules).await?);
    if let Some(wanted) = value_of(&rules, "require_passing_builds_to_merge") {
        let rows = statuses::all(host, &pull.id, &pull.head.commit).await?;
        found.extend(of_builds(&rows, wanted.max(1), &host.status_name));
    }
    let kinds = rules.iter().filter_map(|rule| rule["kind"].as_str()).filter(|kind| kind.starts_with("require_"));
    let unknown: BTreeSet<&str> = kinds.filter(|kind| !JUDGED.contains(kind)).collect();
    let worded = |kind: &&str| format!("the branch restriction `{}` cannot be judged", answers::quoted(kind));
    found.extend(unknown.iter().take(MAX_NAMED).map(worded));
    Ok(found)
}

/// Judges approvals, requested changes and tasks.
async fn of_people(
    host: &BitbucketCloud,
    pull: &PullRequest,
    told: &Value,
    rules: &[&Value],
) -> Result<Vec<String>, HostError> {
    let mut found = Vec::new();
    let participants: Vec<&Value> = told["participants"].as_array().into_iter().flatten().collect();
    let approved: Vec<&Value> = participants
        .iter()
        .filter(|row| row["approved"] == true && !answers::login(&row["user"]).is(&pull.author))
        .filter(|row| !answers::is_same(&row["user"], &told["author"]))
        .copied()
        .collect();
    let missing = |granted: usize, wanted: u64, whose: &str| {
        let more = wanted.saturating_sub(granted as u64);
        (more > 0).then(|| format!("{more} more {}{whose} required", if more == 1 { "approval" } else { "approvals" }))
    };
    if let Some(wanted) = value_of(rules, "require_approvals_to_merge") {
        let verb = if wanted.saturating_sub(approved.len() as u64) == 1 { " is" } else { " are" };
        found.extend(missing(approved.len(), wanted, verb));
    }
    if let Some(wanted) = value_of(rules, "require_default_reviewer_approvals_to_merge") {
        let base = host.address.repo_path(&pull.id.repo)?;
        let path = format!("{base}/effective-default-reviewers?pagelen=100");
        let reviewers = host.http.value_pages(&path, REVIEWER_PAGES).await?.rows;
        let is_one = |row: &&&Value| reviewers.iter().any(|one| answers::is_same(&one["user"], &row["user"]));
        found.extend(missing(approved.iter().filter(is_one).count(), wanted, " of default reviewers"));
    }
    let rejected = participants.iter().any(|row| row["state"] == "changes_requested");
    if rejected && rules.iter().any(|rule| rule["kind"] == "require_no_changes_requested") {
        found.push("a reviewer has requested changes".to_owned());
    }
    let tasks = told["task_count"].as_u64().unwrap_or_default();
    if tasks > 0 && rules.iter().any(|rule| rule["kind"] == "require_tasks_to_be_completed") {
        found.push(format!("{tasks} {} open", if tasks == 1 { "task is" } else { "tasks are" }));
    }
    Ok(found)
}

/// Judges the builds of the head: so many have to pass, and none may fail or be unfinished
/// (support.atlassian.com/bitbucket-cloud/docs/suggest-or-require-checks-before-a-merge). Unfinished ones of ours and those of applies do
/// not count: they announce what is about to be done.
fn of_builds(rows: &[Value], wanted: u64, first: &str) -> Vec<String> {
    let is_announced = |row: &Value| {
        statuses::is_ours(row, first) && (row["state"] == "INPROGRESS" || statuses::is_of_apply(row, first))
    };
    let passes = |row: &Value| row["state"] == "SUCCESSFUL" || is_announced(row);
    let name = |row: &Value| {
        let text = |key: &str| row[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        answers::quoted(&text("name").or_else(|| text("key")).unwrap_or_default())
    };
    let wanting: Vec<&Value> = rows.iter().filter(|row| !passes(row)).collect();
    let state = |row: &Value| answers::quoted(row["state"].as_str().unwrap_or_default()).to_ascii_lowercase();
    let mut found: Vec<String> =
        wanting.iter().take(MAX_NAMED).map(|row| format!("`{}` is {}", name(row), state(row))).collect();
    if wanting.len() > MAX_NAMED {
        found.push(format!("and {} more builds", wanting.len() - MAX_NAMED));
    }
    let more = wanted.saturating_sub(rows.iter().filter(|row| passes(row)).count() as u64);
    if found.is_empty() && more > 0 {
        found.push(format!("{more} more {} to pass", if more == 1 { "build has" } else { "builds have" }));
    }
    found
}

/// Returns the number that a kind of restriction demands, the greatest of several; absent if there is none.
fn value_of(rules: &[&Value], kind: &str) -> Option<u64> {
    let values = rules.iter().filter(|rule| rule["kind"] == kind);
    values.map(|rule| rule["value"].as_u64().unwrap_or(1)).max()
}

/// Returns false if our account is known not to be among those who may merge. Members of groups are not told.
fn may_merge(host: &BitbucketCloud, rule: &Value) -> bool {
    let Some(account) = host.account.get() else { return true };
    let has = |key: &str| rule[key].as_array().is_some_and(|list| !list.is_empty());
    let users = rule["users"].as_array().into_iter().flatten();
    has("groups") || users.map(answers::login).any(|login| login.is(&account.login))
}

/// Returns the restrictions that apply to the base branch: by a pattern, or by its part in the branching model.
async fn of_branch<'a>(
    host: &BitbucketCloud,
    pull: &PullRequest,
    rows: &'a [Value],
) -> Result<Vec<&'a Value>, HostError> {
    let branch = &pull.base.branch;
    let by_model = |row: &&Value| row["branch_match_kind"] == "branching_model";
    let model = match rows.iter().any(|row| by_model(&row)) {
        true => {
            let path = format!("{}/effective-branching-model", host.address.repo_path(&pull.id.repo)?);
            host.http.get(&path).await?.body
        }
        false => Value::Null,
    };
    let applies = |row: &&Value| match by_model(row) {
        true => is_of_type(&model, row["branch_type"].as_str().unwrap_or_default(), branch),
        false => matches(row["pattern"].as_str().unwrap_or_default(), branch),
    };
    Ok(rows.iter().filter(applies).collect())
}

/// Returns true if a branch is of a type of the branching model.
fn is_of_type(model: &Value, kind: &str, branch: &str) -> bool {
    match kind {
        "production" | "development" => model[kind]["name"] == branch,
        kind => {
            let types = model["branch_types"].as_array().into_iter().flatten();
            let prefixes = types.filter(|one| one["kind"] == kind).filter_map(|one| one["prefix"].as_str());
            prefixes.filter(|prefix| !prefix.is_empty()).any(|prefix| branch.starts_with(prefix))
        }
    }
}

/// Returns true if a pattern matches a branch: `*` stands for any characters, all others for themselves
/// (`POST /repositories/{workspace}/{repo_slug}/branch-restrictions`).
fn matches(pattern: &str, branch: &str) -> bool {
    if pattern.len() > MAX_GLOB || branch.len() > MAX_GLOB {
        return false;
    }
    let parts: Vec<&str> = pattern.split('*').collect();
    let [first, middle @ .., last] = parts.as_slice() else { return pattern == branch };
    let Some(mut rest) = branch.strip_prefix(first) else { return false };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, branch, want) in [
            ("main", "main", true),
            ("main", "main2", false),
            ("*", "a/b", true),
            ("foo*", "foo", true),
            ("foo*", "foobar", true),
            ("foo*", "barfoo", false),
            ("*/x", "a/b/x", true),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "ac", false),
            ("a*a", "a", false),
            ("ma[i]n", "main", false),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, branch), want, "{pattern} {branch}");
        }
        assert!(!matches(&"*".repeat(MAX_GLOB + 1), "main"));
    }

    #[test]
    fn types_of_branches_are_those_of_the_model() {
        let model = json!({"development": {"name": "develop"}, "production": {"name": "main"},
            "branch_types": [{"kind": "release", "prefix": "release/"}, {"kind": "hotfix", "prefix": ""}]});
        assert!(is_of_type(&model, "production", "main") && is_of_type(&model, "development", "develop"));
        assert!(is_of_type(&model, "release", "release/1") && !is_of_type(&model, "release", "main"));
        assert!(!is_of_type(&model, "hotfix", "main") && !is_of_type(&Value::Null, "production", "main"));
    }

    #[test]
    fn builds_are_judged_without_ours_that_are_still_to_come() {
        let build = |name: &str, state: &str| json!({"name": name, "key": name, "state": state});
        let ours = build("atlantis/apply", "INPROGRESS");
        for (rows, wanted, words) in [
            (vec![], 1, "1 more build has to pass"),
            (vec![ours.clone()], 1, ""),
            (vec![ours.clone(), build("ci", "SUCCESSFUL")], 2, ""),
            (vec![ours.clone(), build("ci", "SUCCESSFUL")], 4, "2 more builds have to pass"),
            (vec![build("ci", "INPROGRESS")], 1, "`ci` is inprogress"),
            (vec![build("ci", "FAILED"), build("ci", "STOPPED")], 1, "`ci` is failed; `ci` is stopped"),
            (vec![build("atlantis/apply", "FAILED")], 1, ""),
            (vec![build("atlantis/plan", "FAILED")], 1, "`atlantis/plan` is failed"),
            // Somebody else's build with a name of ours.
            (vec![json!({"name": "atlantis/apply", "key": "X-1", "state": "INPROGRESS"})], 1, "is inprogress"),
        ] {
            let found = of_builds(&rows, wanted, "atlantis").join("; ");
            assert!(found.contains(words) && found.is_empty() == words.is_empty(), "{words}: {found}");
        }
        let many: Vec<Value> = (0..9).map(|number| build(&format!("ci`{number}"), "FAILED")).collect();
        let found = of_builds(&many, 1, "atlantis").join("; ");
        assert!(found.ends_with("`ci'4` is failed; and 4 more builds"), "{found}");
    }
}
