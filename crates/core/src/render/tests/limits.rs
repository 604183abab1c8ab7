//! Tests of replies that are too long for the host, for the marker or for the operator.

use super::*;

#[test]
fn long_output_is_split_and_every_part_has_its_marker() {
    let plan = Planned { output: "  + a line of the plan\n".repeat(200) + "the end", ..planned(130, 0, 0) };
    let reply = one(job(CommandName::Plan, network(), Outcome::Planned(plan)));
    let options = RenderOptions { comment_limit: 2000, ..options() };
    let comments = render(&reply, &options);
    assert!(comments.len() > 2);
    for (i, comment) in comments.iter().enumerate() {
        assert!(comment.chars().count() <= 2000);
        let marker = marker::parse(comment).unwrap();
        assert_eq!(
            (marker["part"].as_u64(), marker["parts"].as_u64()),
            (Some(i as u64 + 1), Some(comments.len() as u64))
        );
    }
    assert_eq!(comments.concat().matches("+ a line of the plan").count(), 200);
    assert!(comments.concat().contains("the end"));
    assert!(comments.concat().contains("`atlantis apply -p network`"));
}

#[test]
fn a_cap_on_comments_leaves_out_the_middle_of_the_output() {
    let plan = Planned { output: "  + a line of the plan\n".repeat(2000) + "the end", ..planned(130, 0, 0) };
    let reply = one(job(CommandName::Plan, network(), Outcome::Planned(plan)));
    let options = RenderOptions { comment_limit: 3000, max_comments: 2, ..options() };
    let comments = render(&reply, &options);
    assert_eq!(comments.len(), 2);
    let said = comments.concat();
    assert!(said.contains("characters are left out here; the whole log: https://tide.example/jobs/ab12"));
    assert!(said.contains("the end") && said.contains("`atlantis apply -p network`"));
}

#[test]
fn a_comment_that_the_host_refuses_as_too_long_is_cut() {
    let plan = Planned { output: "  + a line of the plan\n".repeat(500), ..planned(1, 0, 0) };
    let comment = render(&one(job(CommandName::Plan, network(), Outcome::Planned(plan))), &options()).remove(0);
    let short = shortened(&comment, 4000);
    assert!(short.chars().count() < 4000);
    assert!(short.contains("The host refused the whole of it as too long"));
    assert_eq!(marker::last_line(&short), marker::last_line(&comment));
}

#[test]
fn results_that_do_not_fit_the_marker_are_cut() {
    let many =
        (0..100).map(|i| job(CommandName::Plan, unnamed(&format!("dir-{i}")), Outcome::Planned(planned(1, 0, 0))));
    let reply = reply(CommandName::Plan, results(many.collect()));
    let line = marker_of(&reply);
    assert!(line.len() <= marker::MAX_MARKER, "{}", line.len());
    let marker = marker::parse(&line).unwrap();
    assert_eq!(marker["truncated"], true);
    assert!(marker["results"].as_array().unwrap().len() > 20);
}
