//! Reads `gh-hostname`, and the account or App there.

use super::check;
use super::typed::Reader;
use super::{GithubSettings, GithubToken, azure_devops, github_app, hosts};

/// Highest `gh-posts-per-hour`.
const MAX_POSTS: i64 = 1_000_000;
/// Settings that show that GitHub is used.
const OF_GITHUB: [&str; 5] = ["gh-user", "gh-token", "gh-token-file", "gh-webhook-secret", "gh-app-id"];
/// Message about the rights that the token needs.
const PERMISSIONS: &str = "A fine-grained token needs, on the repositories: Contents read (and write for automerge), Pull requests read and write, \
     Commit statuses read and write, Issues read and write (reactions); Webhooks read is for `tidelock doctor`. A classic one needs the \
     scope repo (and admin:repo_hook for the doctor)";

/// Reads host and account, and reports everything that is missing. Absent if another host is set and no setting of this one is.
pub(super) fn read(r: &mut Reader) -> Option<GithubSettings> {
    if azure_devops::is_named(r) && !OF_GITHUB.iter().any(|name| r.is_given(name)) {
        return None;
    }
    let host = hosts::github(&r.text("gh-hostname")).map_err(|what| r.wrong("gh-hostname", what)).ok();
    let app = github_app::read(r);
    let (user, token) = match app {
        Some(app) => {
            let user = app.slug.as_ref().map_or_else(|| format!("app/{}", app.id), |slug| format!("{slug}[bot]"));
            (user, Some(GithubToken::App(app)))
        }
        // Errors of the App have been reported.
        None if github_app::is_meant(r) => (String::new(), None),
        None => github_account(r),
    };
    let webhook_secret = r.secret("gh-webhook-secret");
    match (&webhook_secret, r.switch("allow-unsigned-webhooks")) {
        (None, false) => r.wrong(
            "gh-webhook-secret",
            "(ATLANTIS_GH_WEBHOOK_SECRET) is missing: without it everybody who reaches the port can run commands here. Set \
             the same text here and in the webhook on GitHub; or say --allow-unsigned-webhooks, which is unsafe",
        ),
        (None, true) => {
            r.warnings
                .push("deliveries are not signed: everybody who reaches the port can run commands here".to_owned());
        }
        (Some(_), true) => {
            r.warnings.push("allow-unsigned-webhooks has no effect: gh-webhook-secret is set".to_owned());
        }
        (Some(_), false) => {}
    }
    let previous_webhook_secret = r.secret("gh-previous-webhook-secret");
    let posts_per_hour = posts_per_hour(r, host.as_ref());
    let organization = r.text("gh-org").trim().to_owned();
    let host = host?;
    Some(GithubSettings {
        hostname: host.hostname,
        api_url: host.api_url,
        user,
        token: if r.switch("events-only") { token } else { Some(token?) },
        webhook_secret,
        previous_webhook_secret,
        posts_per_hour,
        organization,
    })
}

/// Reads login and token of the server's account.
fn github_account(r: &mut Reader) -> (String, Option<GithubToken>) {
    let user = r.text("gh-user").trim().trim_start_matches('@').to_owned();
    let missing = format!("(ATLANTIS_GH_TOKEN) is missing, and so is gh-token-file. {PERMISSIONS}");
    let token = check::token(r, "gh-token", "gh-token-file", &missing).map(GithubToken::Account);
    if user.is_empty() {
        r.wrong(
            "gh-user",
            "(ATLANTIS_GH_USER) is missing: the login of the account that the token belongs to. A GitHub App is named by gh-app-id \
             instead",
        );
    }
    (user, token)
}

/// Reads the limit of posts: GitHub's own hosts have one by default, Enterprise servers only if it is set.
fn posts_per_hour(r: &mut Reader, host: Option<&hosts::GithubHost>) -> Option<u32> {
    let limit = r.number("gh-posts-per-hour", 0, MAX_POSTS);
    let asks = host.is_some_and(hosts::GithubHost::is_githubs_own);
    u32::try_from(limit).ok().filter(|limit| *limit > 0 && (asks || r.is_given("gh-posts-per-hour")))
}
