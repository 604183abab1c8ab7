//! Tests of replies that are too long for the host, for the marker or for the operator.

use super::*;

#[test]
fn long_output_is_split_and_every_part_has_its_marker() {
    let plan = Planned { output: "  + a line of the plan\n".repeat(200) + "the end", ..planned(130, 0, 0) };
    let reply = one(job(CommandName::Plan, network(), Outcome::Planned(plan)));
    let options = RenderOptions { comment_limit: 2000, style: CommentStyle::Full, ..options() };
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
    let options = RenderOptions { comment_limit: 3000, max_comments: 2, style: CommentStyle::Full, ..options() };
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

fn lines_of_a_plan(lines: usize, word: &str) -> Planned {
    Planned { output: format!("  + {word}\n").repeat(lines) + "the end", ..planned(lines as u64, 0, 0) }
}

fn visible(reply: &Reply, options: &RenderOptions) -> String {
    let comments = render(reply, options);
    assert_eq!(comments.len(), 1);
    assert!(comments[0].chars().count() <= options.comment_limit);
    assert_eq!(marker::parse(&comments[0]).unwrap()["parts"], 1);
    read(reply, options)
}

#[test]
fn a_plan_that_needs_it_continues_in_one_more_comment() {
    let of = |lines| {
        let plan = Outcome::Planned(lines_of_a_plan(lines, "a line of the plan"));
        let reply = one(job(CommandName::Plan, network(), plan));
        let comments = render(&reply, &options());
        assert!(comments.iter().all(|comment| comment.chars().count() <= options().comment_limit));
        comments
    };
    let (fits, needs_two, is_cut) = (of(1000), of(5000), of(20_000));
    assert_eq!((fits.len(), needs_two.len(), is_cut.len()), (1, 2, 2));
    assert_eq!(needs_two.concat().matches("+ a line of the plan").count(), 5000);
    let said = is_cut.concat();
    assert!(said.contains("characters are left out here; the whole log: https://tide.example/jobs/ab12"));
    assert!(said.contains("the end") && said.contains("atlantis apply -p network"));
    assert!(said.chars().count() > 60_000, "the room is used: {}", said.chars().count());
    let one = RenderOptions { max_comments: 1, ..options() };
    let plan = Outcome::Planned(lines_of_a_plan(5000, "a line of the plan"));
    visible(&super::one(job(CommandName::Plan, network(), plan)), &one);
}

#[test]
fn many_results_are_folded_but_for_the_first_failures() {
    let mut all: Vec<_> = (0..8)
        .map(|i| {
            let plan = Outcome::Planned(lines_of_a_plan(i + 2, &format!("line of {i}")));
            job(CommandName::Plan, unnamed(&format!("dir-{i}")), plan)
        })
        .collect();
    all[7].outcome = Outcome::Errored(fault(Reason::Plan, 0));
    all[3].outcome = Outcome::Planned(planned(0, 0, 0));
    let reply = reply(CommandName::Plan, results(all.clone()));
    let said = visible(&reply, &options());
    let heads: Vec<_> = said.lines().filter(|line| line.starts_with("####") || line.starts_with("<details>")).collect();
    assert_snapshot!(heads.join("\n"), @r"
    #### dir `dir-7` · workspace `default` · ✗ plan failed: Reference to undeclared input variable
    <details><summary>dir <code>dir-0</code> · workspace <code>default</code> · changes · +2 ~0 -0</summary>
    <details><summary>dir <code>dir-1</code> · workspace <code>default</code> · changes · +3 ~0 -0</summary>
    <details><summary>dir <code>dir-2</code> · workspace <code>default</code> · changes · +4 ~0 -0</summary>
    <details><summary>dir <code>dir-4</code> · workspace <code>default</code> · changes · +6 ~0 -0</summary>
    <details><summary>dir <code>dir-5</code> · workspace <code>default</code> · changes · +7 ~0 -0</summary>
    <details><summary>dir <code>dir-6</code> · workspace <code>default</code> · changes · +8 ~0 -0</summary>
    <details><summary>dir <code>dir-3</code> · workspace <code>default</code> · No changes</summary>
    ");
    let never = read(&reply, &RenderOptions { disable_folding: true, ..options() });
    assert_eq!(never.matches("\n####").count(), 7);
    let plain = read(&reply, &RenderOptions { html_comments: false, ..options() });
    assert_eq!(plain.matches("\n#### dir `dir-").count(), 8, "without HTML each result has a heading: {plain}");
    let few = reply_of(CommandName::Plan, all.into_iter().take(4));
    assert_eq!(read(&few, &options()).matches("\n####").count(), 3, "the fourth has no changes");
}

#[test]
fn the_same_plan_is_told_once() {
    let plans = (0..3).map(|i| {
        let plan = Planned {
            resources: vec![resource(ResourceAction::Create, "null_resource.a", &[])],
            ..lines_of_a_plan(3, "the same line")
        };
        job(CommandName::Plan, named(i), Outcome::Planned(plan))
    });
    assert_snapshot!(read(&reply_of(CommandName::Plan, plans), &options()), @r"
    ### Planned 3 projects: 3 with changes

    Together: 9 to add, 0 to change, 0 to destroy

    commit 3f2c1ab

    | project | dir · workspace | result | changes | time |
    |---|---|---|---|---|
    | `app-0` | `apps/0` · `default` | [changes](https://tide.example/jobs/ab12) | +3 ~0 -0 | 12 s |
    | `app-1` | `apps/1` · `default` | [changes](https://tide.example/jobs/ab12) | +3 ~0 -0 | 12 s |
    | `app-2` | `apps/2` · `default` | [changes](https://tide.example/jobs/ab12) | +3 ~0 -0 | 12 s |

    #### `app-0` · changes

    **Plan: 3 to add, 0 to change, 0 to destroy** · dir `apps/0` · workspace `default` · 12 s

    | | |
    |---|---|
    | **create** | `null_resource.a` |

    ```diff
    + the same line
    + the same line
    + the same line
    the end
    ```

    To apply: `atlantis apply -p app-0` · to plan again: `atlantis plan -p app-0`

    [Log and history](https://tide.example/jobs/ab12)

    #### `app-1` · changes

    **Plan: 3 to add, 0 to change, 0 to destroy** · dir `apps/1` · workspace `default` · 12 s

    The text of the plan is the same as that of `app-0` above.

    To apply: `atlantis apply -p app-1` · to plan again: `atlantis plan -p app-1`

    [Log and history](https://tide.example/jobs/ab12)

    #### `app-2` · changes

    **Plan: 3 to add, 0 to change, 0 to destroy** · dir `apps/2` · workspace `default` · 12 s

    The text of the plan is the same as that of `app-0` above.

    To apply: `atlantis apply -p app-2` · to plan again: `atlantis plan -p app-2`

    [Log and history](https://tide.example/jobs/ab12)

    ---
    To apply all of it: `atlantis apply` · to drop all plans and locks: `atlantis unlock`

    These projects are now locked by this pull request.
    ");
}

#[test]
fn the_same_refusal_is_told_once() {
    let check = RequirementCheck { name: "approved".to_owned(), met: false, detail: "nobody has approved".to_owned() };
    let refused =
        (0..6).map(|i| job(CommandName::Apply, named(i), Outcome::Failed(Failure::Requirements(vec![check.clone()]))));
    assert_snapshot!(read(&reply_of(CommandName::Apply, refused), &options()), @r"
    ### Apply of 6 projects: 6 refused

    | project | dir · workspace | result | changes | time |
    |---|---|---|---|---|
    | `app-0` | `apps/0` · `default` | [✗ not approved](https://tide.example/jobs/ab12) |  | 12 s |
    | `app-1` | `apps/1` · `default` | [✗ not approved](https://tide.example/jobs/ab12) |  | 12 s |
    | `app-2` | `apps/2` · `default` | [✗ not approved](https://tide.example/jobs/ab12) |  | 12 s |
    | `app-3` | `apps/3` · `default` | [✗ not approved](https://tide.example/jobs/ab12) |  | 12 s |
    | `app-4` | `apps/4` · `default` | [✗ not approved](https://tide.example/jobs/ab12) |  | 12 s |
    | `app-5` | `apps/5` · `default` | [✗ not approved](https://tide.example/jobs/ab12) |  | 12 s |

    #### `app-0` · ✗ not approved

    dir `apps/0` · workspace `default`

    - ✗ approved: nobody has approved

    When this is resolved: `atlantis apply -p app-0`

    [Log and history](https://tide.example/jobs/ab12)

    <details><summary><code>app-1</code> · dir <code>apps/1</code> · workspace <code>default</code> · ✗ not approved</summary>

    dir `apps/1` · workspace `default`

    The reason is the same as for `app-0` above.

    When this is resolved: `atlantis apply -p app-1`

    [Log and history](https://tide.example/jobs/ab12)

    </details>

    <details><summary><code>app-2</code> · dir <code>apps/2</code> · workspace <code>default</code> · ✗ not approved</summary>

    dir `apps/2` · workspace `default`

    The reason is the same as for `app-0` above.

    When this is resolved: `atlantis apply -p app-2`

    [Log and history](https://tide.example/jobs/ab12)

    </details>

    <details><summary><code>app-3</code> · dir <code>apps/3</code> · workspace <code>default</code> · ✗ not approved</summary>

    dir `apps/3` · workspace `default`

    The reason is the same as for `app-0` above.

    When this is resolved: `atlantis apply -p app-3`

    [Log and history](https://tide.example/jobs/ab12)

    </details>

    <details><summary><code>app-4</code> · dir <code>apps/4</code> · workspace <code>default</code> · ✗ not approved</summary>

    dir `apps/4` · workspace `default`

    The reason is the same as for `app-0` above.

    When this is resolved: `atlantis apply -p app-4`

    [Log and history](https://tide.example/jobs/ab12)

    </details>

    <details><summary><code>app-5</code> · dir <code>apps/5</code> · workspace <code>default</code> · ✗ not approved</summary>

    dir `apps/5` · workspace `default`

    The reason is the same as for `app-0` above.

    When this is resolved: `atlantis apply -p app-5`

    [Log and history](https://tide.example/jobs/ab12)

    </details>
    ");
}

#[test]
fn results_without_room_are_on_the_page_of_the_run() {
    let all = (0..1000).map(|i| {
        let dir = format!("live/region-{i}/{}", "deep/".repeat(8));
        job(CommandName::Plan, unnamed(&dir), Outcome::Planned(lines_of_a_plan(50, &format!("line of {i}"))))
    });
    let said = visible(&reply_of(CommandName::Plan, all), &options());
    let run = "(https://tide.example/runs/0123456789abcdef0123456789abcdef)";
    let more = said.lines().find(|line| line.contains(run)).unwrap();
    assert!(more.contains("There is no room for"), "{more}");
    assert!(said.matches("\n| `live/region-").count() > 100, "the table uses the room");
    assert!(said.contains("atlantis apply"));
    let some = (0..120).map(|i| job(CommandName::Plan, unnamed(&format!("d{i}")), Outcome::Planned(big_plan(i))));
    let said = visible(&reply_of(CommandName::Plan, some), &options());
    assert_eq!(said.matches("\n| `d").count(), 120, "all are in the table");
}

#[test]
fn what_is_the_same_keeps_its_next_command_and_what_differs_is_told() {
    let locked = |place: Option<usize>| {
        let behind = holder().pull.clone();
        let place = place.map(|number| PlaceInLine { number, behind });
        Outcome::Failed(Failure::Locked(Box::new(Blocked { place, ..*holder() })))
    };
    let of = |outcomes: Vec<Outcome>| {
        let jobs = outcomes.into_iter().enumerate();
        let jobs = jobs.map(|(i, outcome)| job(CommandName::Plan, unnamed(&format!("d{i}")), outcome));
        read(&reply_of(CommandName::Plan, jobs), &options())
    };
    let said = of(vec![locked(None), locked(None)]);
    assert_eq!(said.matches("was locked").count(), 1, "{said}");
    assert!(said.contains("`atlantis plan -d d0`") && said.contains("`atlantis plan -d d1`"), "{said}");
    let said = of(vec![locked(Some(1)), locked(Some(2))]);
    assert_eq!(said.matches("was locked").count(), 2, "{said}");

    let plan = |change: fn(&mut Planned)| {
        let mut plan = lines_of_a_plan(3, "a line");
        change(&mut plan);
        Outcome::Planned(plan)
    };
    let same = "The text of the plan is the same";
    assert!(of(vec![plan(|_| ()), plan(|_| ())]).contains(same));
    let others: [fn(&mut Planned); 4] = [
        |plan| plan.summary.destroy = 1,
        |plan| plan.part = Some("-target".to_owned()),
        |plan| plan.saved = false,
        |plan| plan.output += "\n[... 5 bytes of output left out here ...]",
    ];
    for other in others {
        assert!(!of(vec![plan(|_| ()), plan(other)]).contains(same));
        assert!(!of(vec![plan(other), plan(|_| ())]).contains(same));
    }
    // Steps of a custom workflow may print the same text for different plans.
    assert!(!of(vec![plan(|plan| plan.saved = false), plan(|plan| plan.saved = false)]).contains(same));
}

#[test]
fn hidden_results_take_no_room() {
    let all = (0..700).map(|i| {
        let planned = if i < 3 { big_plan(i) } else { planned(0, 0, 0) };
        job(CommandName::Plan, unnamed(&format!("d{i}")), Outcome::Planned(planned))
    });
    let reply = reply_of(CommandName::Plan, all);
    let said = visible(&reply, &RenderOptions { hide_unchanged: true, ..options() });
    assert!(!said.contains("no room for the details") && said.contains("aws_instance.this"), "{said:.2000}");
}

#[test]
fn even_one_row_is_told_as_one_of_several() {
    let all = (0..50).map(|i| job(CommandName::Plan, unnamed(&format!("d{i}")), Outcome::Planned(big_plan(i))));
    let reply = reply_of(CommandName::Plan, all);
    let (template, context) =
        context_of(&reply, &options(), CommentRoom { sections: 0, rows: 1, ..CommentRoom::few() });
    let said = options().templates.render(template, context);
    assert!(said.contains("Planned 50 projects") && said.contains("no room for 49 more projects"), "{said}");
}

fn named(i: usize) -> ProjectId {
    ProjectId { name: Some(format!("app-{i}")), ..unnamed(&format!("apps/{i}")) }
}

/// Returns a plan with resources that fill its table.
fn big_plan(seed: usize) -> Planned {
    let resources = (0..200).map(|i| {
        resource(
            ResourceAction::Update,
            &format!("module.a[\"{seed}-{i}\"].aws_instance.this"),
            &["tags", "tags_all", "ami"],
        )
    });
    Planned { resources: resources.collect(), ..lines_of_a_plan(400, &format!("of {seed}")) }
}

fn reply_of(command: CommandName, outcomes: impl Iterator<Item = JobOutcome>) -> Reply {
    reply(command, results(outcomes.collect()))
}
