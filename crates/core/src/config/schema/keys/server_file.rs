//! Keys of `repos.yaml`.

use super::shared::{DIR_GLOB, DURATION, PERSON_OR_TEAM, REGEX, RULE, SHELL, SHELL_ARGS, TEXT, VERSION};
use super::{Form, Key, Section, key};
use crate::config::approvers::MAX_APPROVERS;
use crate::config::drift::{MAX_LABELS, MAX_PATTERNS};
use crate::config::executors::{self, MAX_GLOBS, MAX_LIMIT};
use crate::config::freeze::MAX_WINDOWS;
use crate::config::global::parse::MAX_ENTRIES;
use crate::config::guards::{self, MAX_COUNT, MAX_GUARDS};
use crate::config::people::MAX_PEOPLE;
use crate::config::permissions::MAX_RULES;
use crate::config::policies::MAX_SETS;
use crate::config::secrets::{self, MAX_MASKS};

/// Key of rules that are about some directories.
const DIRS: Key = key("dirs", "Glob or globs of the projects' directories.")
    .form(DIR_GLOB)
    .items(1, MAX_GLOBS)
    .by_default("all")
    .example("prod/**");
const ID: Form = Form { name: "name or regex", pattern: r"^(/[\s\S]*/|[^/][\s\S]*)$" };
const FILE: Form = Form { name: "path", pattern: r"^[^/\\]" };
const CONFTEST: Form =
    Form { name: "version", pattern: r"^v?[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$" };
const OWNER: Form = Form { name: "name", pattern: r"^\s*@*[^\s@`][^\s`]*\s*$" };
const SET: Form = Form { name: "text", pattern: r"^\s*[^\s`][^`]*$" };
const POLICIES: Form = Form { name: "path", pattern: "^[^-]" };
const PERSON: Form = Form { name: "text", pattern: r"^\S+$" };
const LOGIN: Form = Form { name: "text", pattern: r"^[^\s/]+/[^\s/]+$" };
const ENDPOINT: Form = Form { name: "path", pattern: "^(/[A-Za-z0-9_.~-]*[A-Za-z0-9_~-][A-Za-z0-9_.~-]*)+$" };
const STATSD_HOST: Form = Form { name: "text", pattern: "^[A-Za-z0-9._:-]{1,253}$" };
const PORT: Form = Form { name: "port", pattern: r"^\+?0*[1-9][0-9]{0,4}$" };
const JOB: Form =
    Form { name: "text", pattern: "^projects/[a-z0-9.:-]{1,63}/locations/[a-z0-9.:-]{1,63}/jobs/[a-z0-9.:-]{1,63}$" };
const EXECUTOR: Form = Form { name: "name", pattern: "^[a-z0-9_-]{1,40}$" };
const GUARD: Form = Form { name: "name", pattern: "^[a-z0-9_][a-z0-9_-]{0,39}$" };
const PROTECTED: Form = Form { name: "pattern", pattern: r"^[A-Za-z0-9_*]\S{0,299}$" };
const PROVIDER: Form = Form { name: "pattern", pattern: r"^[^\s/]+/[^\s/]+(/[^\s/]+)?$" };
const MODULE: Form = Form { name: "pattern", pattern: r"^[^\s.]\S{0,299}$" };
const WORKSPACE: Form = Form { name: "glob", pattern: r"^[A-Za-z0-9_.*?-]+$" };
const CRON: Form = Form { name: "cron expression or `none`", pattern: r"^\s*(none|\S+(\s+\S+){4})\s*$" };
const LABEL: Form = Form { name: "text", pattern: r"^[^,]*[^,\s][^,]*$" };
const BRANCH: Form = Form { name: "text", pattern: "^[^ ]+$" };

pub(super) const SECTIONS: &[Section] = &[
    Section {
        name: "repos.yaml",
        keys: &[
            key("repos", "[Entries](#entries).").of("repo").items(0, MAX_ENTRIES).example("[{id: /.*/, apply_requirements: [approved]}]"),
            key("workflows", "[Workflows](workflows.md) by name. `default` replaces the built-in one.")
                .of("workflow")
                .example("{with-lint: {plan: {steps: [{run: tflint}, init, plan]}}}"),
            key("policies", "[Policy sets](#policies) and their owners.")
                .of("policies")
                .example("{policy_sets: [{name: buckets, path: /etc/tidelock/policies}]}"),
            key("executors", "[Executors](executors.md#configuration) by name.")
                .of("executor")
                .form(EXECUTOR)
                .example("{prod: {kind: process, limit: 5}}")
                .only_here(),
            key("people", "[Logins of people](permissions.md#pages) whom the pages know by another name.")
                .of("person")
                .items(0, MAX_PEOPLE)
                .example("[{person: ada@example.com, login: github.com/ada}]")
                .only_here(),
            key("team_authz", "[A command of your own](permissions.md#a-command-of-your-own-that-decides) that decides who may do what.")
                .of("team_authz")
                .example("{command: /usr/local/bin/authz, args: [--realm, infra]}"),
            key("metrics", "[Receivers of metrics](metrics.md) besides `/metrics`.")
                .of("metrics")
                .example("{statsd: {host: 127.0.0.1, port: 8125}}"),
            key("external_stores", "No effect, with a warning: Tidelock keeps plans in its bucket. In Atlantis, this key names the stores of plans."),
        ],
    },
    Section {
        name: "repo",
        keys: &[
            key("id", "Name `host/owner/name`, or a [regular expression](#which-entry-counts) between slashes. Here case does not matter; in Atlantis it does.")
                .form(ID)
                .required()
                .example("github.com/acme/infra"),
            key("branch", "Base branches that are served, as `/^main$/`.").form(REGEX).by_default("any").example("/^main$/"),
            key("repo_config_file", "Another name of the repository's file, such as `infra/atlantis.yaml`.")
                .form(FILE)
                .by_default("`atlantis.yaml`, then `tidelock.yaml`")
                .example("infra/atlantis.yaml"),
            key("allowed_overrides", "Keys that projects of [`atlantis.yaml`](repo-config.md#projects) may set.")
                .listed()
                .default("[]")
                .example("[workflow, plan_max_age]"),
            key("allowed_workflows", "Workflows of the server that projects may choose. An empty list allows all.")
                .default("[]")
                .example("[default]"),
            key(
                "allow_custom_workflows",
                "Projects may use workflows of their own file, which run any command: [security.md](security.md#who-can-run-code-here).",
            )
            .default("false"),
            key("autodiscover", "[Projects that no file lists](repo-config.md#autodiscover). It overrides the repository's.")
                .of("autodiscover")
                .by_default("that of the repository")
                .example("{mode: enabled}"),
            key("workflow", "Name of the [workflow](workflows.md).").default("default").example("default"),
            key("pre_workflow_hooks", "Commands [before](workflows.md#hooks) each command. Those of all matching entries run.")
                .of("hook")
                .example("[{run: ./scripts/generate-projects}]"),
            key("post_workflow_hooks", "Commands [after](workflows.md#hooks) each command.")
                .of("hook")
                .example("[{run: ./scripts/report}]"),
            key("plan_requirements", "[Requirements](#requirements) of `plan`.").listed().default("[]").example("[undiverged]"),
            key("apply_requirements", "Requirements of `apply`.").listed().default("[]").example("[approved, mergeable]"),
            key("import_requirements", "Requirements of `import` and `state rm`.").listed().default("[]").example("[approved]"),
            key("approvals", "[Who has to approve](approvals.md).")
                .of("approvals")
                .by_default("anybody with write access")
                .example("{any_of: ['team:sre'], count: 2}")
                .only_here(),
            key("auto_apply", "[Apply without a command](auto-apply.md).")
                .of("auto_apply")
                .by_default("`when: never`")
                .beside("{apply_requirements: [approved]}")
                .example("{when: approved}")
                .only_here(),
            key("allowed_users", "People who may use a command, as `WHO[:COMMAND[:DIRECTORY[:WORKSPACE]]]` ([permissions.md](permissions.md)).")
                .form(RULE)
                .items(0, MAX_RULES)
                .by_default("everybody")
                .example("['*:plan', 'alice:apply:conf/payments']")
                .only_here(),
            key("allowed_teams", "Teams that may use a command, in the same form.")
                .form(RULE)
                .items(0, MAX_RULES)
                .by_default("everybody")
                .example("[sre, 'developers:apply:**:dev']")
                .only_here(),
            key("repo_locks", "[Who may change a project](locks.md).").of("repo_locks").default("{mode: on_plan}").example("{mode: strict}"),
            key("repo_locking", "Former key: `false` is `repo_locks: {mode: disabled}`.").default("true").example("false"),
            key("apply_scope", "Which projects [need a plan](locks.md#what-belongs-to-a-pull-request) before one is applied.")
                .listed()
                .by_default("`all_planned` in mode `strict`, else `selected`")
                .example("selected")
                .only_here(),
            key("on_merge", "With `apply`, [apply after the merge](locks.md#after-the-merge), in mode `strict`.")
                .listed()
                .default("nothing")
                .beside("{repo_locks: {mode: strict}}")
                .example("apply")
                .only_here(),
            key("reminder_interval", "Interval of [reminders](locks.md#reminders) in mode `strict`. `0` means never.")
                .form(DURATION)
                .default("24h")
                .example("48h")
                .only_here(),
            key("plan_max_age", "An older plan is not applied. `0` means no limit.")
                .form(DURATION)
                .by_default("`--plan-max-age`")
                .example("24h")
                .only_here(),
            key("freeze", "[Times without applies](hatches.md#windows).")
                .of("freeze_window")
                .items(0, MAX_WINDOWS)
                .default("[]")
                .example("[{from: 'Fri 16:00', to: 'Mon 08:00', timezone: Europe/Berlin}]")
                .only_here(),
            key("guards", "[Limits on plans and their code](guards.md), which no pull request changes.")
                .of("guard")
                .items(0, MAX_GUARDS)
                .default("[]")
                .example("[{name: few, max_destroys: 5, override: ['team:sre']}]")
                .only_here(),
            key("secrets", "[Variables from stores of secrets](secrets.md), which no pull request changes.")
                .of("secret_rule")
                .items(0, secrets::MAX_RULES)
                .default("[]")
                .example("[{dirs: 'prod/**', env: {TF_VAR_token: 'vault:secret/data/ci#token'}}]")
                .only_here(),
            key("masks", "[Regular expressions](secrets.md#masks). What they match in the output of steps is masked.")
                .items(0, MAX_MASKS)
                .default("[]")
                .example("['xoxb-[0-9A-Za-z-]+']")
                .only_here(),
            key("policy_check", "[Check plans](policies.md), where `--enable-policy-checks` is set.").default("true").example("false"),
            key("custom_policy_check", "With `true`, the `run` steps of the stage `policy_check` print the results of the policy sets.").default("false"),
            key("terragrunt", "[Terragrunt](terragrunt.md) runs the built-in steps of units.").default("false").only_here(),
            key("terragrunt_version", "Version of Terragrunt.").form(VERSION).example("0.99.1").only_here(),
            key("executor", "Rules that say [where jobs run](executors.md#configuration). The last one that fits a directory counts.")
                .of("executor_rule")
                .items(1, executors::MAX_RULES)
                .by_default("in the server")
                .example("[{plan: local, apply: local}]")
                .only_here(),
            key("drift", "[When drift is looked for](drift.md#on-a-schedule).")
                .of("drift")
                .by_default("never")
                .example("{schedule: '0 3 * * *', timezone: Europe/Berlin}")
                .only_here(),
            key("silence_pr_comments", "Commands whose results are left out of comments.").listed().default("[]").example("[plan]"),
            key("automerge", "[Merge](repo-config.md#automerge) when all that was planned is applied. With `false`, no repo config turns it on.")
                .by_default("`--automerge`")
                .example("true")
                .only_here(),
            key("merge_method", "[Way to merge](repo-config.md#automerge) then.")
                .listed()
                .by_default("`--automerge-method`")
                .example("squash")
                .only_here(),
            key("delete_source_branch_on_merge", "Delete the branch at an automerge. Atlantis does not on GitHub.").default("false"),
            key("replan_after_failed_apply", "With `true`, [plan a project again](#after-a-failed-apply) once its apply has failed.")
                .default("false")
                .only_here(),
            key("deleted_projects", "`destroy`: a project whose directory a pull request deletes is [planned as a destroy](deleted-projects.md). `ignore`: nothing is planned for it.")
                .listed()
                .default("ignore")
                .example("destroy")
                .only_here(),
            key("destroy_requirements", "Requirements of the apply of a [deleted project](deleted-projects.md), besides `apply_requirements`.")
                .listed()
                .default("[approved]")
                .example("[approved, mergeable]")
                .only_here(),
            key("verify_applies", "With `true`, an apply [plans again at its end](#verified-applies), and the comment says whether anything is left.")
                .default("false")
                .only_here(),
        ],
    },
    Section {
        name: "hook",
        keys: &[
            key("run", "The command.").form(TEXT).required().example("./scripts/generate-projects > atlantis.yaml"),
            key("description", "Name of its commit status.").by_default("`Pre workflow hook #0`").example("list the projects"),
            key("commands", "Commands for which it runs, by their names in this text.").by_default("all").example("plan, apply"),
            Key { beside: "{}", form: None, ..SHELL },
            Key { beside: "{}", ..SHELL_ARGS },
        ],
    },
    Section {
        name: "guard",
        keys: &[
            key("name", "Its name, for `--override`.").form(GUARD).required().beside("{max_destroys: 5}").example("few"),
            DIRS.beside("{max_destroys: 5}"),
            key("max_destroys", "Most resources that a plan may destroy, with those that it replaces.")
                .range(0, MAX_COUNT)
                .by_default("no limit")
                .example("0"),
            key("max_replacements", "Most resources that a plan may replace.")
                .range(0, MAX_COUNT)
                .by_default("no limit")
                .example("0"),
            key("protect", "Types, or addresses with a dot, that no plan may destroy, replace or forget. `*` stands for any characters.")
                .form(PROTECTED)
                .items(0, guards::MAX_PATTERNS)
                .beside("{max_destroys: 5}")
                .default("[]")
                .example("[google_sql_*, module.vault]"),
            key("providers", "The only providers that code may use.")
                .form(PROVIDER)
                .items(0, guards::MAX_PATTERNS)
                .by_default("all")
                .example("[hashicorp/*]"),
            key("modules", "The only sources of modules outside of the repository.")
                .form(MODULE)
                .items(0, guards::MAX_PATTERNS)
                .by_default("all")
                .example("[app.terraform.io/acme/*]"),
            key("forbid", "Code that is refused: data sources that run programs, and provisioners.")
                .listed()
                .beside("{max_destroys: 5}")
                .default("[]")
                .example("[external, provisioners]"),
            key("override", "People who may [override it](guards.md#override-a-guard), as `user:NAME` or `team:NAME`.")
                .form(PERSON_OR_TEAM)
                .items(0, MAX_APPROVERS)
                .beside("{max_destroys: 5}")
                .by_default("nobody")
                .example("['team:sre']"),
        ],
    },
    Section {
        name: "secret_rule",
        keys: &[
            DIRS,
            key("workspaces", "Globs of their workspaces.").form(WORKSPACE).items(1, MAX_GLOBS).by_default("all").example("[prod]"),
            key("stages", "Stages that get the variables: `plan` with policy checks and drift, `apply` with imports, `state rm` and `force-unlock`.")
                .listed()
                .items(1, 2)
                .by_default("`[plan, apply]`")
                .example("[apply]"),
            key("env", "Variables, each with the [reference](secrets.md#references) of its value.")
                .required()
                .example("{TF_VAR_token: 'vault:secret/data/ci#token'}"),
        ],
    },
    Section {
        name: "executor_rule",
        keys: &[
            DIRS,
            key("plan", "Executor of plans, policy checks and drift detection.").beside("{apply: local}").default("local").example("local"),
            key("apply", "Executor of applies, imports, `state rm` and `force-unlock`.").beside("{plan: local}").default("local").example("local"),
        ],
    },
    Section {
        name: "drift",
        keys: &[
            key("schedule", "Cron expression of five fields, or `none` for no detections.")
                .form(CRON)
                .required()
                .example("0 3 * * *"),
            key("timezone", "Name of the timezone of the schedule.").default("UTC").example("Europe/Berlin"),
            key("projects", "Names of projects and globs of directories.")
                .form(DIR_GLOB)
                .items(1, MAX_PATTERNS)
                .by_default("all")
                .example("['prod/**', net]"),
            key("window", "Time after a scheduled time in which its detection may still begin, at least `10m`.")
                .form(DURATION)
                .default("12h")
                .example("6h"),
            key("notify", "With `none`, receivers of the event `drift` are not notified.").listed().default("drift").example("none"),
            key("branch", "Branch that is checked.").form(BRANCH).by_default("the default branch").example("main"),
            key("issue", "The server keeps an issue for each drifted project.").default("false").example("true"),
            key("issue_labels", "Labels of new issues, each of at most 50 characters.")
                .form(LABEL)
                .items(1, MAX_LABELS)
                .beside("{issue: true}")
                .example("[drift]"),
        ],
    },
    Section {
        name: "executor",
        keys: &[
            key("kind", "Where its jobs run.").listed().required().example("process"),
            key("limit", "Most jobs that run on it at once.").range(1, MAX_LIMIT).default("20").example("5"),
            key("template", "Of the kind `kubernetes`: file with the manifest of a Job, relative to `repos.yaml`.")
                .beside("{kind: kubernetes}")
                .form(Form { name: "path", pattern: r"^[\s\S]" })
                .example("plan-job.yaml"),
            key("job", "Of the kind `cloud_run`: name of the job.")
                .beside("{kind: cloud_run}")
                .form(JOB)
                .example("projects/acme/locations/europe-west1/jobs/tidelock-prod"),
        ],
    },
    Section {
        name: "person",
        keys: &[
            key("person", "Name of the person on the pages, such as an email address.").form(PERSON).required().example("ada@example.com"),
            key("login", "Login of the person, as `host/login`.").form(LOGIN).required().example("github.com/ada"),
        ],
    },
    Section {
        name: "team_authz",
        keys: &[
            key("command", "Command for the shell.").form(TEXT).required().example("/usr/local/bin/authz"),
            key("args", "Arguments before those of the server.").example("[--realm, infra]"),
        ],
    },
    Section {
        name: "metrics",
        keys: &[
            key("prometheus", "Another path for `/metrics`.").of("prometheus").example("{endpoint: /internal/metrics}"),
            key("statsd", "Server of statsd.").of("statsd").example("{host: 127.0.0.1, port: 8125}"),
        ],
    },
    Section {
        name: "prometheus",
        keys: &[key("endpoint", "The path.").form(ENDPOINT).required().example("/internal/metrics")],
    },
    Section {
        name: "statsd",
        keys: &[
            key("host", "Name or address.").form(STATSD_HOST).required().example("127.0.0.1"),
            key("port", "UDP port.").form(PORT).range(1, 65_535).required().example("8125"),
        ],
    },
    Section {
        name: "policies",
        keys: &[
            key("owners", "People and teams who may approve findings of any set.").of("owners").example("{teams: [security]}"),
            key("approve_count", "Number of owners of a set who have to approve before its plan is applied.").default("1").example("2"),
            key("sticky_policy_approvals", "Approvals hold for later plans without new findings.").default("false"),
            key("policy_item_regex", "Regular expression of one finding.").by_default("the whole output").example("FAIL.*"),
            key("conftest_version", "Version for `--policy-engine=conftest`.").form(CONFTEST).by_default("any").example("0.66.0"),
            key("policy_sets", "The sets.").of("policy_set").items(0, MAX_SETS).example("[{name: buckets, path: /etc/tidelock/policies}]"),
        ],
    },
    Section {
        name: "policy_set",
        keys: &[
            key("name", "Its name, unique in the file.").form(SET).required().example("buckets"),
            key(
                "path",
                "File or directory with the policies. Use an absolute path: a relative one is in the project's directory, where the pull request can change it. Leave it out if [`run` steps](workflows.md#results-of-a-scanner-as-a-policy) print the results.",
            )
                .form(POLICIES)
                .example("/etc/tidelock/policies"),
            key("source", "Place of the policies. Atlantis knows `github` too.").only(&["local"]).default("local"),
            key("owners", "Further owners of this set.").of("owners").example("{users: [alice]}"),
            key("approve_count", "Number of owners who have to approve.").by_default("that of all sets").example("2"),
            key("sticky_policy_approvals", "Approvals hold for later plans without new findings.").by_default("that of all sets").example("true"),
            key("policy_item_regex", "Regular expression of one finding.").by_default("that of all sets").example("FAIL.*"),
            key("prevent_self_approve", "The author of the pull request may not approve.").default("false").example("true"),
        ],
    },
    Section {
        name: "owners",
        keys: &[
            key("users", "Logins.").form(OWNER).example("[alice]"),
            key("teams", "Teams of the repository's owner, or `owner/team`.").form(OWNER).example("[security]"),
        ],
    },
];
