//! The stories that every host plays.

pub(super) use super::guards::a_guard_is_overridden_by_whom_it_names;
use super::{FlowHost, Reader};
use crate::support::*;

pub(super) async fn from_autoplan_to_merge<H: FlowHost>(ctx: &Ctx, host: &H) {
    let mut one = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    one.next().await.is("plan", "success");
    one.succeeds("atlantis/plan").await;
    let mut two = Reader::open(ctx, host, "two", ("other.tf", "# 3\n")).await;
    let holder = format!("{}{}", H::MARK, one.number);
    two.next().await.is("plan", "failure").because("locked").has(&holder);
    two.say("atlantis plan").await.is("plan", "failure").because("locked");
    one.say("atlantis apply").await.is("apply", "success");
    one.succeeds("atlantis/apply").await;
    assert_eq!(ctx.locks().await, [format!("{}/./default/", host.full_name())]);
    let applied = std::fs::read_to_string(ctx.tmp.join("applied")).unwrap();
    assert_eq!(applied, format!("{} {}\n", host.full_name(), one.number));
    host.merge_one(ctx, one.number).await;
    one.next().await.is_message("cleanup");
    // It waited for it.
    two.next().await.is("plan", "success");
    two.say("atlantis unlock").await;
    assert!(ctx.locks().await.is_empty());
    two.say("atlantis plan").await.is("plan", "success");
    host.close_one(ctx, two.number).await;
    two.next().await.is_message("cleanup");
    assert!(ctx.locks().await.is_empty());
}

pub(super) async fn only_a_moved_head_is_planned<H: FlowHost>(ctx: &Ctx, host: &H) {
    let mut pull = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    pull.next().await.is("plan", "success");
    host.touch(ctx, pull.number).await;
    host.push_to(ctx, pull.number, ("main.tf", "# 3\n")).await;
    pull.next().await.is("plan", "success");
    host.touch(ctx, pull.number).await;
    ctx.quiet().await;
    assert_eq!(pull.count(), 2);
}

pub(super) async fn missed_deliveries_are_found<H: FlowHost>(ctx: &Ctx, host: &H) {
    let mut closed = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    closed.next().await.is("plan", "success");
    let mut asked = Reader::open(ctx, host, "two", ("other.tf", "# 2\n")).await;
    asked.next().await;
    ctx.quiet().await;
    ctx.server.stop().await;
    host.hear(ctx, false);
    host.close_one(ctx, closed.number).await;
    host.comment_on(ctx, asked.number, "atlantis help").await;
    ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
    ctx.server.start().await;
    host.hear(ctx, true);
    closed.next().await.is_message("cleanup");
    // It is answered, and gets its turn, as it waited for the closed one.
    let mut kinds = [asked.next().await, asked.next().await].map(|said| said.marker["command"].to_string());
    kinds.sort();
    assert_eq!(kinds, ["\"plan\"", "null"]);
}

pub(super) async fn a_redelivery_is_known<H: FlowHost>(ctx: &Ctx, host: &H) {
    let mut pull = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    pull.next().await.is("plan", "success");
    pull.say("atlantis apply").await.is("apply", "success");
    ctx.quiet().await;
    host.redeliver_last(ctx).await;
    ctx.quiet().await;
    assert_eq!((pull.count(), ctx.lines("applied")), (2, 1));
}

pub(super) async fn an_approval_is_anothers_of_this_head_and_nobody_objects<H: FlowHost>(ctx: &Ctx, host: &H) {
    let mut pull = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    pull.next().await.is("plan", "success");
    host.approve_as_author(ctx, pull.number).await;
    pull.say("atlantis apply").await.is("apply", "failure").because("requirement").has("0 of 1 review");
    host.vote_on(ctx, pull.number, "bob", true).await;
    host.vote_on(ctx, pull.number, "carol", false).await;
    let refused = pull.say("atlantis apply").await;
    refused.is("apply", "failure").has("carol").has("requested changes");
    host.vote_on(ctx, pull.number, "carol", true).await;
    host.push_to(ctx, pull.number, ("main.tf", "# 3\n")).await;
    pull.next().await.is("plan", "success");
    pull.say("atlantis apply").await.is("apply", "failure").because("requirement");
    assert_eq!(ctx.lines("applied"), 0);
    host.vote_on(ctx, pull.number, "bob", true).await;
    pull.say("atlantis apply").await.is("apply", "success");
}

/// Where the host keeps approvals, the plan that they are of stays as well.
pub(super) async fn approvals_are_discarded_or_nothing_is_planned<H: FlowHost>(ctx: &Ctx, host: &H) {
    let Some(reason) = H::APPROVALS_STAND else { return approvals_are_discarded(ctx, host).await };
    let mut pull = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    pull.next().await.is("plan", "success");
    host.vote_on(ctx, pull.number, "bob", true).await;
    let refused = pull.say("atlantis plan").await;
    refused.because("requirement").has("could not dismiss the approvals").has(reason).has("`atlantis plan`");
    pull.say("atlantis apply").await.is("apply", "success");
}

pub(super) async fn approvals_are_discarded<H: FlowHost>(ctx: &Ctx, host: &H) {
    let mut pull = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    pull.next().await.is("plan", "success");
    host.vote_on(ctx, pull.number, "bob", true).await;
    pull.say("atlantis plan").await.is("plan", "success");
    pull.say("atlantis apply").await.is("apply", "failure").because("requirement").has("0 of 1 review");
    host.vote_on(ctx, pull.number, "bob", true).await;
    pull.say("atlantis apply").await.is("apply", "success");
}

pub(super) async fn it_is_merged_once_all_is_applied<H: FlowHost>(ctx: &Ctx, host: &H) {
    let mut pull = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    pull.next().await.is("plan", "success");
    pull.say("atlantis apply").await.is("apply", "success");
    let words = "Automatically merging because all plans have been successfully applied.";
    pull.next().await.is_message("automerge").has(words);
    pull.next().await.is_message("cleanup");
    pull.succeeds("atlantis/apply").await;
    assert!(host.is_merged(ctx, pull.number) && ctx.locks().await.is_empty());
    // The host reports the merge before it is asked for the branch's deletion.
    ctx.until("its branch is deleted", async || !host.has_branch(ctx, "one").await).await;
    assert!(host.has_branch(ctx, "main").await);
    host.redeliver_last(ctx).await;
    ctx.quiet().await;
    assert_eq!((pull.count(), ctx.lines("applied")), (4, 1));
    let mut kept = Reader::open(ctx, host, "two", ("main.tf", "# 3\n")).await;
    kept.next().await.is("plan", "success");
    kept.say("atlantis apply --auto-merge-disabled").await.is("apply", "success");
    ctx.quiet().await;
    assert!(!host.is_merged(ctx, kept.number) && kept.count() == 2);
}

pub(super) async fn a_merge_that_the_host_refuses_is_told<H: FlowHost>(ctx: &Ctx, host: &H) {
    let mut pull = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    pull.next().await.is("plan", "success");
    let reason = host.refuse_merge(ctx, pull.number);
    pull.say("atlantis apply").await.is("apply", "success");
    pull.next().await.is_message("automerge").has("Automatically merging");
    let number = format!("You can also merge {}{} on the host", H::MARK, pull.number);
    pull.next().await.is_message("automerge").has("Automerging failed").has(reason).has(&number);
    ctx.quiet().await;
    assert!(!host.is_merged(ctx, pull.number) && pull.count() == 4);
    assert_eq!(ctx.locks().await, [format!("{}/./default/", host.full_name())], "until somebody merges it");
}

pub(super) async fn a_forged_delivery_is_refused<H: FlowHost>(ctx: &Ctx, host: &H) {
    let mut pull = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    pull.next().await.is("plan", "success");
    pull.say("atlantis plan").await.is("plan", "success");
    ctx.quiet().await;
    assert_eq!(host.forged(ctx, "atlantis plan", "atlantis apply").await, 401);
    ctx.quiet().await;
    assert_eq!((pull.count(), ctx.lines("applied")), (2, 0), "nothing of it is taken in");
    let mut last = 401;
    for _ in 0..20 {
        last = host.forged(ctx, "atlantis plan", "atlantis apply").await;
    }
    assert_eq!(last, 429, "guessing is throttled");
    if !H::CAN_BE_GUESSED {
        // Requests with the secret are not shut out.
        pull.say("atlantis apply").await.is("apply", "success");
    }
}

pub(super) async fn an_approval_applies_what_it_saw<H: FlowHost>(ctx: &Ctx, host: &H) {
    let mut pull = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    pull.next().await.is("plan", "success").has("To be applied automatically when somebody approves");
    host.approve_as_author(ctx, pull.number).await;
    host.vote_on(ctx, pull.number, "carol", false).await;
    host.vote_on(ctx, pull.number, "bob", true).await;
    ctx.quiet().await;
    assert_eq!((pull.count(), ctx.lines("applied")), (1, 0), "carol objects");
    host.vote_on(ctx, pull.number, "carol", true).await;
    pull.next().await.is("apply", "success").has("Applied automatically");
    pull.succeeds("atlantis/apply").await;
    ctx.quiet().await;
    host.redeliver_last(ctx).await;
    ctx.quiet().await;
    assert_eq!((pull.count(), ctx.lines("applied")), (2, 1));
    host.push_to(ctx, pull.number, ("main.tf", "# 3\n")).await;
    pull.next().await.is("plan", "success");
    ctx.quiet().await;
    assert_eq!(ctx.lines("applied"), 1, "they approved an earlier head");
    // Not every host lets a person approve twice.
    host.vote_on(ctx, pull.number, "bob", false).await;
    host.vote_on(ctx, pull.number, "bob", true).await;
    pull.next().await.is("apply", "success");
}

pub(super) async fn a_missed_approval_is_found<H: FlowHost>(ctx: &Ctx, host: &H) {
    let mut pull = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    pull.next().await.is("plan", "success");
    ctx.quiet().await;
    ctx.server.stop().await;
    host.hear(ctx, false);
    host.vote_on(ctx, pull.number, "bob", true).await;
    ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
    ctx.server.start().await;
    host.hear(ctx, true);
    pull.next().await.is("apply", "success");
    assert_eq!(ctx.lines("applied"), 1);
}
