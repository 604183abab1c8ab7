//! `tidelock check` for programs: annotations of GitHub, SARIF, and text of files that looks like commands of CI.

use super::{check_in, story};
use insta::assert_snapshot;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A file whose texts look like commands of GitHub Actions and Azure Pipelines.
const HOSTILE: &str = r####"
version: 3
projects:
- {dir: net, workflow: "x\n::add-mask::y\r\n ###[add-mask]z ##vso[task.complete]%0A"}
- {dir: db, name: "##vso[task.complete]\n::stop-commands::x"}
"####;

/// A file without errors that causes a warning.
const HOSTILE_WARNING: &str = r####"
version: 3
projects:
- {dir: net, depends_on: ["x\n::stop-commands::y\r\n##[add-mask]z ####vso[task.complete]%0A"]}
"####;

#[test]
fn no_format_lets_a_file_write_commands_of_ci() {
    let dir = story();
    fs::remove_file(dir.path().join("repos.yaml")).unwrap();
    let unknown = "\"k\\n::error::x ##vso[task.complete]\": 1\n";
    for yaml in [HOSTILE, HOSTILE_WARNING, unknown] {
        fs::write(dir.path().join("atlantis.yaml"), yaml).unwrap();
        for format in ["text", "json", "github", "sarif"] {
            let (_, output) = check_in(dir.path(), &["--format", format], &[]);
            let said = output.contains("stop-commands::") || output.contains("::error::x");
            assert!(said && !output.contains("##"), "{output}");
            // A line of GitHub's is a command where it begins with colons, or after spaces.
            let commands = output.lines().filter(|line| line.trim_start().starts_with("::"));
            let expected = if format == "github" { output.lines().count() - 1 } else { 0 };
            assert_eq!(commands.count(), expected, "{output}");
            if matches!(format, "json" | "sarif") {
                let _: Value = serde_json::from_str(&output).unwrap();
            }
        }
    }
}

#[test]
fn findings_are_annotations_of_github_and_results_of_sarif() {
    let dir = story();
    fs::write(dir.path().join("atlantis.yaml"), HOSTILE).unwrap();
    let wrong = "repos:\n- {id: /.*/, branch: main}\nworkflows: {x: {plan: {steps: [plann]}}}\n";
    fs::write(dir.path().join("a,b:c%.yaml"), wrong).unwrap();
    let args = ["--repos-config", "a,b:c%.yaml", "--format"];
    let (code, github) = check_in(dir.path(), &[&args[..], &["github"]].concat(), &[]);
    assert_eq!(code, Some(1), "{github}");
    assert_snapshot!(github, @r##"
    ::error file=a%2Cb%3Ac%25.yaml,line=2,col=22,title=tidelock check%3A server-config::branch: the regex must begin and end with a slash, such as `/^main$/` (key repos[0].branch)
    ::error file=a%2Cb%3Ac%25.yaml,line=3,col=32,title=tidelock check%3A server-config::unknown step `plann`; known: init, plan, show, policy_check, apply, import, state_rm; your own command is `- run: COMMAND` (key workflows.x.plan.steps[0])
    ::error file=atlantis.yaml,line=5,col=19,title=tidelock check%3A repo-config::name: "# #vso[task.complete] ::stop-commands::x" must contain only URL safe characters: letters, digits, `-`, `_`, `.`, `~`, `/` (key projects[1].name)
    ::warning title=tidelock check%3A warning::the server-side configuration has errors, so the repository's own file is checked without the server's rules. The server may refuse keys that this check accepts, or lack workflows that the file names
    0 projects, 1 warning, 3 errors
    "##);
    let (code, sarif) = check_in(dir.path(), &[&args[..], &["sarif"]].concat(), &[]);
    let sarif: Value = serde_json::from_str(&sarif).unwrap();
    assert_eq!((code, sarif["version"].as_str()), (Some(1), Some("2.1.0")));
    let rules = sarif["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    let results = sarif["runs"][0]["results"].as_array().unwrap().iter().map(|result| {
        let place = &result["locations"][0]["physicalLocation"];
        let (file, region) = (place["artifactLocation"]["uri"].as_str().unwrap(), &place["region"]);
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        let (rule, level) = (result["ruleId"].as_str().unwrap(), result["level"].as_str().unwrap());
        format!("{level} {rule} {file}:{}:{}", region["startLine"], region["startColumn"])
    });
    assert_snapshot!(results.collect::<Vec<_>>().join("\n"), @r##"
    error server-config a%2Cb%3Ac%25.yaml:2:22
    error server-config a%2Cb%3Ac%25.yaml:3:32
    error repo-config atlantis.yaml:5:19
    warning warning atlantis.yaml:1:1
    "##);
    // Files are named as seen from the root of the repository, wherever that is.
    let checkout = dir.path().to_str().unwrap();
    let (_, github) = check_in(Path::new("/"), &["--format=github", checkout], &[]);
    assert!(
        github.starts_with(&format!("::error file={},line=", &format!("{checkout}/atlantis.yaml")[1..])),
        "{github}"
    );
    let (_, github) = check_in(&dir.path().join("net"), &["--format=github", ".."], &[]);
    assert!(github.starts_with("::error file=atlantis.yaml,line=4,col="), "{github}");
    let (code, text) = check_in(dir.path(), &["--format=xml"], &[]);
    assert!(code == Some(2) && text.contains("sarif"), "{text}");
}
