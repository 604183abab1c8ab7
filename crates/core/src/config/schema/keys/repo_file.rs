//! Keys of `atlantis.yaml`.

use super::shared::{DURATION, REGEX, RULE, VERSION};
use super::{Form, Section, key};
use crate::config::freeze::MAX_WINDOWS;
use crate::config::permissions::MAX_RULES;
use crate::domain::tags::MAX_TAGS;

const DIR: Form = Form { name: "path or glob", pattern: r"^([^.]|\.[^.])+\.?$|^\.$" };
const NAME: Form = Form { name: "text", pattern: "^[A-Za-z0-9._~/-]+$" };
const TAG: Form = Form { name: "text", pattern: "^[A-Za-z0-9][A-Za-z0-9_.:/@+=-]{0,99}$" };
const WORKSPACE: Form = Form { name: "text", pattern: r"^([^-~\s/\\$][^\s/\\$]*)?$" };

pub(super) const SECTIONS: &[Section] = &[
    Section {
        name: "atlantis.yaml",
        keys: &[
            key("version", "Version of the format. In version 2, `run` commands of plan and apply are split into words and joined again.")
                .only(&["2", "3"])
                .required()
                .example("3"),
            key("projects", "[Projects](#projects).").of("project").example("[{dir: live/network}]"),
            key("workflows", "[Workflows](workflows.md) of the repository, by name.")
                .of("workflow")
                .example("{with-vars: {plan: {steps: [init, {plan: {extra_args: [-var-file, prod.tfvars]}}]}}}"),
            key("autodiscover", "[Projects that are not listed](#autodiscover). `autodiscover` in `repos.yaml` overrides it.")
                .of("autodiscover")
                .by_default("`--autodiscover-mode`")
                .example("{mode: enabled, ignore_paths: ['examples/**']}"),
            key("automerge", "Merge when all that was planned of the head is applied ([differences](differences.md#automerge)). `automerge: false` in `repos.yaml` overrides it.")
                .by_default("`--automerge`")
                .example("true"),
            key("parallel_plan", "Plan projects of one order group at the same time, up to `--parallel-pool-size`.")
                .by_default("`--parallel-plan`")
                .example("true"),
            key("parallel_apply", "Apply projects of one order group at the same time, up to `--parallel-pool-size`.")
                .by_default("`--parallel-apply`")
                .example("true"),
            key(
                "abort_on_execution_order_fail",
                "After a failed order group, later groups do not start. In Atlantis only with parallel runs.",
            )
            .default("false"),
            key(
                "allowed_regexp_prefixes",
                "A glob after `-p` that matches several projects has to begin with one of these. With `--enable-regexp-cmd`, the same holds for a regular expression. An empty list allows all.",
            )
            .example("[dev-]"),
            key("repo_locks", "Default for all listed projects. Atlantis ignores it where it is not permitted.")
                .of("repo_locks")
                .example("{mode: on_apply}"),
            key(
                "delete_source_branch_on_merge",
                "Default for all listed projects. Atlantis ignores it where it is not permitted.",
            )
            .example("true"),
            key("silence_pr_comments", "Default for all listed projects. Atlantis ignores it where it is not permitted.")
                .listed()
                .example("[plan]"),
            key("policies", "No effect, as in Atlantis: the policies of the server count."),
            key("emoji_reaction", "No effect, as in Atlantis: the flag of the server counts.").example("eyes"),
        ],
    },
    Section {
        name: "autoplan",
        keys: &[
            key("enabled", "With `false`, the server plans the project only on a command.").default("true").example("false"),
            key("when_modified", "Patterns of files, relative to the project's directory. The project is planned when one of them changes.")
                .default("['**/*.tf*', '**/*.tofu', '**/*.tofu.json', '**/terragrunt.hcl', '**/.terraform.lock.hcl']")
                .example("['*.tf', '../modules/**/*.tf']"),
        ],
    },
    Section {
        name: "project",
        keys: &[
            key(
                "dir",
                "Directory from the root, without `..`. With `*`, `?` or `[` it is a glob: each matching directory with Terraform, OpenTofu or \
                 Terragrunt files is a project.",
            )
            .form(DIR)
            .required()
            .example("live/network"),
            key("name", "Name for `-p`, unique in the file: letters, digits, `-`, `_`, `.`, `~` and `/`. Not with a glob.")
                .form(NAME)
                .example("network"),
            key("tags", "Tags by which [`--tag`](commands.md#tags) selects the project: letters, digits and `-_.:/@+=`. They give no right to anything.")
                .form(TAG)
                .items(0, MAX_TAGS)
                .example("[env:prod, team:core]")
                .only_here(),
            key("workspace", "Workspace of Terraform.").form(WORKSPACE).default("default").example("prod"),
            key("branch", "Base branches of the pull requests in which the project exists, as `/^main$/`.")
                .form(REGEX)
                .by_default("any")
                .example("/^main$/"),
            key("terraform_version", "Exact version such as `1.11.4`, which is downloaded where it is missing (`--tf-download`).")
                .form(VERSION)
                .by_default("the newest that `required_version` allows")
                .example("1.11.4"),
            key("terraform_distribution", "Program that runs.")
                .listed()
                .by_default("`--default-tf-distribution`")
                .example("opentofu"),
            key("terragrunt", "[Terragrunt](terragrunt.md) runs the built-in steps, if the directory is a unit.")
                .by_default("as in `repos.yaml`")
                .example("true")
                .only_here(),
            key("terragrunt_version", "Version of Terragrunt.")
                .form(VERSION)
                .by_default("as in `repos.yaml`")
                .example("0.99.1")
                .only_here(),
            key("autoplan", "[When the server plans by itself](#autoplan).")
                .of("autoplan")
                .example("{when_modified: ['*.tf', '../modules/**/*.tf']}"),
            key("execution_order_group", "Groups run in ascending order.").default("0").example("1"),
            key(
                "depends_on",
                "Names of projects. If the pull request plans one of them, this project is applied only after it. In mode `strict` this project \
                 is also planned only after that apply ([layers](locks.md#layers)).",
            )
            .example("[network]"),
            key("workflow", "Name of a [workflow](workflows.md) of this file or of the server.")
                .by_default("as in `repos.yaml`")
                .example("default"),
            key("plan_requirements", "[Requirements](server-config.md#requirements) of `plan`. The list replaces that of the server.")
                .listed()
                .by_default("as in `repos.yaml`")
                .example("[undiverged]"),
            key("apply_requirements", "Requirements of `apply`.")
                .listed()
                .by_default("as in `repos.yaml`")
                .example("[approved, mergeable]"),
            key("import_requirements", "Requirements of `import` and `state rm`.")
                .listed()
                .by_default("as in `repos.yaml`")
                .example("[approved]"),
            key("repo_locks", "[Who may change a project](locks.md).")
                .of("repo_locks")
                .by_default("as in `repos.yaml`")
                .example("{mode: on_apply}"),
            key("repo_locking", "Former key: `false` is `repo_locks: {mode: disabled}`.").example("false"),
            key("apply_scope", "Which projects [need a plan](locks.md#what-belongs-to-a-pull-request) before one is applied.")
                .listed()
                .by_default("as in `repos.yaml`")
                .example("selected")
                .only_here(),
            key("on_merge", "With `apply`, [apply after the merge](locks.md#after-the-merge), in mode `strict`.")
                .listed()
                .by_default("as in `repos.yaml`")
                .beside("{repo_locks: {mode: strict}}")
                .example("apply")
                .only_here(),
            key("reminder_interval", "Interval of [reminders](locks.md#reminders) in mode `strict`. `0` means never.")
                .form(DURATION)
                .by_default("as in `repos.yaml`")
                .example("48h")
                .only_here(),
            key("plan_max_age", "An older plan is not applied. `0` means no limit.")
                .form(DURATION)
                .by_default("as in `repos.yaml`")
                .example("24h")
                .only_here(),
            key("approvals", "[Who has to approve](approvals.md).")
                .of("approvals")
                .by_default("as in `repos.yaml`")
                .example("{any_of: ['team:sre'], count: 2}")
                .only_here(),
            key("auto_apply", "[Apply without a command](auto-apply.md).")
                .of("auto_apply")
                .by_default("as in `repos.yaml`")
                .example("{when: met}")
                .only_here(),
            key("allowed_users", "People who may use a command on the project, as `WHO` or `WHO:COMMAND` ([permissions.md](permissions.md)). They restrict the rules of the server.")
                .form(RULE)
                .items(0, MAX_RULES)
                .by_default("everybody")
                .example("['alice:apply']")
                .only_here(),
            key("allowed_teams", "Teams that may use a command on the project, in the same form.")
                .form(RULE)
                .items(0, MAX_RULES)
                .by_default("everybody")
                .example("[sre]")
                .only_here(),
            key("freeze", "[Times without applies](hatches.md#windows).")
                .of("freeze_window")
                .items(0, MAX_WINDOWS)
                .by_default("as in `repos.yaml`")
                .example("[{from: 'Fri 16:00', to: 'Mon 08:00', timezone: Europe/Berlin}]")
                .only_here(),
            key("policy_check", "[Check plans](policies.md), where `--enable-policy-checks` is set. Atlantis ignores it where it is not permitted.")
                .by_default("as in `repos.yaml`")
                .example("false"),
            key("custom_policy_check", "With `true`, the `run` steps of the stage `policy_check` print the results of the policy sets.")
                .by_default("as in `repos.yaml`")
                .example("true"),
            key("silence_pr_comments", "Commands whose results are left out of comments.")
                .listed()
                .by_default("as in `repos.yaml`")
                .example("[plan]"),
            key("delete_source_branch_on_merge", "Delete the branch after an automerge. Every applied project has to set it. Atlantis asks only the first project, and ignores the key on GitHub.")
                .by_default("as in `repos.yaml`")
                .example("true"),
        ],
    },
];
