//! Settings of Atlantis that a set-up may still have and that change nothing here: what they are about does not exist, is refused by
//! a setting of its own, or is done in another way. Given with another value than the default, they are warned of.

use super::Kind::{List, Number, Path, Secret, Switch, Text};
use super::{Setting, accepted};

pub(super) static SETTINGS: &[Setting] = &[
    accepted("automerge-method", Text, "", "How to merge: merge, rebase or squash", "it matters with automerge alone"),
    accepted("azuredevops-hostname", Text, "dev.azure.com", "Azure DevOps", "Azure DevOps is not built yet"),
    accepted("bitbucket-api-user", Text, "", "User for Bitbucket Cloud's API", "Bitbucket is not built yet"),
    accepted(
        "bitbucket-base-url",
        Text,
        "https://api.bitbucket.org",
        "Bitbucket Cloud, or a Bitbucket Server",
        "Bitbucket is not built yet",
    ),
    accepted(
        "disable-automerge-label",
        Text,
        "",
        "Label of pull requests that are not merged by themselves",
        "it matters with automerge alone",
    ),
    accepted(
        "enable-external-stores",
        Switch,
        "false",
        "Keep plans in an external store; see bucket",
        "plans are kept in the bucket",
    ),
    accepted("enable-profiling-api", Switch, "false", "Profiles of the running server", "there is no such API"),
    accepted("gh-app-slug", Text, "", "Slug of a GitHub App", "it matters with gh-app-id alone"),
    accepted("gh-org", Text, "", "Organization in which a GitHub App is made", "GitHub Apps are not made here"),
    accepted("gitea-base-url", Text, "https://gitea.com", "Gitea", "Gitea is not built yet"),
    accepted("gitea-page-size", Number, "30", "Page size of Gitea's API", "Gitea is not built yet"),
    accepted("gitlab-hostname", Text, "gitlab.com", "GitLab", "GitLab is not built yet"),
    accepted(
        "gitlab-status-retry-enabled",
        Switch,
        "false",
        "Try longer to find the pipeline of a status",
        "GitLab is not built yet",
    ),
    accepted(
        "ignore-vcs-status-names",
        List,
        "",
        "Statuses of other servers that mergeability leaves out",
        "it matters with gh-allow-mergeable-bypass-apply alone",
    ),
    accepted("locking-db-type", Text, "boltdb", "Where Atlantis keeps locks", "locks are kept in the bucket"),
    accepted(
        "quiet-policy-checks",
        Switch,
        "false",
        "Comment on policy checks only when they fail",
        "it matters with enable-policy-checks alone",
    ),
    accepted("redis-cluster-addresses", List, "", "Redis", "locks are kept in the bucket"),
    accepted("redis-db", Number, "0", "Redis", "locks are kept in the bucket"),
    accepted("redis-host", Text, "", "Redis", "locks are kept in the bucket"),
    accepted("redis-insecure-skip-verify", Switch, "false", "Redis", "locks are kept in the bucket"),
    accepted("redis-password", Secret, "", "Redis", "locks are kept in the bucket"),
    accepted("redis-port", Number, "6379", "Redis", "locks are kept in the bucket"),
    accepted("redis-tls-enabled", Switch, "false", "Redis", "locks are kept in the bucket"),
    accepted("redis-username", Text, "", "Redis", "locks are kept in the bucket"),
    accepted("share-plan-dir", Path, "", "Where Atlantis keeps plan files", "plans are kept in the bucket"),
    accepted("slack-token", Secret, "", "Token for notifications to Slack", "it matters with webhooks alone"),
    accepted(
        "tfe-local-execution-mode",
        Switch,
        "false",
        "Terraform Enterprise runs nothing itself",
        "it matters with tfe-token alone",
    ),
    accepted("webhook-http-headers", Secret, "", "Headers of notifications, as JSON", "it matters with webhooks alone"),
];
