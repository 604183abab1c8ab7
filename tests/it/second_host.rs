//! GitHub and a second host in one server. The second one differs from GitHub as far as possible (`forge`), and no other file names it.

mod forge;

use crate::flow::FlowHost;
use crate::support::*;
pub(crate) use forge::Second;
use forge::{NAME, PASSWORD, deliver};
use tidelock_core::domain::state::StatusState;
use tidelock_hosts::vcs::ReviewVerdict;
use tidelock_hosts::webhook::Intake;

const APPLY: &str = "echo $BASE_REPO_OWNER $PULL_NUM >> {tmp}/applied";

/// A server on both hosts, each with one project at the root.
fn both(second: &Second) -> Setup {
    Setup::one_project().steps(&[PLANNED], &[APPLY]).host(second.joined())
}

async fn connect(ctx: &Ctx, second: &Second) {
    second.serve(&ctx.forge, &[("main.tf", "# 1\n")]).await;
    second.deliver_to(&ctx.server.url());
}

impl FlowHost for Second {
    const MARK: char = '!';
    const CAN_BE_GUESSED: bool = true;

    fn full_name(&self) -> &'static str {
        "org/project/infra"
    }

    fn served(&self, setup: Setup) -> Setup {
        setup.host(self.joined())
    }

    async fn connect(&self, ctx: &Ctx) {
        connect(ctx, self).await;
    }

    fn hear(&self, ctx: &Ctx, heard: bool) {
        self.deliver_to(&if heard { ctx.server.url() } else { String::new() });
    }

    async fn open_one(&self, _: &Ctx, branch: &str, file: (&str, &str)) -> u64 {
        self.open(branch, file).await
    }

    async fn push_to(&self, _: &Ctx, number: u64, file: (&str, &str)) {
        self.push(number, file).await;
    }

    async fn comment_on(&self, _: &Ctx, number: u64, text: &str) {
        self.say(number, "ann", text).await;
    }

    async fn touch(&self, _: &Ctx, number: u64) {
        self.vote(number).await;
    }

    async fn push_to_main(&self, _: &Ctx, file: (&str, &str)) {
        self.git().0.push("main", &[(file.0, Some(file.1))]).await.unwrap();
    }

    async fn close_one(&self, _: &Ctx, number: u64) {
        self.close(number).await;
    }

    async fn merge_one(&self, _: &Ctx, number: u64) {
        self.merge(number).await;
    }

    async fn vote_on(&self, _: &Ctx, number: u64, who: &str, approves: bool) {
        let verdict = if approves { ReviewVerdict::Approved } else { ReviewVerdict::ChangesRequested };
        self.review(number, who, verdict);
    }

    async fn approve_as_author(&self, _: &Ctx, number: u64) {
        self.review(number, "ann", ReviewVerdict::Approved);
    }

    fn refuse_merge(&self, _: &Ctx, number: u64) -> &'static str {
        Second::refuse_merge(self, number);
        "people merge here"
    }

    fn is_merged(&self, _: &Ctx, number: u64) -> bool {
        Second::is_merged(self, number)
    }

    async fn has_branch(&self, _: &Ctx, branch: &str) -> bool {
        Second::has_branch(self, branch).await
    }

    async fn forged(&self, _: &Ctx, text: &str, other: &str) -> u16 {
        Second::forged(self, text, other).await
    }

    async fn redeliver_last(&self, _: &Ctx) {
        self.redeliver().await;
    }

    fn answers(&self, _: &Ctx, number: u64) -> Vec<String> {
        self.comment_texts(number)
    }

    fn is_success(&self, _: &Ctx, number: u64, context: &str) -> Option<bool> {
        let state = self.status(number, context).filter(|state| *state != StatusState::Pending)?;
        Some(state == StatusState::Success)
    }
}

/// Waits for the server's comment after those that were read.
async fn comment(ctx: &Ctx, second: &Second, number: u64, read: usize) -> Said {
    ctx.until("the server comments on the second host", async || second.comment_texts(number).len() > read).await;
    Said::new(&second.comment_texts(number)[read])
}

async fn status(ctx: &Ctx, second: &Second, number: u64, context: &str, state: StatusState) {
    ctx.until(&format!("{context} is {state:?}"), async || second.status(number, context) == Some(state)).await;
}

#[test]
fn a_merge_method_that_one_of_the_hosts_does_not_have_is_named_in_its_comment() {
    let second = Second::new();
    let rules = workflow("automerge: true\nmerge_method: squash", &[PLANNED], &[APPLY]);
    run_test(both(&second).repos_yaml(&rules), async |ctx| {
        connect(ctx, &second).await;
        let one = second.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &second, one, 0).await.is("plan", "success");
        second.say(one, "ann", "atlantis apply").await;
        comment(ctx, &second, one, 1).await.is("apply", "success");
        comment(ctx, &second, one, 2).await.is_message("automerge");
        let refused = comment(ctx, &second, one, 3).await;
        refused
            .is_message("automerge")
            .has("`merge_method: squash` of the server's `repos.yaml`")
            .has("which has: merge.");
        assert!(!second.is_merged(one));
        second.say(one, "ann", "atlantis apply --auto-merge-method merge").await;
        comment(ctx, &second, one, 5).await.is_message("cleanup");
        assert!(second.is_merged(one));
    });
}

#[test]
fn a_pull_request_goes_from_autoplan_to_merge_beside_one_on_github() {
    let second = Second::new();
    run_test(both(&second), async |ctx| {
        connect(ctx, &second).await;
        let github = ctx.open_input("change", "2").await;
        ctx.next(&github).await.is("plan", "success");
        let one = second.open("one", ("main.tf", "# 2\n")).await;
        let plan = comment(ctx, &second, one, 0).await;
        plan.is("plan", "success").has_not("<details>");
        status(ctx, &second, one, "atlantis/plan", StatusState::Success).await;
        assert_eq!(github.number(), one, "the same number on both hosts, and they do not meet");
        // The refusal names pull requests as this host writes them.
        let two = second.open("two", ("main.tf", "# 3\n")).await;
        comment(ctx, &second, two, 0).await.is("plan", "failure").because("locked").has("!1 Change by one");
        let project = "atlantis/plan: ./default";
        status(ctx, &second, two, project, StatusState::Failure).await;
        assert_eq!(second.description(two, project).as_deref(), Some("Locked by !1"));
        let (_, page) = ctx.request("GET", "/", &[]).await;
        for words in ["waits for !1", "infra!2</a>", "infra#1</a>"] {
            assert!(page.contains(words), "{words}: {page}");
        }
        second.say(two, "ann", "atlantis plan").await;
        comment(ctx, &second, two, 1).await.is("plan", "failure").because("locked");
        second.say(one, "ann", "atlantis apply").await;
        comment(ctx, &second, one, 1).await.is("apply", "success");
        status(ctx, &second, one, "atlantis/apply", StatusState::Success).await;
        ctx.say(&github, "atlantis apply").await.is("apply", "success");
        assert_eq!(std::fs::read_to_string(ctx.tmp.join("applied")).unwrap(), "org/project 1\nacme 1\n");
        second.merge(one).await;
        comment(ctx, &second, one, 2).await.is_message("cleanup");
        // It waited for it.
        comment(ctx, &second, two, 2).await.is("plan", "success");
        assert_eq!(ctx.locks().await, ["acme/infra/./default/", "org/project/infra/./default/"]);
        second.close(two).await;
        comment(ctx, &second, two, 3).await.is_message("cleanup");
        assert_eq!(ctx.locks().await, ["acme/infra/./default/"]);
    });
}

#[test]
fn a_wrong_password_is_refused_and_guessing_is_slow() {
    let second = Second::new();
    run_test(both(&second), async |ctx| {
        connect(ctx, &second).await;
        let pull = second.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &second, pull, 0).await.is("plan", "success");
        let events = format!("{}/events", ctx.server.url());
        let body = format!(r#"{{"number":{pull},"comment":{{"id":999,"author":"eve","text":"atlantis apply"}}}}"#);
        let mut answers = Vec::new();
        for guess in 0..21 {
            answers.push(deliver(&events, "commented", &body, &guess.to_string()).await);
        }
        assert_eq!((answers[0], answers[20]), (401, 429));
        assert_eq!(deliver(&events, "commented", &body, PASSWORD).await, 429, "a good guess is told from no other");
        // Signed deliveries are handled all the same.
        let github = ctx.open_input("change", "2").await;
        ctx.next(&github).await.is("plan", "success");
        assert_eq!((second.comment_texts(pull).len(), ctx.lines("applied")), (1, 0));
    });
}

#[test]
fn missed_deliveries_are_found_on_both_hosts() {
    let second = Second::new();
    run_test(both(&second), async |ctx| {
        connect(ctx, &second).await;
        let pulls = [second.open("one", ("main.tf", "# 2\n")).await, second.open("two", ("other.tf", "# 2\n")).await];
        for pull in pulls {
            comment(ctx, &second, pull, 0).await;
        }
        let github = ctx.open_input("change", "2").await;
        ctx.next(&github).await.is("plan", "success");
        ctx.quiet().await;
        ctx.server.stop().await;
        second.deliver_to("");
        second.close(pulls[0]).await;
        second.say(pulls[1], "ann", "atlantis help").await;
        github.close().unwrap();
        ctx.server.start().await;
        second.deliver_to(&ctx.server.url());
        comment(ctx, &second, pulls[0], 1).await.is_message("cleanup");
        // It waited for the closed one, and is planned when the closing is found.
        ctx.until("both are told", async || second.comment_texts(pulls[1]).len() > 2).await;
        let said: Vec<Said> = second.comment_texts(pulls[1])[1..].iter().map(|body| Said::new(body)).collect();
        let (help, plan): (Vec<_>, Vec<_>) = said.iter().partition(|said| said.marker["message"] == "help");
        assert_eq!((help.len(), plan.len()), (1, 1), "{} {}", said[0].text, said[1].text);
        plan[0].is_replan("success");
        ctx.next(&github).await.is_message("cleanup");
        assert_eq!(ctx.locks().await, ["org/project/infra/./default/"]);
    });
}

#[test]
fn one_hosts_outage_leaves_the_other_alone() {
    let second = Second::new();
    run_test(both(&second), async |ctx| {
        connect(ctx, &second).await;
        let pull = second.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &second, pull, 0).await.is("plan", "success");
        let github = ctx.open_input("change", "2").await;
        ctx.next(&github).await.is("plan", "success");
        ctx.quiet().await;
        ctx.server.stop().await;
        second.goes_down(true);
        github.close().unwrap();
        ctx.server.start().await;
        second.deliver_to(&ctx.server.url());
        // A missed delivery of the host that answers is found.
        ctx.next(&github).await.is_message("cleanup");
        second.push(pull, ("main.tf", "# 3\n")).await;
        second.goes_down(false);
        comment(ctx, &second, pull, 1).await;
        assert!(ctx.locks().await.iter().all(|lock| !lock.starts_with("acme")), "{NAME}");
    });
}

#[test]
fn what_a_standby_takes_is_sealed_and_taken_up_by_the_leader() {
    let second = Second::new();
    run_test(both(&second).flags(&["--bucket=file://{own}/bucket"]), async |ctx| {
        connect(ctx, &second).await;
        let leader = ctx.server.beside_here(&ctx.own.join("data-2"));
        // It asks for the lead, and gets it; the first one accepts deliveries for it from now on.
        leader.start().await;
        ctx.server.role("standby").await;
        let pull = second.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &second, pull, 0).await.is("plan", "success");
        // The stored part of each delivery can be verified without the password, which is not in it.
        let intake = Intake::new(vec![second.joined().door]);
        let (headers, body) = (forge::headers("created", PASSWORD), format!(r#"{{"number":{pull}}}"#));
        let verified = intake.receive(&headers, body.as_bytes()).unwrap();
        let stored = intake.stored_headers(&headers, body.as_bytes(), verified.key());
        let names: Vec<&str> = stored.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["x-second-event", "tidelock-seal"]);
        assert_eq!(intake.open(&stored, body.as_bytes()).unwrap().identity(), verified.identity());
        assert_eq!(intake.open(&stored, b"{\"number\":2}").unwrap_err().status, 401);
        leader.stop().await;
        ctx.server.role("leading").await;
    });
}
