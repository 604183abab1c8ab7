//! Results of policies and plans, and the ones that are refused.

use super::evaluate::{Evaluation, NamespaceResult, evaluate};
use super::load::{PolicyReader, PolicyText};
use super::{PolicyArguments, checked, command, print};
use proptest::prelude::*;
use tidelock_core::mutation::mutated;

const RULES: &str = r#"package main
deny contains msg if { input.a == 1; msg := "a is one" }
warn contains msg if { input.a == 1; msg := {"msg": "careful", "details": {"x": 1}} }
violation_thing contains {"msg": "v"} if input.b
deny contains msg if { input.c; msg := "c" }
exception contains rules if { input.ex; rules := ["thing"] }
"#;

fn results(policy: &str, input: &str) -> anyhow::Result<Vec<NamespaceResult>> {
    evaluate(Evaluation {
        policies: vec![PolicyText { path: "p.rego".into(), text: policy.into() }],
        data: serde_json::json!({}),
        input: input.into(),
        namespaces: Some(vec!["main".into()]),
        rego_v0: false,
    })
}

fn printed(input: &str) -> String {
    let asked = PolicyArguments::from_matches(&command().get_matches_from(["policy-check", "in.json"]));
    print::lines(&results(RULES, input).unwrap(), &asked)
}

fn error(policy: &str) -> String {
    format!("{:#}", results(policy, "{}").unwrap_err())
}

#[test]
fn it_prints_what_conftest_prints() {
    // Output of conftest 0.66.0, byte for byte.
    for (input, output) in [
        (
            r#"{"a":1}"#,
            "WARN - in.json - main - careful\nFAIL - in.json - main - a is one\n\n4 tests, 2 passed, 1 warning, 1 failure, 0 exceptions\n",
        ),
        (r#"{"a":2}"#, "\n4 tests, 4 passed, 0 warnings, 0 failures, 0 exceptions\n"),
        (r#"{"b":true}"#, "FAIL - in.json - main - v\n\n4 tests, 3 passed, 0 warnings, 1 failure, 0 exceptions\n"),
        (
            r#"{"b":true,"ex":true}"#,
            "EXCP - in.json - main - data.main.exception[_][_] == \"thing\"\n\n4 tests, 3 passed, 0 warnings, 0 failures, 1 exception\n",
        ),
    ] {
        assert_eq!(printed(input), output, "{input}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&print::json(&results(RULES, r#"{"a":1}"#).unwrap(), "in.json").unwrap()).unwrap();
    assert_eq!(json[0]["successes"], 2);
    assert_eq!(json[0]["warnings"][0]["metadata"], serde_json::json!({"details": {"x": 1}, "query": "data.main.warn"}));
}

#[test]
fn what_says_nothing_and_what_is_wrong_are_errors() {
    assert!(error("package main\ndeny := true").contains("make it a set of messages"));
    assert!(error("package main\ndeny[message] if { message := \"no\" }").contains("make it a set of messages"));
    assert!(error("package main\ndeny contains 5").contains("a message is a string"));
    assert!(error("package main\ndeny contains {\"text\": \"x\"}").contains("has no `msg`"));
    assert!(error("package main\ndeny contains").contains("p.rego"));
    assert!(error("package main\ndeny contains x if x := http.send({})").contains("--policy-engine=conftest"));
    // An undefined rule is not a finding, as in OPA.
    assert_eq!(results("package main\ndeny contains x if x := to_number(\"a\")", "{}").unwrap()[0].successes, 1);
}

#[test]
fn regular_expressions_match_with_the_same_answers_as_the_engines_own() {
    let rule = |condition: &str| {
        let policy = format!("package main\ndeny contains \"x\" if {{ some text in input.texts; {condition} }}");
        results(&policy, r#"{"texts": ["net-1", 5, "UP"]}"#).map(|found| found[0].failures.len())
    };
    assert_eq!(rule("regex.match(`^[a-z0-9-]+$`, text)").unwrap(), 1);
    assert_eq!(rule("not regex.match(`.`, text)").unwrap(), 1, "what is no text is not matched");
    assert_eq!(rule("regex.match(`(`, text)").unwrap(), 0);
    assert_eq!(rule("not regex.match(`(`, text)").unwrap(), 1);
    assert_eq!(rule("regex.match(`x`, text) with regex.match as true").unwrap(), 1);
    assert!(rule("regex.match(`x`)").is_err() && rule("regex.match(`(a{100}){100}`, text)").is_err());
}

#[test]
fn names_of_rules_and_packages_decide_what_is_evaluated() {
    let found = |policy: &str| {
        let result = &results(policy, "{}").unwrap()[0];
        (result.successes, result.warnings.len(), result.failures.len())
    };
    assert_eq!(found("package main\ndenial contains \"x\""), (0, 0, 0));
    assert_eq!(found("package main\ndeny_ contains \"x\""), (0, 0, 0));
    assert_eq!(
        found("package main\ndeny_a contains \"x\"\nwarn_b contains \"y\"\nviolation contains \"z\""),
        (0, 1, 2)
    );
    assert_eq!(found("package other\ndeny contains \"x\""), (0, 0, 0));
}

#[test]
fn flags_are_conftests_and_what_is_missing_names_the_other_engine() {
    let matches = command().try_get_matches_from([
        "policy-check",
        "-p",
        "a,b",
        "in",
        "--namespace=x",
        "-n",
        "y",
        "-ojson",
        "--no-color",
    ]);
    let asked = PolicyArguments::from_matches(&matches.unwrap());
    assert_eq!((asked.policies, asked.namespaces), (vec!["a".into(), "b".into()], vec!["x".into(), "y".into()]));
    assert!(asked.json && !asked.no_fail && asked.tree.is_none());
    for wrong in [&["x", "--update", "y"][..], &["x", "--parser=hcl2"], &["x", "-o", "table"], &["x", "y"], &[]] {
        assert!(command().try_get_matches_from(std::iter::once("policy-check").chain(wrong.iter().copied())).is_err());
    }
    let twice = ["policy-check", "--tree", "/a", "--tree", "/b", "x"];
    assert!(command().try_get_matches_from(twice).is_err(), "an argument must not change the tree");
}

#[test]
fn no_link_of_a_tree_is_followed_and_the_operators_own_are() {
    let temp = tempfile::tempdir().unwrap();
    let at = temp.path().canonicalize().unwrap();
    for dir in ["tree/policies", "server"] {
        std::fs::create_dir_all(at.join(dir)).unwrap();
    }
    std::fs::write(at.join("server/gate.rego"), "package main").unwrap();
    std::fs::write(at.join("server/gate_test.rego"), "package main").unwrap();
    std::fs::write(at.join("tree/policies/own.rego"), "package main").unwrap();
    for (link, target) in
        [("tree/policies/link.rego", "server/gate.rego"), ("tree/all", "server"), ("linked", "server")]
    {
        std::os::unix::fs::symlink(at.join(target), at.join(link)).unwrap();
    }
    let read = |path: &str| {
        let path = at.join(path).to_string_lossy().into_owned();
        let found = PolicyReader::new(Some(&at.join("tree"))).unwrap().policies(&[path]);
        found.map(|found| {
            found.into_iter().map(|one| one.path.rsplit('/').next().unwrap().to_owned()).collect::<Vec<_>>()
        })
    };
    assert_eq!(read("tree/policies").unwrap(), ["own.rego"]);
    assert_eq!(read("tree/x/../policies/own.rego").unwrap(), ["own.rego"]);
    for linked in ["tree/policies/link.rego", "tree/all", "tree/all/gate.rego", "tree/missing"] {
        assert!(read(linked).is_err(), "{linked}");
    }
    assert_eq!(read("server").unwrap(), ["gate.rego"]);
    assert_eq!(read("linked").unwrap(), ["gate.rego"]);
}

#[test]
fn exit_codes_are_conftests() {
    let temp = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(temp.path().join(name), text).unwrap();
        temp.path().join(name).to_string_lossy().into_owned()
    };
    let policy = file("p.rego", RULES);
    let (both, fine) = (file("both.json", r#"{"a":1}"#), file("fine.json", "{}"));
    let code = |flags: &[&str], input: &str| {
        let args = ["policy-check", "-p", &policy, input].into_iter().chain(flags.iter().copied());
        checked(&PolicyArguments::from_matches(&command().try_get_matches_from(args).unwrap())).unwrap().1
    };
    for (flags, input, want) in [
        (&[][..], &both, 1),
        (&[], &fine, 0),
        (&["--no-fail"], &both, 0),
        (&["--fail-on-warn"], &both, 2),
        (&["--fail-on-warn"], &fine, 0),
    ] {
        assert_eq!(code(flags, input), want, "{flags:?} {input}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_policy_and_no_plan_makes_it_panic(policy in "(package main\n)?[ -~\n]{0,80}", input in "[\\[\\]{}\",:a0 ]{0,20}") {
        prop_assume!(depth(&policy) < 12);
        let _ = results(&policy, &input);
    }

    #[test]
    fn a_mutated_policy_and_its_data_are_read_or_refused_with_their_place(policy in mutated(vec![RULES.to_owned()]), json in mutated(vec![r#"{"a": {"b": [1, 2.5, "x"]}, "c": null}"#.to_owned()]), yaml in mutated(vec!["a: &a {b: [1, x]}\nc: *a\n".to_owned()])) {
        // regorus tries every way to parse a bracket, so deep nesting takes practically forever. The command has a time limit.
        prop_assume!(depth(&policy) < 6);
        // The same stack size as the command's.
        let evaluating = std::thread::Builder::new().stack_size(super::STACK).spawn({
            let policy = policy.clone();
            move || results(&policy, "{}").map(drop)
        });
        if let Err(error) = evaluating.unwrap().join().unwrap() {
            let error = format!("{error:#}");
            // regorus does not name the line of an expression that might be a comprehension.
            let has_place = ["p.rego:", "data.main."].iter().any(|part| error.contains(part));
            prop_assert!(has_place, "{error} of\n{policy}");
        }
        if let Err(error) = results("package main", &json) {
            let error = format!("{error:#}");
            prop_assert!(error.contains(" line ") && error.contains(" column "), "{error} of\n{json}");
        }
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("d.json", &json), ("d.yaml", &yaml)] {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            if let Err(error) = PolicyReader::new(None).unwrap().data(&[path.to_string_lossy().into_owned()]) {
                let error = format!("{error:#}");
                let has_place = error.contains("line ") || error.contains("another value");
                prop_assert!(error.contains(name) && has_place, "{error} of\n{text}");
            }
        }
    }
}

/// Returns the greatest depth of nested brackets.
fn depth(text: &str) -> usize {
    let step = |(now, most): (usize, usize), c| match c {
        '{' | '[' | '(' => (now + 1, most.max(now + 1)),
        '}' | ']' | ')' => (now.saturating_sub(1), most),
        _ => (now, most),
    };
    text.chars().fold((0, 0), step).1
}

#[test]
fn what_is_nested_without_end_is_refused() {
    use tidelock_core::mutation::nested;
    for input in [nested("[", "", "]"), nested("{\"a\": ", "1", "}")] {
        assert!(results("package main\nplan := input", &input).is_err());
        // Keys that no policy uses are skipped.
        let _ = results("package main", &input);
    }
}
