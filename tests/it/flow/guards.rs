//! The story of a guard, on every host: only the person whom it names overrides it.

use super::{APPLY, FlowHost, Reader};
use crate::support::*;
use regex::Regex;

/// Returns the key of a guard that every plan without a file trips, and that this person may override.
pub(super) fn guarded(who: &str) -> String {
    format!("guards: [{{name: few, max_destroys: 5, override: [{}]}}]", serde_json::Value::from(who))
}

pub(super) async fn a_guard_is_overridden_by_whom_it_names<H: FlowHost>(ctx: &Ctx, host: &H) {
    const OVERRIDE: &str = "atlantis apply --override few -m 'the move of May'";
    let mut pull = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    pull.next().await.is("plan", "success").has("Guard `few` refuses an apply").has("leaves no plan file");
    pull.say("atlantis apply").await.is("apply", "failure").because("requirement").has("guard few");
    let refused = pull.say(OVERRIDE).await;
    refused.is("apply", "failure").has("may not override it: only nobody may override it");
    assert_eq!(ctx.lines("applied"), 0);
    // Hosts without login names show one before the name that rules use.
    let said = Regex::new(r"guard few: (?:.*\()?([^()\s]+)\)? may not override it").unwrap();
    let login = said.captures(&refused.text).unwrap_or_else(|| panic!("{}", refused.text))[1].to_owned();
    ctx.quiet().await;
    ctx.server.stop().await;
    host.hear(ctx, false);
    ctx.rewrite_repos_yaml(&workflow(&guarded(&format!("user:{login}")), &[PLANNED], &[APPLY]));
    ctx.server.start().await;
    host.hear(ctx, true);
    pull.say(OVERRIDE).await.is("apply", "success").has("overrode the guard `few` (reason: the move of May)");
    assert_eq!(ctx.lines("applied"), 1);
}
