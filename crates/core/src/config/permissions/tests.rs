use super::*;
use proptest::prelude::*;

fn texts(rules: &[&str]) -> Vec<String> {
    rules.iter().map(|rule| (*rule).to_owned()).collect()
}

fn allowed(users: &[&str], teams: &[&str]) -> Allowed {
    Allowed { users: texts(users), teams: texts(teams) }
}

fn project(dir: &str, workspace: &str) -> ProjectId {
    ProjectId { dir: dir.into(), workspace: workspace.into(), name: None }
}

fn memberships(teams: &[(&str, bool)]) -> HashMap<String, bool> {
    teams.iter().map(|(team, member)| ((*team).to_owned(), *member)).collect()
}

fn may(list: &Allowed, person: &str, command: CommandName, dir: &str, workspace: &str, teams: &[(&str, bool)]) -> bool {
    let project = project(dir, workspace);
    let act = Act { command, project: Some(&project) };
    Permissions::default().with("x", list).decide(person, act, &memberships(teams)) == Permitted::Allowed
}

#[test]
fn a_rule_names_who_with_which_command_where() {
    use CommandName::{Apply, ForceUnlock, Plan, StateRm};
    let list = allowed(
        &["root", "*:plan", "alice:apply:conf/payments", "bob:apply:conf/**:dev*", "cid:state:*:prod"],
        &["sre:apply", "acme/ops:force-unlock"],
    );
    for (person, command, dir, workspace, teams, expected) in [
        ("Root", Apply, "conf/x", "prod", &[][..], true),
        ("anybody", Plan, "conf/x", "prod", &[], true),
        ("", Plan, "conf/x", "prod", &[], true),
        ("alice", Apply, "conf/payments", "prod", &[], true),
        ("alice", Apply, "conf/payments/sub", "prod", &[("sre", false)], false),
        ("alice", Apply, "conf/other", "prod", &[("sre", false)], false),
        ("bob", Apply, "conf/a/b", "dev-1", &[], true),
        ("bob", Apply, "conf/a/b", "prod", &[("sre", false)], false),
        ("cid", StateRm, "anywhere/at/all", "prod", &[], true),
        ("cid", StateRm, ".", "dev", &[], false),
        ("dan", Apply, ".", "prod", &[("sre", true)], true),
        ("dan", Apply, ".", "prod", &[("sre", false)], false),
        ("", Apply, ".", "prod", &[], false),
        ("dan", ForceUnlock, ".", "prod", &[("acme/ops", true)], true),
    ] {
        assert_eq!(
            may(&list, person, command, dir, workspace, teams),
            expected,
            "{person} {command:?} {dir} {workspace}"
        );
    }
}

#[test]
fn an_account_id_may_have_a_colon() {
    let id = "712020:5F0C2A1E-0a1b-4c2d-8e3f-0123456789ab";
    let rules = [id.to_owned(), format!("{id}:plan"), format!("{id} : apply : conf/** : prod")];
    for (rule, act, dir, expected) in [
        (&rules[0], CommandName::Apply, "conf/x", true),
        (&rules[1], CommandName::Plan, "conf/x", true),
        (&rules[1], CommandName::Apply, "conf/x", false),
        (&rules[2], CommandName::Apply, "conf/x", true),
        (&rules[2], CommandName::Apply, "other", false),
    ] {
        assert_eq!(check(rule), Ok(()));
        let (permissions, project) = (Permissions::default().with("x", &allowed(&[rule], &[])), project(dir, "prod"));
        let decide = |who: &str| {
            permissions.decide(who, Act { command: act, project: Some(&project) }, &memberships(&[]))
                == Permitted::Allowed
        };
        assert_eq!(decide(&id.to_lowercase()), expected, "{rule}");
        assert!(!decide("712020") && !decide("5f0c2a1e-0a1b-4c2d-8e3f-0123456789ab"), "{rule}");
    }
    assert_eq!(check("{5f0c2a1e-0a1b-4c2d-8e3f-0123456789ab}:plan"), Ok(()));
    for wrong in
        ["712020:5f0c2a1e", "712020:5f0c2a1e-0a1b-4c2d-8e3f-0123456789ab:", ":5f0c2a1e-0a1b-4c2d-8e3f-0123456789ab"]
    {
        assert!(check(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_hatch_is_given_by_its_own_word_alone() {
    let list = allowed(&["*", "root", "alice:apply-force:conf/pay", "bob:freeze"], &["sre:apply-force"]);
    let permissions = Permissions::default().with("x", &list).with("y", &allowed(&["nobody:plan"], &[]));
    let (pay, net) = (project("conf/pay", "default"), project("conf/net", "default"));
    let told = memberships(&[("sre", false)]);
    let decide = |person: &str, hatch, project| permissions.decide_escape_hatch(person, hatch, project, &told);
    assert_eq!(decide("alice", EscapeHatch::ForceApply, Some(&pay)), Some(Permitted::Allowed));
    assert_eq!(decide("alice", EscapeHatch::ForceApply, None), Some(Permitted::Allowed));
    for (person, project) in [("alice", &net), ("root", &pay), ("bob", &pay)] {
        assert!(
            matches!(decide(person, EscapeHatch::ForceApply, Some(project)), Some(Permitted::Refused { .. })),
            "{person}"
        );
    }
    assert_eq!(decide("bob", EscapeHatch::Freeze, None), Some(Permitted::Allowed));
    assert_eq!(decide("root", EscapeHatch::Unfreeze, None), None, "no rule names it");
    assert_eq!(
        permissions.decide_escape_hatch("dan", EscapeHatch::ForceApply, None, &memberships(&[])),
        Some(Permitted::Ask("sre".into()))
    );
    // Other rules decide on apply: a hatch does not give the right to its command.
    let only = Permissions::default().with("x", &allowed(&["alice:apply-force"], &[]));
    let act = Act { command: CommandName::Apply, project: None };
    assert!(matches!(only.decide("alice", act, &told), Permitted::Refused { .. }));
    assert!(check_own("alice:freeze").unwrap_err().contains("`repos.yaml` only"));
}

#[test]
fn a_rule_for_anybody_and_anything_names_nobody() {
    let act = |project| Act { command: CommandName::Unlock, project: Some(project) };
    let (pay, net) = (project("conf/pay", "default"), project("conf/net", "default"));
    let server = allowed(&["*", "alice", "bob:unlock:conf/pay", "cid:plan"], &["sre"]);
    let permissions = Permissions::default().with("settings", &allowed(&["*"], &[])).with("file", &server);
    let decide =
        |who: &str, project, teams: &[(&str, bool)]| permissions.decide_by_name(who, act(project), &memberships(teams));
    assert_eq!(decide("alice", &net, &[]), Permitted::Allowed);
    assert_eq!(decide("bob", &pay, &[]), Permitted::Allowed);
    assert_eq!(decide("bob", &net, &[]), Permitted::Ask("sre".into()));
    assert_eq!(decide("bob", &net, &[("sre", true)]), Permitted::Allowed);
    for who in ["bob", "cid", "dan", ""] {
        assert!(matches!(decide(who, &net, &[("sre", false)]), Permitted::Refused { .. }), "{who}");
    }
    let by_word = Permissions::default().with("file", &allowed(&["*:unlock"], &[]));
    assert_eq!(by_word.decide_by_name("dan", act(&net), &HashMap::new()), Permitted::Allowed);
    let none = Permissions::default().decide_by_name("dan", act(&net), &HashMap::new());
    assert!(matches!(none, Permitted::Refused { .. }));
}

#[test]
fn a_team_is_asked_about_only_where_it_matters() {
    let permissions =
        Permissions::default().with("x", &allowed(&["alice:apply"], &["devs:plan", "sre:apply", "ops:apply"]));
    let act = |command| Act { command, project: None };
    let none = HashMap::new();
    assert_eq!(permissions.decide("alice", act(CommandName::Apply), &none), Permitted::Allowed);
    assert_eq!(permissions.decide("bob", act(CommandName::Apply), &none), Permitted::Ask("sre".into()));
    let not_sre = memberships(&[("sre", false)]);
    assert_eq!(permissions.decide("bob", act(CommandName::Apply), &not_sre), Permitted::Ask("ops".into()));
    let neither = memberships(&[("sre", false), ("ops", false)]);
    let who = texts(&["alice", "team sre", "team ops"]);
    assert_eq!(
        permissions.decide("bob", act(CommandName::Apply), &neither),
        Permitted::Refused { place: "x".into(), who }
    );
    assert_eq!(
        permissions.decide("bob", act(CommandName::Import), &none),
        Permitted::Refused { place: "x".into(), who: Vec::new() }
    );
}

#[test]
fn every_list_has_to_allow_and_the_one_that_does_not_is_named() {
    let permissions = Permissions::default()
        .with("server", &allowed(&["*:plan", "alice", "bob"], &[]))
        .with("own", &allowed(&["bob"], &[]));
    let act = Act { command: CommandName::Apply, project: None };
    let decide = |person| permissions.decide(person, act, &HashMap::new());
    assert_eq!(decide("bob"), Permitted::Allowed);
    assert_eq!(decide("alice"), Permitted::Refused { place: "own".into(), who: texts(&["bob"]) });
    assert_eq!(decide("eve"), Permitted::Refused { place: "server".into(), who: texts(&["alice", "bob"]) });
    assert_eq!(Permissions::default().decide("", act, &HashMap::new()), Permitted::Allowed);
    let nobody = Permissions::default().with("x", &Allowed::default());
    assert_eq!(nobody.decide("alice", act, &HashMap::new()), Permitted::Refused { place: "x".into(), who: Vec::new() });
}

#[test]
fn a_rule_that_cannot_be_read_is_named() {
    for (rule, check, says) in [
        ("", check as fn(&str) -> Result<(), String>, "a rule is"),
        ("a:", check, "a rule is"),
        ("a:b:c:d:e", check, "a rule is"),
        ("a:destroy", check, "no such command; there are: plan, apply"),
        ("a b", check, "white space"),
        ("a:apply:[", check, "not a valid glob"),
        ("a:apply:conf", check_own, "a project's own rule"),
        ("a:unfreeze:conf", check, "write `WHO:unfreeze`, without a directory"),
        ("a:freeze:*:prod", check, "write `WHO:freeze`, without a directory"),
    ] {
        let error = check(rule).unwrap_err();
        assert!(error.contains(says), "{rule}: {error}");
    }
    for fine in [
        "a:freeze:*",
        "a:unlock-others:conf",
        "alice",
        "ada@example.com:unlock",
        "*:plan",
        "a:apply:conf/**:prod",
        "a : apply",
        "a:*:*:prod",
    ] {
        check(fine).unwrap();
    }
    check_own("a:apply").unwrap();
}

#[test]
fn a_refusal_names_not_too_many() {
    let users: Vec<String> = (0..30).map(|number| format!("user{number}")).collect();
    let permissions = Permissions::default().with("x", &Allowed { users, teams: Vec::new() });
    let act = Act { command: CommandName::Apply, project: None };
    let Permitted::Refused { who, .. } = permissions.decide("eve", act, &HashMap::new()) else { panic!("allowed") };
    assert_eq!((who.len(), who.last().map(String::as_str)), (MAX_NAMED + 1, Some("20 more")));
}

/// Rules of few words, so that they overlap.
fn rule() -> impl Strategy<Value = String> {
    "(a|b|\\*)(:(plan|apply|\\*)(:(x|x/\\*\\*|\\*)(:(w|\\*))?)?)?"
}

fn list() -> impl Strategy<Value = Allowed> {
    let rules = || proptest::collection::vec(rule(), 0..4);
    (rules(), rules()).prop_map(|(users, teams)| Allowed { users, teams })
}

/// Decides until no membership is unknown, as the server does.
fn settled(permissions: &Permissions, person: &str, act: Act<'_>, member: &dyn Fn(&str) -> bool) -> Permitted {
    let mut known = HashMap::new();
    loop {
        match permissions.decide(person, act, &known) {
            Permitted::Ask(team) => assert!(known.insert(team.clone(), member(&team)).is_none(), "asked twice"),
            decision => return decision,
        }
    }
}

proptest! {
    /// A repository's own file never allows more than the server's rules.
    #[test]
    fn another_list_only_narrows(server in list(), own in list(), person in "a|b|c|", teams in "[ab]{0,2}", dir in "x|x/y|z", workspace in "w|v") {
        let id = project(&dir, &workspace);
        let member = |team: &str| teams.contains(team);
        for command in [CommandName::Plan, CommandName::Apply, CommandName::Unlock] {
            let act = Act { command, project: Some(&id) };
            let alone = Permissions::default().with("server", &server);
            let both = alone.clone().with("own", &own);
            if settled(&both, &person, act, &member) == Permitted::Allowed {
                prop_assert_eq!(settled(&alone, &person, act, &member), Permitted::Allowed);
                let own = Permissions::default().with("own", &own);
                prop_assert_eq!(settled(&own, &person, act, &member), Permitted::Allowed);
            }
        }
    }

    /// An action that is refused for any project is refused for each project, so that a command can be refused before its projects are
    /// known.
    #[test]
    fn refused_anywhere_is_refused_for_each_project(server in list(), person in "a|b|c|", teams in "[ab]{0,2}", dir in "x|x/y|z", workspace in "w|v") {
        let id = project(&dir, &workspace);
        let member = |team: &str| teams.contains(team);
        let permissions = Permissions::default().with("server", &server);
        for command in [CommandName::Plan, CommandName::Apply, CommandName::Unlock] {
            let anywhere = settled(&permissions, &person, Act { command, project: None }, &member);
            if anywhere != Permitted::Allowed {
                let here = settled(&permissions, &person, Act { command, project: Some(&id) }, &member);
                prop_assert_ne!(here, Permitted::Allowed);
            }
        }
    }

    /// A project's name, which pull requests choose, has no effect.
    #[test]
    fn the_name_of_a_project_changes_nothing(server in list(), person in "a|b|c", name in "[axw/]{1,4}", dir in "x|x/y|z") {
        let unnamed = project(&dir, "w");
        let named = ProjectId { name: Some(name), ..unnamed.clone() };
        let permissions = Permissions::default().with("server", &server);
        let decide = |id: &ProjectId| permissions.decide(&person, Act { command: CommandName::Apply, project: Some(id) }, &HashMap::new());
        prop_assert_eq!(decide(&unnamed), decide(&named));
    }

    #[test]
    fn no_text_panics(text in "[-a-z*:/@{}\\[\\]! ]{0,40}") {
        let _ = check(&text);
        let list = Allowed { users: vec![text.clone()], teams: vec![text] };
        let act = Act { command: CommandName::Apply, project: None };
        let _ = Permissions::default().with("x", &list).decide("a", act, &HashMap::new());
    }
}
