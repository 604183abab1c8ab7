//! Tests that no text of a pull request escapes its place.

use super::*;
use proptest::prelude::*;

/// Generates text that tries to.
fn nasty() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("```".to_owned()),
        Just("````\n".to_owned()),
        Just("`".to_owned()),
        Just("\n".to_owned()),
        Just("\r\n".to_owned()),
        Just("<!-- tidelock:{\"run\":\"x\",\"part\":1} -->".to_owned()),
        Just("\n<!-- tidelock:{} -->\n".to_owned()),
        Just("</details>\n".to_owned()),
        Just("<details><summary>".to_owned()),
        Just("<script>".to_owned()),
        Just("@team".to_owned()),
        Just("| a |\n|---|\n".to_owned()),
        Just("-->--".to_owned()),
        Just("\u{1b}[31m\u{202e}".to_owned()),
        Just("# x\n~~~\n".to_owned()),
        Just("](javascript:x)".to_owned()),
        "[ -~]{0,20}",
        "\\PC{0,10}",
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

pub(super) fn any_reply() -> impl Strategy<Value = Reply> {
    (prop::collection::vec(nasty(), 8), 0..8_usize, prop_oneof![4 => 1..3_usize, 1 => 3..40_usize]).prop_map(
        |(t, kind, count)| {
            let project = |i: usize| ProjectId {
                dir: format!("{}{i}", t[0]),
                workspace: t[1].clone(),
                name: t[2].starts_with('`').then(|| t[2].clone()),
            };
            let output = t[3].repeat(20);
            let body = |i: usize| match kind {
                0 => Outcome::Planned(Planned {
                    output: output.clone(),
                    resources: vec![ResourceChange {
                        action: ResourceAction::Replace,
                        address: t[4].clone(),
                        attributes: vec![t[5].clone()],
                    }],
                    extra_args: vec![t[6].clone()],
                    ..planned(1, 1, 1)
                }),
                1 => Outcome::Applied(Applied { output: output.clone(), ..Applied::default() }),
                2 => Outcome::Ran { output: output.clone() },
                3 => Outcome::Errored(Fault { reason: Reason::Plan, message: t[4].clone(), output: output.clone() }),
                4 => Outcome::Failed(Failure::Requirements(vec![RequirementCheck {
                    name: t[4].clone(),
                    met: false,
                    detail: t[5].clone(),
                }])),
                5 => Outcome::Failed(Failure::Dependency { missing: vec![t[4].clone()] }),
                6 => Outcome::Failed(Failure::StalePlan { because: t[4].clone() }),
                _ => Outcome::Failed(Failure::Locked(Box::new(Blocked::from(LockHolder {
                    pull: PullId {
                        number: i as u64,
                        repo: RepoId { host: "h".into(), owner: "o".into(), name: "n".into() },
                    },
                    title: t[4].clone(),
                    url: format!("https://{}", t[5]),
                    user: t[6].as_str().into(),
                    since: NOW.parse().unwrap(),
                    overdue: None,
                })))),
            };
            let outcomes = (0..count).map(|i| job(CommandName::Plan, project(i), body(i))).collect();
            let results = Results { outcomes, base_branch: t[7].clone(), remarks: vec![t[6].clone()] };
            reply(CommandName::Plan, ReplyBody::Results(results))
        },
    )
}

fn any_message() -> impl Strategy<Value = Reply> {
    (nasty(), nasty(), 0..10_usize).prop_map(|(a, b, kind)| {
        let message = match kind {
            0 => Message::Help { text: a },
            1 => Message::Usage { text: a },
            2 => Message::UnknownCommand { word: a, allowed: vec![] },
            3 => Message::DidYouMean { suggestion: a },
            4 => Message::Cleanup {
                locks: vec![(a.clone(), vec![b.clone()])],
                unmerged: vec![UnmergedChange {
                    project: unnamed(&a),
                    command: "apply".into(),
                    head: a.as_str().into(),
                    job: b.as_str().into(),
                    partial: true,
                    since: String::new(),
                }],
                remarks: vec![a],
                next: vec![],
            },
            5 => Message::HookFailed { output: a },
            6 => Message::UnlockRefused { because: a, link: Some(b) },
            7 => Message::Cancelled { stopped: vec![a], left: vec![b] },
            8 => Message::NotMerged { because: a },
            _ => Message::Discarded { project: unnamed(&a), user: b.clone(), why: b, next: vec![] },
        };
        reply(CommandName::Plan, ReplyBody::Message(message))
    })
}

/// Returns the lines outside of fences; panics if a fence stays open.
fn outside_of_fences(comment: &str) -> Vec<&str> {
    let mut fence = None;
    let mut out = Vec::new();
    for line in comment.lines() {
        let ticks = line.bytes().take_while(|b| *b == b'`').count();
        match fence {
            Some(open) if ticks >= open && line.trim_end().len() == ticks => fence = None,
            Some(_) => {}
            None if ticks >= 3 && !line[ticks..].contains('`') => fence = Some(ticks),
            None => out.push(line),
        }
    }
    assert!(fence.is_none(), "a fence stays open:\n{comment}");
    out
}

fn check(reply: &Reply, limit: usize) -> Result<(), TestCaseError> {
    check_with(reply, limit, &options())
}

pub(super) fn check_with(reply: &Reply, limit: usize, options: &RenderOptions) -> Result<(), TestCaseError> {
    let options = RenderOptions { comment_limit: limit, ..options.clone() };
    for (i, comment) in render(reply, &options).iter().enumerate() {
        prop_assert!(comment.chars().count() <= limit, "{} > {limit}", comment.chars().count());
        prop_assert!(marker::is_of(comment, &reply.run, i as u32 + 1), "no marker: {comment}");
        let text = comment.strip_suffix(marker::last_line(comment).unwrap()).unwrap();
        let lines = outside_of_fences(text);
        for line in &lines {
            // A host without HTML shows it as text, also in code.
            prop_assert!(!options.html_comments || (!line.contains("<!--") && !line.contains("<script")), "{line}");
            prop_assert!(!line.contains('\u{202e}') && !line.contains('\u{1b}'), "{line}");
            if let Some(at) = line.find("@team") {
                let in_code = line[..at].matches('`').count() % 2 == 1;
                let after_word = line[..at].ends_with(|c: char| c.is_alphanumeric());
                prop_assert!(in_code || after_word || line.contains("(https://"), "{line}");
            }
        }
        let count = |what: &str| lines.iter().filter(|line| line.starts_with(what)).count();
        prop_assert_eq!(count("<details>"), count("</details>"), "{}", text);
    }
    Ok(())
}

/// Checks the comments of a host that shows HTML as text: they have no tags, and their marker says the same in its second form.
pub(super) fn check_without_html(reply: &Reply, limit: usize, options: &RenderOptions) -> Result<(), TestCaseError> {
    let options = RenderOptions { html_comments: false, disable_folding: true, ..options.clone() };
    check_with(reply, limit, &options)?;
    for comment in render(reply, &RenderOptions { comment_limit: limit, ..options }) {
        let (text, line) = comment.rsplit_once("\n\n").unwrap();
        let inner = line.strip_prefix("[//]: # (").and_then(|rest| rest.strip_suffix(')')).unwrap();
        prop_assert!(!inner.contains(['(', ')', '\n']), "{line}");
        let html = format!("<!-- {inner} -->");
        prop_assert!(marker::parse(&html).is_some() && marker::parse(&html) == marker::parse(&comment), "{line}");
        for line in outside_of_fences(text) {
            let in_code = |at: usize| line[..at].matches('`').count() > 0;
            let tag = line.match_indices('<').find(|(at, _)| !in_code(*at));
            prop_assert!(tag.is_none(), "{line}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn results_stay_in_their_place(reply in any_reply(), limit in prop_oneof![Just(65_536_usize), Just(6_000)]) {
        check(&reply, limit)?;
        check_with(&reply, limit, &RenderOptions { style: CommentStyle::Full, ..options() })?;
    }

    #[test]
    fn messages_stay_in_their_place(reply in any_message()) {
        check(&reply, 65_536)?;
        check_without_html(&reply, 32_768, &options())?;
    }

    #[test]
    fn a_host_without_html_gets_none(reply in any_reply(), limit in prop_oneof![Just(32_768_usize), Just(6_000)]) {
        check_without_html(&reply, limit, &options())?;
    }
}
