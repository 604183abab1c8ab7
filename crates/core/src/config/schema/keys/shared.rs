//! Keys of mappings that both files have, and forms of texts.

use super::{Form, Key, Section, key};
use crate::config::approvals::MAX_COUNT;
use crate::config::approvers::MAX_APPROVERS;
use crate::config::workflow::MAX_STEPS;

/// Text that is not blank.
pub(super) const TEXT: Form = Form { name: "text", pattern: r"\S" };
pub(super) const REGEX: Form = Form { name: "regex", pattern: r"^/[\s\S]*/$" };
/// Without nested repetition, on which the engines of editors take exponential time.
pub(super) const DURATION: Form = Form { name: "duration", pattern: r"^\s*(([0-9]+[hms])+[0-9]*|[0-9]+)\s*$" };
pub(super) const VERSION: Form = Form {
    name: "version",
    pattern: r"^\s*v?[0-9]+(\.[0-9]+)*(-?[0-9A-Za-z~-]+(\.[0-9A-Za-z~-]+)*)?(\+[0-9A-Za-z~-]+(\.[0-9A-Za-z~-]+)*)?\s*$",
};
/// A glob of directories that does not lead out of the repository.
pub(super) const DIR_GLOB: Form = Form { name: "glob", pattern: r"^([^./]|\.[^.])([^.]|\.[^.])*\.?$|^\.$" };
/// `WHO[:COMMAND[:DIRECTORY[:WORKSPACE]]]`; an account ID has a colon before its UUID.
pub(super) const RULE: Form = Form {
    name: "rule",
    pattern: r"^\s*[^:\s]+(:[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})?\s*(:\s*[^:\s]([^:]*[^:\s])?\s*){0,3}$",
};
/// `user:NAME`, `team:NAME` or `codeowners`
const APPROVER: Form = Form {
    name: "approver",
    pattern: r"^\s*((user|team):\s*@*[^\s@]\S*|[Cc][Oo][Dd][Ee][Oo][Ww][Nn][Ee][Rr][Ss])\s*$",
};
pub(super) const PERSON_OR_TEAM: Form = Form { name: "approver", pattern: r"^\s*(user|team):\s*@*[^\s@]\S*\s*$" };
/// A day of the week or a date, and a time.
const MOMENT: Form =
    Form { name: "moment", pattern: r"^\s*([A-Za-z]{3}|[0-9]{4}-[0-9]{2}-[0-9]{2})\s+[0-9]{2}:[0-9]{2}\s*$" };

const COMMAND: Key = key("command", "The command.").form(TEXT).required().example("./scripts/check");
pub(super) const SHELL: Key =
    key("shell", "Shell that runs the command.").form(TEXT).default("sh").beside("{command: 'true'}").example("bash");
pub(super) const SHELL_ARGS: Key =
    key("shellArgs", "Arguments of the shell before the command, as a list or separated by spaces. They need `shell`.")
        .default("-c")
        .beside("{command: 'true', shell: sh}")
        .example("[-o, pipefail, -c]");
/// Names of the built-in steps have one meaning.
const ARGUMENTS: &str = "Built-in step with arguments.";
const STAGE: &str = "Steps of this stage. A stage that is missing has the built-in steps.";

pub(super) const SECTIONS: &[Section] = &[
    Section {
        name: "autodiscover",
        keys: &[
            key("mode", "`auto` finds projects if the file lists none, `enabled` always, and `disabled` never.")
                .listed()
                .default("auto")
                .example("enabled"),
            key("ignore_paths", "Globs of directories that are never discovered, from the root.")
                .form(Form { name: "glob", pattern: "^([^/]|$)" })
                .example("['examples/**']"),
        ],
    },
    Section {
        name: "repo_locks",
        keys: &[
            key(
                "mode",
                "Event that locks a project: its plan, its apply, or none. With `strict` a pull request owns what it applies until all of it \
                 is applied and merged. Atlantis has no `strict`.",
            )
            .listed()
            .default("on_plan")
            .example("strict"),
            key(
                "scope",
                "Only for `strict`: after its first apply, a pull request owns all projects that it changes (`pull_request`), or only the applied one (`project`).",
            )
            .listed()
            .by_default("`pull_request`")
            .beside("{mode: strict}")
            .example("project")
            .only_here(),
        ],
    },
    Section {
        name: "approvals",
        keys: &[
            key("any_of", "People, of whom `count` have to approve: `user:NAME`, `team:NAME`, `team:OWNER/NAME` or `codeowners`.")
                .form(APPROVER)
                .items(0, MAX_APPROVERS)
                .example("['team:sre']"),
            key("all_of", "People and teams, of each of which somebody has to approve.")
                .form(APPROVER)
                .items(0, MAX_APPROVERS)
                .example("[codeowners]"),
            key("count", "Number of different people of `any_of` who have to approve.")
                .range(1, MAX_COUNT)
                .by_default("1; 0 with `all_of` alone")
                .example("2"),
            key("of_plan", "Only approvals of the plan that is applied count.").default("false").beside("{count: 1}"),
            key("exclude_pushers", "Approvals of people who pushed to the pull request do not count.")
                .default("false")
                .beside("{count: 1}"),
        ],
    },
    Section {
        name: "auto_apply",
        keys: &[
            key("when", "`approved`: once somebody has approved the plan, and all requirements are met. `met`: once all requirements are met. `never`: by a person only.")
                .listed()
                .required()
                .example("met"),
        ],
    },
    Section {
        name: "freeze_window",
        keys: &[
            key("from", "Begin: a day of the week and a time, for each week, or a date and a time.")
                .form(MOMENT)
                .required()
                .example("Fri 16:00"),
            key("to", "End, in the same form. It is not part of the window.")
                .form(MOMENT)
                .required()
                .example("Mon 08:00"),
            key("timezone", "Name of the timezone of both.").default("UTC").example("Europe/Berlin"),
            key("except", "People who may apply meanwhile: `user:NAME`, `team:NAME` or `team:OWNER/NAME`.")
                .form(PERSON_OR_TEAM)
                .items(0, MAX_APPROVERS)
                .example("['team:sre']"),
            key("reason", "Reason that refusals show.").example("weekend"),
        ],
    },
    Section {
        name: "workflow",
        keys: &[
            key("plan", STAGE).of("stage").by_default("`init`, `plan`").example("{steps: [init, plan]}"),
            key("apply", STAGE).of("stage").by_default("`apply`").example("{steps: [apply]}"),
            key("policy_check", STAGE).of("stage").by_default("`show`, `policy_check`").example("{steps: [show, policy_check]}"),
            key("import", STAGE).of("stage").by_default("`init`, `import`").example("{steps: [init, import]}"),
            key("state_rm", STAGE).of("stage").by_default("`init`, `state_rm`").example("{steps: [init, state_rm]}"),
        ],
    },
    Section {
        name: "stage",
        keys: &[key("steps", "Steps in their order: names of built-in steps, or mappings with one key.")
            .of("step")
            .listed()
            .items(0, MAX_STEPS)
            .example("[init, plan]")],
    },
    Section {
        name: "step",
        keys: &[
            key("init", ARGUMENTS).of("arguments").example("{extra_args: [-lock=false]}"),
            key("plan", ARGUMENTS).of("arguments").example("{extra_args: [-var-file, prod.tfvars]}"),
            key("show", ARGUMENTS).of("arguments").example("{extra_args: []}"),
            key("policy_check", ARGUMENTS).of("arguments").example("{extra_args: [--all-namespaces]}"),
            key("apply", ARGUMENTS).of("arguments").example("{extra_args: [-parallelism=5]}"),
            key("import", ARGUMENTS).of("arguments").example("{extra_args: [-lock=false]}"),
            key("state_rm", ARGUMENTS).of("arguments").example("{extra_args: [-lock=false]}"),
            key("run", "Command that fails the stage if its exit code is not 0.").of("run").form(TEXT).example("./scripts/check"),
            key("env", "Variable for the later steps of the stage.").of("env").example("{name: TF_VAR_region, value: europe-west1}"),
            key("multienv", "Command that prints variables for the later steps of the stage, as `NAME=value,NAME2=value2`.")
                .of("multienv")
                .form(TEXT)
                .example("./scripts/credentials"),
        ],
    },
    Section { name: "arguments", keys: &[key("extra_args", "Arguments of the step. No shell reads them.").example("[-lock=false]")] },
    Section {
        name: "run",
        keys: &[
            COMMAND,
            SHELL,
            SHELL_ARGS,
            key("output", "What comments show of the output. Several filters are applied in order.")
                .of("output")
                .only(&["show", "hide", "strip_refreshing"])
                .by_default("`show`")
                .example("[strip_refreshing, {filter_regex: '(password=)\\S+'}]"),
        ],
    },
    Section {
        name: "multienv",
        keys: &[
            COMMAND,
            SHELL,
            SHELL_ARGS,
            key("output", "`hide` leaves the names of the variables out of comments.")
                .of("output")
                .only(&["show", "hide"])
                .default("show")
                .example("hide"),
        ],
    },
    Section {
        name: "output",
        keys: &[key("filter_regex", "Matches of these expressions become `<redacted>` between the groups 1 and 2.")
            .required()
            .example("'(password=)\\S+'")],
    },
    Section {
        name: "env",
        keys: &[
            key("name", "Name of the variable.").form(Form { name: "text", pattern: "^[^=]+$" }).required().example("TF_VAR_region"),
            key("value", "Its value.").example("europe-west1"),
            key("command", "Command that prints the value, in place of `value`.").example("git rev-parse --short HEAD"),
            SHELL,
            SHELL_ARGS,
        ],
    },
];
