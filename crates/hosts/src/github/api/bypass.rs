//! `--gh-allow-mergeable-bypass-apply`: if GitHub says `blocked`, checks whether our own apply status is all that blocks. A branch that
//! requires this status could otherwise never fulfil the requirement `mergeable`, as the apply sets it.
//!
//! GitHub does not report what blocks. So every rule of the branch is evaluated here, and a rule that cannot be evaluated counts as an
//! obstacle.

use super::{Github, graphql, moved};
use crate::vcs::HostError;
use crate::vcs::http::odd;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use tidelock_core::domain::PullRequest;

/// Most pages of 100 checks of one commit.
const MAX_PAGES: usize = 10;
/// Most missing checks that are named.
const MAX_NAMED: usize = 5;
/// Rules that do not restrict the merge of a reviewed pull request, or that are checked elsewhere.
const NO_OBSTACLE: [&str; 8] = [
    "BRANCH_NAME_PATTERN",
    "COPILOT_CODE_REVIEW",
    "CREATION",
    "DELETION",
    "MERGE_QUEUE",
    "NON_FAST_FORWARD",
    "REQUIRED_LINEAR_HISTORY",
    "UPDATE",
];

/// docs.github.com/graphql: `refUpdateRule` is the part of a branch protection that a token without administration sees; `rules` are those
/// of active rulesets.
const RULES: &str = "query($owner: String!, $name: String!, $number: Int!, $after: String) { \
    repository(owner: $owner, name: $name) { name owner { login } pullRequest(number: $number) { reviewDecision \
    latestOpinionatedReviews(first: 100, writersOnly: true) { nodes { state } } \
    reviewThreads(first: 100) { nodes { isResolved } pageInfo { hasNextPage } } \
    baseRef { refUpdateRule { requiredStatusCheckContexts requiresConversationResolution requiresSignatures } \
    rules(first: 100) { pageInfo { hasNextPage } nodes { type parameters { \
    ... on RequiredStatusChecksParameters { requiredStatusChecks { context } } \
    ... on PullRequestParameters { requiredApprovingReviewCount requireCodeOwnerReview requireLastPushApproval \
    requiredReviewThreadResolution } } } } } \
    commits(last: 1) { nodes { commit { oid statusCheckRollup { contexts(first: 100, after: $after) { \
    pageInfo { hasNextPage endCursor } nodes { \
    ... on CheckRun { name conclusion startedAt isRequired(pullRequestNumber: $number) } \
    ... on StatusContext { context state createdAt isRequired(pullRequestNumber: $number) } } } } } } } } } }";

/// Statuses that mergeability ignores.
#[derive(Debug, Clone)]
pub struct BypassedStatuses {
    /// `--vcs-status-name`: the statuses of its apply are yet to be set.
    pub own: String,
    /// `--ignore-vcs-status-names`: first parts of the names of other servers' statuses.
    pub others: Vec<String>,
}

impl BypassedStatuses {
    fn has(&self, context: &str) -> bool {
        let of_apply = context.strip_prefix(&self.own).and_then(|rest| rest.strip_prefix("/apply"));
        let is_own = of_apply.is_some_and(|rest| rest.is_empty() || rest.starts_with(": "));
        let first = context.split('/').next().unwrap_or_default();
        is_own || self.others.iter().any(|other| other == first)
    }
}

/// Returns the obstacles to a merge besides ignored statuses, for people; empty if it could be merged without them.
pub(super) async fn obstacles(
    github: &Github,
    pull: &PullRequest,
    bypassed: &BypassedStatuses,
) -> Result<Vec<String>, HostError> {
    let (what, repo) = (format!("rules for {}", pull.id), &pull.id.repo);
    let (mut checks, mut after, mut pages) = (Vec::new(), Value::Null, 0);
    loop {
        let asked = json!({ "owner": repo.owner, "name": repo.name, "number": pull.id.number, "after": after });
        let mut found = graphql::send(github, &repo.owner, &what, RULES, asked).await?;
        moved::is_asked_for(repo, &what, &found["repository"])?;
        let mut found = found["repository"]["pullRequest"].take();
        let commit = &mut found["commits"]["nodes"][0]["commit"];
        if commit["oid"] != pull.head.commit.as_str() {
            return Ok(vec!["its head has moved on".to_owned()]);
        }
        let contexts = &mut commit["statusCheckRollup"]["contexts"];
        let more = contexts["pageInfo"]["hasNextPage"] == true;
        after = contexts["pageInfo"]["endCursor"].take();
        if let Value::Array(nodes) = contexts["nodes"].take() {
            checks.extend(nodes);
        }
        pages += 1;
        if !more {
            return judged(&found, &checks, bypassed)
                .ok_or_else(|| odd(&what, "a pull request without rules of its base branch"));
        }
        if pages == MAX_PAGES {
            return Ok(vec![format!("it has more than {} checks", MAX_PAGES * 100)]);
        }
    }
}

/// Returns the obstacles in an answer; absent if the answer lacks the rules.
fn judged(pull: &Value, checks: &[Value], bypassed: &BypassedStatuses) -> Option<Vec<String>> {
    let branch = pull["baseRef"].as_object()?;
    let (protection, rules) = (branch.get("refUpdateRule")?, branch.get("rules")?);
    let mut found = Vec::new();
    let mut required: BTreeSet<&str> = texts(&protection["requiredStatusCheckContexts"]).collect();
    let mut resolves = protection["requiresConversationResolution"] == true;
    if protection["requiresSignatures"] == true {
        found.push("the branch requires signatures, which cannot be judged here".to_owned());
    }
    if rules["pageInfo"]["hasNextPage"] == true {
        found.push("the branch has more than 100 rules".to_owned());
    }
    for rule in rules["nodes"].as_array()? {
        let parameters = &rule["parameters"];
        match rule["type"].as_str().unwrap_or("without a type") {
            "REQUIRED_STATUS_CHECKS" => {
                let contexts = parameters["requiredStatusChecks"].as_array()?;
                required.extend(contexts.iter().filter_map(|check| check["context"].as_str()));
            }
            "PULL_REQUEST" => {
                resolves |= parameters["requiredReviewThreadResolution"] == true;
                found.extend(missing_reviews(pull, parameters));
            }
            harmless if NO_OBSTACLE.contains(&harmless) => {}
            other => found.push(format!("the branch has the rule `{other}`, which cannot be judged here")),
        }
    }
    match pull["reviewDecision"].as_str() {
        None | Some("APPROVED") => {}
        Some("CHANGES_REQUESTED") => found.push("changes are requested".to_owned()),
        Some(_) => found.push("a review is required".to_owned()),
    }
    if resolves && is_discussed(&pull["reviewThreads"]) {
        found.push("conversations are not resolved".to_owned());
    }
    let required = outcomes(required, checks);
    found.extend(missing_checks(&required, bypassed));
    let mut told = HashSet::new();
    found.retain(|reason| told.insert(reason.clone()));
    if found.is_empty() && !required.iter().any(|(name, passed)| bypassed.has(name) && !passed) {
        found.push("blocked for a reason that GitHub does not tell".to_owned());
    }
    Some(found)
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the reviews that a ruleset requires and that are missing. It requires a number; only GitHub's own decision covers who may give
/// them.
fn missing_reviews(pull: &Value, parameters: &Value) -> Option<String> {
    let is_decided = pull["reviewDecision"] == "APPROVED";
    if !is_decided && (parameters["requireCodeOwnerReview"] == true || parameters["requireLastPushApproval"] == true) {
        return Some("a review is required".to_owned());
    }
    let wanted = parameters["requiredApprovingReviewCount"].as_u64().unwrap_or_default();
    let reviews = pull["latestOpinionatedReviews"]["nodes"].as_array().into_iter().flatten();
    let given = reviews.filter(|review| review["state"] == "APPROVED").count() as u64;
    (given < wanted).then(|| format!("{given} of {wanted} reviews"))
}

fn is_discussed(threads: &Value) -> bool {
    let all = threads["nodes"].as_array();
    threads["pageInfo"]["hasNextPage"] == true
        || all.is_none_or(|all| all.iter().any(|thread| thread["isResolved"] != true))
}

/// Returns each required check with `true` if it has passed. The latest check of a name that GitHub accepts as the required one counts.
fn outcomes<'a>(mut required: BTreeSet<&'a str>, checks: &'a [Value]) -> Vec<(&'a str, bool)> {
    let mut latest: BTreeMap<&str, &Value> = BTreeMap::new();
    for check in checks.iter().filter(|check| check["isRequired"] == true) {
        let Some(name) = check["context"].as_str().or(check["name"].as_str()) else { continue };
        required.insert(name);
        match latest.get(name) {
            Some(known) if moment(known) > moment(check) => {}
            _ => _ = latest.insert(name, check),
        }
    }
    required.into_iter().map(|name| (name, latest.get(name).is_some_and(|check| passed(check)))).collect()
}

/// Returns a sentence on the checks that count and have not passed.
fn missing_checks(required: &[(&str, bool)], bypassed: &BypassedStatuses) -> Option<String> {
    let missing = required.iter().filter(|(name, passed)| !passed && !bypassed.has(name)).map(|(name, _)| *name);
    let missing: Vec<&str> = missing.collect();
    let more =
        if missing.len() > MAX_NAMED { format!(" and {} more", missing.len() - MAX_NAMED) } else { String::new() };
    let named: Vec<String> =
        missing.iter().take(MAX_NAMED).map(|name| format!("`{}`", name.replace('`', "'"))).collect();
    (!named.is_empty()).then(|| format!("required checks have not passed: {}{more}", named.join(", ")))
}

/// Start of a check; one that has not begun counts as the latest.
fn moment(check: &Value) -> jiff::Timestamp {
    let at = check["startedAt"].as_str().or(check["createdAt"].as_str());
    at.and_then(|at| at.parse().ok()).unwrap_or(jiff::Timestamp::MAX)
}

fn passed(check: &Value) -> bool {
    match check["state"].as_str() {
        Some(state) => state == "SUCCESS",
        None => matches!(check["conclusion"].as_str(), Some("SUCCESS" | "SKIPPED" | "NEUTRAL")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bypassed() -> BypassedStatuses {
        BypassedStatuses { own: "atlantis".into(), others: vec!["atlantis-2".into()] }
    }

    fn status(context: &str, state: &str, at: &str) -> Value {
        json!({"context": context, "state": state, "createdAt": at, "isRequired": true})
    }

    const T1: &str = "2026-01-01T00:00:01Z";
    const T2: &str = "2026-01-01T00:00:02Z";

    /// A pull request whose branch protection requires these checks. Its rulesets have these rules and require the server's own status.
    fn pull(protected: &[&str], rules: &[Value]) -> Value {
        let own = json!({"type": "REQUIRED_STATUS_CHECKS",
            "parameters": {"requiredStatusChecks": [{"context": "atlantis/apply"}]}});
        let rules: Vec<Value> = rules.iter().cloned().chain([own]).collect();
        json!({
            "reviewDecision": null,
            "latestOpinionatedReviews": {"nodes": [{"state": "APPROVED"}, {"state": "CHANGES_REQUESTED"}]},
            "reviewThreads": {"nodes": [{"isResolved": true}, {"isResolved": false}], "pageInfo": {"hasNextPage": false}},
            "baseRef": {
                "refUpdateRule": {"requiredStatusCheckContexts": protected},
                "rules": {"nodes": rules, "pageInfo": {"hasNextPage": false}},
            },
        })
    }

    fn found(pull: &Value, checks: &[Value]) -> String {
        judged(pull, checks, &bypassed()).unwrap().join("; ")
    }

    #[test]
    fn only_what_this_server_is_about_to_set_and_what_is_named_does_not_count() {
        for context in ["atlantis/apply", "atlantis/apply: network", "atlantis-2/plan", "atlantis-2/apply"] {
            assert!(bypassed().has(context), "{context}");
        }
        for context in [
            "atlantis/plan",
            "atlantis/apply-all",
            "atlantis/policy_check",
            "atlantis",
            "ci/atlantis-2",
            "atlantis-22/x",
        ] {
            assert!(!bypassed().has(context), "{context}");
        }
    }

    #[test]
    fn required_checks_that_count_have_to_pass() {
        let checks = |contexts: &[&str]| {
            let all: Vec<Value> = contexts.iter().map(|context| json!({"context": context})).collect();
            json!({"type": "REQUIRED_STATUS_CHECKS", "parameters": {"requiredStatusChecks": all}})
        };
        let pull = pull(&["ci"], &[checks(&["lint", "atlantis-2/plan"])]);
        let ci = |state| status("ci", state, T1);
        let lint = |conclusion: &str, at: &str| json!({"name": "lint", "conclusion": conclusion, "startedAt": at, "isRequired": true});
        assert_eq!(found(&pull, &[ci("SUCCESS"), lint("SKIPPED", T1)]), "");
        assert_eq!(found(&pull, &[ci("PENDING"), lint("NEUTRAL", T1)]), "required checks have not passed: `ci`");
        assert_eq!(found(&pull, &[]), "required checks have not passed: `ci`, `lint`");
        // The latest counts, in any order.
        assert_eq!(found(&pull, &[lint("SUCCESS", T2), ci("SUCCESS"), lint("FAILURE", T1)]), "");
        assert_eq!(
            found(&pull, &[lint("SUCCESS", T1), ci("SUCCESS"), lint("FAILURE", T2)]),
            "required checks have not passed: `lint`"
        );
        // A check of another app: GitHub does not accept it as the required one.
        let other = json!({"name": "lint", "conclusion": "SUCCESS", "startedAt": T2, "isRequired": false});
        assert_eq!(found(&pull, &[ci("SUCCESS"), other]), "required checks have not passed: `lint`");
        // The apply status is set and does not block.
        let set = [
            ci("SUCCESS"),
            lint("SUCCESS", T1),
            status("atlantis/apply", "SUCCESS", T1),
            status("atlantis-2/plan", "SUCCESS", T1),
        ];
        assert_eq!(found(&pull, &set), "blocked for a reason that GitHub does not tell");
        // Required by a rule that GitHub does not report.
        assert_eq!(
            found(&super::tests::pull(&[], &[]), &[status("x", "FAILURE", T1)]),
            "required checks have not passed: `x`"
        );
    }

    #[test]
    fn every_other_rule_is_met_or_in_the_way() {
        let rule = |kind: &str, parameters: Value| json!({"type": kind, "parameters": parameters});
        for (rules, expected) in [
            (vec![rule("DELETION", json!({})), rule("NON_FAST_FORWARD", json!(null))], ""),
            (vec![rule("PULL_REQUEST", json!({"requiredApprovingReviewCount": 1}))], ""),
            (vec![rule("PULL_REQUEST", json!({"requiredApprovingReviewCount": 2}))], "1 of 2 reviews"),
            (vec![rule("PULL_REQUEST", json!({"requireCodeOwnerReview": true}))], "a review is required"),
            (
                vec![rule("PULL_REQUEST", json!({"requiredReviewThreadResolution": true}))],
                "conversations are not resolved",
            ),
            (vec![rule("WORKFLOWS", json!({}))], "the branch has the rule `WORKFLOWS`, which cannot be judged here"),
        ] {
            assert_eq!(found(&pull(&[], &rules), &[]), expected, "{rules:?}");
        }
        let mut decided = pull(&[], &[]);
        for (decision, expected) in [
            ("APPROVED", ""),
            ("CHANGES_REQUESTED", "changes are requested"),
            ("REVIEW_REQUIRED", "a review is required"),
        ] {
            decided["reviewDecision"] = json!(decision);
            assert_eq!(found(&decided, &[]), expected);
        }
        let mut twice =
            pull(&[], &[rule("PULL_REQUEST", json!({"requireCodeOwnerReview": true})), rule("WORKFLOWS", json!({}))]);
        twice["reviewDecision"] = json!("REVIEW_REQUIRED");
        let expected = "a review is required; the branch has the rule `WORKFLOWS`, which cannot be judged here";
        assert_eq!(found(&twice, &[]), expected, "each reason once");
        assert!(judged(&json!({"baseRef": null}), &[], &bypassed()).is_none());
        assert!(judged(&json!("odd"), &[], &bypassed()).is_none());
    }
}
