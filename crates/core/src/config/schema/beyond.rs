//! Errors of the parser about what a schema cannot say: references between keys, regular expressions, globs, paths, times, and limits in
//! bytes.

use super::probe::ConfigFile::{self, Repo, Server};

/// A part of each such error, and a file that has this error alone. `LONG` stands for a text of 5,000 bytes.
pub(super) const ERRORS: &[(&str, ConfigFile, &str)] = &[
    // References between keys.
    ("is not defined; there are", Repo, "{version: 3, projects: [{dir: a, workflow: other}]}"),
    ("names must be unique", Repo, "{version: 3, projects: [{dir: a, name: n}, {dir: b, name: n}]}"),
    ("two or more projects with dir", Repo, "{version: 3, projects: [{dir: a}, {dir: a}]}"),
    ("not allowed together with a glob", Repo, "{version: 3, projects: [{dir: 'a*', name: n}]}"),
    ("is a word of tag queries", Repo, "{version: 3, projects: [{dir: a, tags: [not]}]}"),
    ("`scope` is for `mode: strict` only", Repo, "{version: 3, repo_locks: {scope: project}}"),
    ("`apply` is for mode `strict` only", Repo, "{version: 3, projects: [{dir: a, on_merge: apply}]}"),
    ("it says nothing", Repo, "{version: 3, projects: [{dir: a, approvals: {any_of: []}}]}"),
    ("needs the requirement `approved`", Repo, "{version: 3, projects: [{dir: a, auto_apply: {when: approved}}]}"),
    ("`shellArgs` needs `shell`", Server, "workflows: {own: {plan: {steps: [run: {command: a, shellArgs: -c}]}}}"),
    ("`shell` needs `command`", Server, "workflows: {own: {plan: {steps: [env: {name: A, shell: sh}]}}}"),
    (
        "has both `value` and `command`",
        Server,
        "workflows: {own: {plan: {steps: [env: {name: A, value: b, command: c}]}}}",
    ),
    (
        "`multienv.output` is",
        Server,
        "workflows: {own: {plan: {steps: [multienv: {command: a, output: [show, hide]}]}}}",
    ),
    ("is not defined under `workflows`", Server, "repos: [{id: a/b/c, workflow: other}]"),
    ("is not defined under `executors`", Server, "repos: [{id: a/b/c, executor: [{plan: other}]}]"),
    (
        "cannot apply plans that the server makes",
        Server,
        "{executors: {e: {kind: process}}, repos: [{id: a/b/c, executor: [{apply: e}]}]}",
    ),
    ("the rule says nothing", Server, "repos: [{id: a/b/c, executor: [{plan: null}]}]"),
    ("the guard refuses nothing", Server, "repos: [{id: a/b/c, guards: [{name: a}]}]"),
    (
        "two guards with the name",
        Server,
        "repos: [{id: a/b/c, guards: [{name: a, max_destroys: 1}, {name: a, max_destroys: 2}]}]",
    ),
    ("before the first `*`", Server, "repos: [{id: a/b/c, guards: [{name: a, modules: ['github.com*']}]}]"),
    ("executors: kind `", Server, "executors: {e: {kind: kubernetes}}"),
    ("an executor of kind `", Server, "executors: {e: {kind: process, template: a}}"),
    ("it has 1 to 100 variables", Server, "repos: [{id: a/b/c, secrets: [{env: {}}]}]"),
    ("contradicts `repo_locks`", Server, "repos: [{id: a/b/c, repo_locking: false, repo_locks: {mode: on_plan}}]"),
    ("there are no issues without", Server, "repos: [{id: a/b/c, drift: {schedule: 0 3 * * *, issue_labels: a}}]"),
    ("two sets with the name", Server, "policies: {policy_sets: [{name: a}, {name: a}]}"),
    ("on this host already", Server, "people: [{person: a, login: h/a}, {person: a, login: h/b}]"),
    // Regular expressions, globs, shell code and paths.
    ("not a valid regex", Repo, "{version: 3, projects: [{dir: a, branch: /(/}]}"),
    ("is not a valid glob", Repo, "{version: 3, projects: [{dir: '[a'}]}"),
    ("has an unclosed quote", Repo, "{version: 2, workflows: {own: {plan: {steps: [run: \"'a\"]}}}}"),
    ("must not be `.` nor contain `..`", Repo, "{version: 3, projects: [{dir: a, workspace: a..b}]}"),
    ("must be a path inside the repository", Server, "repos: [{id: a/b/c, repo_config_file: a/../../b}]"),
    ("is neither `host/owner/name` nor", Server, "repos: [{id: 'https://a/b/c'}]"),
    ("matches the empty text", Server, "repos: [{id: a/b/c, masks: ['a*']}]"),
    // Names and references of variables.
    ("cannot be the name of a variable", Server, "repos: [{id: a/b/c, secrets: [{env: {A-B: 'vault:a/b#c'}}]}]"),
    ("a variable that the server sets", Server, "repos: [{id: a/b/c, secrets: [{env: {PATH: 'vault:a/b#c'}}]}]"),
    ("is not a reference", Server, "repos: [{id: a/b/c, secrets: [{env: {A: 'vault:a/b'}}]}]"),
    // Rules of permissions.
    ("no such command", Server, "repos: [{id: a/b/c, allowed_users: ['alice:aply']}]"),
    ("is about the whole repository", Server, "repos: [{id: a/b/c, allowed_users: ['alice:freeze:dir']}]"),
    ("a project's own rule is", Repo, "{version: 3, projects: [{dir: a, allowed_users: ['alice:plan:dir']}]}"),
    (
        "is given in the server's `repos.yaml` only",
        Repo,
        "{version: 3, projects: [{dir: a, allowed_users: ['alice:freeze']}]}",
    ),
    // Times, dates and numbers in texts.
    ("is no duration", Repo, "{version: 3, projects: [{dir: a, plan_max_age: 9000h}]}"),
    ("is not a version", Repo, "{version: 3, projects: [{dir: a, terraform_version: .5}]}"),
    (
        "no such timezone",
        Repo,
        "{version: 3, projects: [{dir: a, freeze: [{from: Fri 16:00, to: Mon 08:00, timezone: Europe/Bonn}]}]}",
    ),
    (
        "is neither a day and a time",
        Repo,
        "{version: 3, projects: [{dir: a, freeze: [{from: Fry 16:00, to: Mon 08:00}]}]}",
    ),
    ("the window has no end", Repo, "{version: 3, projects: [{dir: a, freeze: [{from: Fri 16:00, to: Fri 16:00}]}]}"),
    (
        "it is not after `from`",
        Repo,
        "{version: 3, projects: [{dir: a, freeze: [{from: 2026-12-20 18:00, to: 2026-12-19 18:00}]}]}",
    ),
    ("write both alike", Repo, "{version: 3, projects: [{dir: a, freeze: [{from: Fri 16:00, to: 2026-12-19 18:00}]}]}"),
    ("malformed or out of its range", Server, "repos: [{id: a/b/c, drift: {schedule: 0 99 * * *}}]"),
    ("no day has this date", Server, "repos: [{id: a/b/c, drift: {schedule: 0 3 31 2 *}}]"),
    ("it is more often than once", Server, "repos: [{id: a/b/c, drift: {schedule: '* * * * *'}}]"),
    ("is no port of UDP", Server, "metrics: {statsd: {host: a, port: '70000'}}"),
    ("a whole number is expected", Repo, "{version: 3, projects: [{dir: a, execution_order_group: 1.0}]}"),
    // A name that is taken.
    ("`local` is always there", Server, "executors: {local: {kind: process}}"),
    // Tags of YAML.
    ("cannot deserialize tagged scalar", Repo, "{version: !!int 3}"),
    // Limits in bytes or characters.
    ("the glob is longer than", Repo, "{version: 3, projects: [{dir: 'LONG*'}]}"),
    ("the reference is longer than", Server, "repos: [{id: a/b/c, secrets: [{env: {A: 'vault:a/LONG#c'}}]}]"),
    ("the mask is longer than", Server, "repos: [{id: a/b/c, masks: [LONG]}]"),
    ("is no cron expression", Server, "repos: [{id: a/b/c, drift: {schedule: LONG 3 * * *}}]"),
    ("is not the name of a branch", Server, "repos: [{id: a/b/c, drift: {schedule: 0 3 * * *, branch: LONG}}]"),
    ("a label has 1 to", Server, "repos: [{id: a/b/c, drift: {schedule: 0 3 * * *, issue: true, issue_labels: LONG}}]"),
    ("is no name of a person", Server, "people: [{person: LONG, login: h/a}]"),
    ("is no login of the form", Server, "people: [{person: a, login: h/LONG}]"),
    ("is no path such as `/metrics`", Server, "metrics: {prometheus: {endpoint: /LONG}}"),
];
