//! `tidelock sandbox --tour=safety`: three stories in mode `strict` in which Atlantis would release its lock: closed after an apply,
//! merged before one, and an invalidated plan. Each shows the comments, the response of `/api/locks`, and the way out.

#[cfg(test)]
mod tests;

use super::{ANSWER_TIMEOUT, Expect, TourOutput, demo, demo::SmallChange, terminal::Style};
use crate::sandbox::{Forge, Pull, Repo, SandboxExecutor};
use anyhow::{Context, bail};
use serde_json::Value;
use std::io::Write;
use std::time::{Duration, Instant};

/// Mode `strict` for every repository, as an entry of `repos`.
pub(super) const REPO_ENTRY: &str = r#"{"id":"/.*/","repo_locks":{"mode":"strict"},"allowed_users":["*","*:unlock"]}"#;

/// Interval between two reads of the locks.
const LOOK: Duration = Duration::from_millis(50);

const PLANNED: Expect = Expect::Result { command: "plan", outcome: "success" };
const APPLIED: Expect = Expect::Result { command: "apply", outcome: "success" };
/// Text in an automatic re-plan.
const BY_ITSELF: &str = "Planned automatically";

/// Plays the stories one after the other on a server with [`REPO_ENTRY`]. Fails if an answer is missing after `ANSWER_TIMEOUT`, or if a
/// comment or the locks are not as expected.
pub(crate) async fn tour(
    forge: &Forge,
    server_url: &str,
    style: Style,
    executor: SandboxExecutor,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    play(forge, server_url, style, executor, out, ANSWER_TIMEOUT).await
}

async fn play(
    forge: &Forge,
    server_url: &str,
    style: Style,
    executor: SandboxExecutor,
    out: &mut (dyn Write + Send),
    limit: Duration,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut play = SafetyTour {
        stage: TourOutput { style, executor, out, step: 0 },
        mark: forge.kind().pull_mark(),
        locks_url: format!("{server_url}/api/locks"),
        client: reqwest::Client::builder().no_proxy().build()?,
        limit,
        comments: 0,
    };
    play.stage.line(&style.bold(
        "Mode `strict`: nobody applies over somebody else's half-done change. Three stories, on this machine, with real Terraform.",
    ))?;
    play.stage.line(&format!("  pull requests  {}", forge.url()))?;
    play.stage.line(&format!("  server         {server_url}"))?;
    let repo = demo::populate(forge).await.context("making the sample repository")?;
    play.closed_after_apply(&repo).await.context("in the story “closed after apply”")?;
    play.merged_before_apply(&repo).await.context("in the story “merged before apply”")?;
    play.plan_invalidated(&repo).await.context("in the story “your plan fell”")?;
    let seconds = began.elapsed().as_secs_f32();
    play.stage.line("")?;
    let done = format!("Done: 3 stories, 6 pull requests, {} comments of the server, {seconds:.1} s.", play.comments);
    play.stage.line(&style.bold(&done))?;
    play.stage.play_yourself(forge.kind())
}

/// A pull request of the story.
struct SafetyPull {
    pull: Pull,
    author: &'static str,
    /// Number of the server's comments that were shown.
    seen: usize,
}

struct SafetyTour<'a> {
    stage: TourOutput<'a>,
    /// Mark in front of a pull request's number.
    mark: char,
    locks_url: String,
    client: reqwest::Client,
    /// Time limit for the locks to change.
    limit: Duration,
    comments: usize,
}

impl SafetyTour<'_> {
    async fn closed_after_apply(&mut self, repo: &Repo) -> anyhow::Result<()> {
        self.story("closed after apply")?;
        self.stage.step("alice's pull request is planned; in `strict`, a plan locks nothing")?;
        let mut alice = self.opened(demo::story_start(repo).await?, "alice")?;
        self.stage.introduce_executor()?;
        self.answer(&mut alice, PLANNED, &["network"]).await?;
        self.free().await?;

        self.stage.step("she applies, and owns what she changes until it is merged")?;
        self.post_comment(&alice, "atlantis apply")?;
        self.answer(&mut alice, APPLIED, &["network"]).await?;
        self.owned("network", &alice, "applied_unmerged", None).await?;

        self.stage.step("she closes it: the main branch and reality differ, and the server does not forget that")?;
        alice.pull.close()?;
        self.stage.did(&alice.pull, "alice closed it")?;
        let words = ["Closed after an apply", "network", "atlantis unlock --accept-drift -m"];
        self.answer(&mut alice, Expect::Message("owes"), &words).await?;
        self.owned("network", &alice, "closed_applied", None).await?;

        self.stage.step("bob's plan is a preview; his apply would undo alice's change, and is refused")?;
        let mut bob = self.opened(demo::second_pull(repo).await?, "bob")?;
        let owner = alice.pull.reference();
        self.answer(&mut bob, PLANNED, &["preview", &owner]).await?;
        self.post_comment(&bob, "atlantis apply")?;
        let words = [owner.as_str(), "closed after an apply", "atlantis unlock --accept-drift -m"];
        self.answer(&mut bob, locked(&alice), &words).await?;
        self.owned("network", &alice, "closed_applied", Some(&bob)).await?;

        self.stage.step("the way out: alice accepts the drift, with a reason for the audit log")?;
        self.post_comment(&alice, "atlantis unlock --accept-drift -m \"bob's pull request sets it right\"")?;
        self.answer(&mut alice, Expect::Message("unlocked"), &["network", &bob.pull.reference()]).await?;

        self.stage.step(
            "bob waited in line: he is planned automatically, and the plan shows what differs from the main branch",
        )?;
        self.answer(&mut bob, PLANNED, &["network", BY_ITSELF]).await?;
        self.free().await
    }

    async fn merged_before_apply(&mut self, repo: &Repo) -> anyhow::Result<()> {
        self.story("merged before apply")?;
        self.stage.step("alice's pull request is planned")?;
        let change = SmallChange {
            branch: "mail-record",
            author: "alice",
            title: "Add a record for mail",
            path: "dns/main.tf",
            from: "    api = ",
            to: "    mail = \"192.0.2.25\"\n    api = ",
        };
        let mut alice = self.opened(demo::small_change(repo, change).await?, "alice")?;
        self.answer(&mut alice, PLANNED, &["dns"]).await?;

        self.stage.step("she merges it and forgets to apply; the main branch now promises what is not there")?;
        self.merges(&alice).await?;
        let words = ["Merged but not applied", "dns", "atlantis apply"];
        self.answer(&mut alice, Expect::Message("owes"), &words).await?;
        self.owned("dns", &alice, "merged_unapplied", None).await?;

        self.stage.step("bob changes the same project; his apply would bring alice's change along, and is refused")?;
        let change = SmallChange {
            branch: "move-the-api",
            author: "bob",
            title: "Move the API to another address",
            path: "dns/main.tf",
            from: "192.0.2.11",
            to: "192.0.2.12",
        };
        let mut bob = self.opened(demo::small_change(repo, change).await?, "bob")?;
        let owner = alice.pull.reference();
        self.answer(&mut bob, PLANNED, &["preview", &owner]).await?;
        self.post_comment(&bob, "atlantis apply")?;
        self.answer(&mut bob, locked(&alice), &[&owner, "merged but not applied", "atlantis apply"]).await?;
        self.owned("dns", &alice, "merged_unapplied", Some(&bob)).await?;

        self.stage
            .step("the way out: alice applies on the merged pull request; a new plan is compared with hers first")?;
        self.post_comment(&alice, "atlantis apply")?;
        self.answer(&mut alice, PLANNED, &["The pull request is merged", "It is applied now"]).await?;
        self.answer(&mut alice, APPLIED, &["dns"]).await?;

        self.stage.step("bob's preview is discarded with that; he waited in line, and is planned automatically")?;
        self.answer(&mut bob, Expect::Message("plans_fell"), &[&owner, "releases it"]).await?;
        self.answer(&mut bob, PLANNED, &["dns", BY_ITSELF]).await?;
        self.free().await
    }

    async fn plan_invalidated(&mut self, repo: &Repo) -> anyhow::Result<()> {
        self.story("your plan fell")?;
        self.stage.step("alice and bob change one project; both are planned, and each is told of the other")?;
        let change = SmallChange {
            branch: "larger-shop",
            author: "alice",
            title: "Give the shop a third replica",
            path: "app/main.tf",
            from: "replicas = 2",
            to: "replicas = 3",
        };
        let mut alice = self.opened(demo::small_change(repo, change).await?, "alice")?;
        self.answer(&mut alice, PLANNED, &["app"]).await?;
        let change = SmallChange {
            branch: "larger-billing",
            author: "bob",
            title: "Give billing a second replica",
            path: "app/main.tf",
            from: "replicas = 1",
            to: "replicas = 2",
        };
        let mut bob = self.opened(demo::small_change(repo, change).await?, "bob")?;
        let owner = alice.pull.reference();
        self.answer(&mut bob, PLANNED, &["also changed by", &owner]).await?;
        let words = [bob.pull.reference(), "also changes 1 project".to_owned()];
        self.answer(&mut alice, Expect::Message("also_changed"), &words.each_ref().map(String::as_str)).await?;

        self.stage.step("alice applies; bob's plan is out of date, and is discarded")?;
        self.post_comment(&alice, "atlantis apply")?;
        self.answer(&mut alice, APPLIED, &["app"]).await?;
        self.answer(&mut bob, Expect::Message("plans_fell"), &[&owner, "releases it"]).await?;
        self.owned("app", &alice, "applied_unmerged", Some(&bob)).await?;

        self.stage.step("bob applies all the same: there is no plan to apply")?;
        self.post_comment(&bob, "atlantis apply -p app")?;
        self.answer(&mut bob, Expect::Refused { reason: "no_plan", owner: None }, &["atlantis plan"]).await?;

        self.stage.step("the way out: alice merges, and bob is planned again automatically")?;
        self.merges(&alice).await?;
        self.answer(&mut bob, PLANNED, &["app", BY_ITSELF]).await?;
        self.free().await?;

        self.stage.step("bob applies it and merges")?;
        self.post_comment(&bob, "atlantis apply")?;
        self.answer(&mut bob, APPLIED, &["app"]).await?;
        self.owned("app", &bob, "applied_unmerged", None).await?;
        self.merges(&bob).await?;
        self.free().await
    }

    fn story(&mut self, name: &str) -> anyhow::Result<()> {
        self.stage.step = 0;
        let text = self.stage.style.bold(&format!("━━ {name}"));
        self.stage.line(&format!("\n\n{text}"))
    }

    fn opened(&mut self, pull: Pull, author: &'static str) -> anyhow::Result<SafetyPull> {
        self.stage.opened(&pull, author)?;
        Ok(SafetyPull { pull, author, seen: 0 })
    }

    fn post_comment(&mut self, at: &SafetyPull, comment: &str) -> anyhow::Result<()> {
        self.stage.post_comment(&at.pull, at.author, comment)
    }

    async fn merges(&mut self, at: &SafetyPull) -> anyhow::Result<()> {
        at.pull.merge_as(at.author, "merge").await.with_context(|| format!("merging {}", at.pull.reference()))?;
        self.stage.did(&at.pull, &format!("{} merged it", at.author))
    }

    async fn answer(&mut self, at: &mut SafetyPull, expect: Expect, words: &[&str]) -> anyhow::Result<()> {
        self.stage.answer(&at.pull, &mut at.seen, expect, words).await?;
        self.comments += 1;
        Ok(())
    }

    /// Checks that this project alone is owned, in this state and with this pull request in line.
    async fn owned(
        &mut self,
        project: &str,
        owner: &SafetyPull,
        state: &str,
        waiting: Option<&SafetyPull>,
    ) -> anyhow::Result<()> {
        let waiting = waiting.map(|at| format!("  waiting: {}", at.pull.reference())).unwrap_or_default();
        self.locks(&[format!("{project}  {}  {state}{waiting}", owner.pull.reference())]).await
    }

    async fn free(&mut self) -> anyhow::Result<()> {
        self.locks(&[]).await
    }

    /// Waits until `/api/locks` returns these rows, and shows them.
    async fn locks(&mut self, expected: &[String]) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let answer = self.client.get(&self.locks_url).send().await.context("asking for the locks")?;
            let answer: Value = answer.error_for_status()?.json().await.context("the locks are not JSON")?;
            let rows = rows(&answer, self.mark)?;
            if rows != expected {
                if began.elapsed() < self.limit {
                    tokio::time::sleep(LOOK).await;
                    continue;
                }
                bail!("expected {expected:?} of {}, it says {rows:?}: {answer}", self.locks_url);
            }
            let said = if rows.is_empty() { "nothing is owned".to_owned() } else { rows.join("; ") };
            let text = self.stage.style.event(&format!("/api/locks  {said}"));
            return self.stage.line(text.trim_end());
        }
    }
}

/// Expects an apply that is refused because of this owner.
fn locked(owner: &SafetyPull) -> Expect {
    Expect::Refused { reason: "locked", owner: Some(owner.pull.number()) }
}

/// Formats each lock as a line: project, owner, state and waiting pull requests.
fn rows(answer: &Value, mark: char) -> anyhow::Result<Vec<String>> {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    // Without locks it is null.
    let locks = answer.get("Locks").context("the answer has no Locks")?.as_array();
    let row = |lock: &Value| {
        let waiting = lock["Waiting"].as_array().map(Vec::as_slice).unwrap_or_default();
        let waiting: Vec<_> = waiting.iter().map(|number| format!("{mark}{}", text(number))).collect();
        let waiting = if waiting.is_empty() { String::new() } else { format!("  waiting: {}", waiting.join(", ")) };
        let (project, owner, state) = (text(&lock["ProjectRepoPath"]), text(&lock["PullID"]), text(&lock["State"]));
        format!("{project}  {mark}{owner}  {state}{waiting}")
    };
    Ok(locks.into_iter().flatten().map(row).collect())
}
