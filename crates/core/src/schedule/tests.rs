mod deleted;
mod inputs;
mod mutated;
mod strict;
mod targets;
mod units;
mod whole;

use super::*;
use crate::config::global::GlobalConfig;
use crate::config::repo::{self, NamedDirectories};
use crate::domain::RepoId;
use crate::domain::command::Trigger;
use crate::inputs::tree::MemoryTree;
use insta::assert_snapshot;
use proptest::prelude::*;

/// A repository, its pull request's files, and the flags; commands run on it.
struct Scene {
    rules: RepoRules,
    config: Option<RepoConfig>,
    modified: Vec<String>,
    tree: MemoryTree,
    options: ScheduleOptions,
    base_config: Option<RepoConfig>,
    applied: Vec<ProjectId>,
}

fn scene(tree: MemoryTree, modified: &[&str]) -> Scene {
    let options = ScheduleOptions {
        executable: "atlantis".into(),
        default_distribution: Distribution::Terraform,
        autodiscover_mode: AutodiscoverMode::Auto,
        autoplan_file_list: ["**/*.tf", "**/*.tf.json", "**/*.tfvars", "**/.terraform.lock.hcl"]
            .map(str::to_owned)
            .to_vec(),
        autoplan_modules_from: Vec::new(),
        enable_regexp_cmd: false,
        restrict_file_list: false,
        silence_no_projects: false,
        parallel_plan: false,
        parallel_apply: true,
    };
    let modified = modified.iter().map(|file| (*file).to_owned()).collect();
    Scene { rules: rules("repos: []"), config: None, modified, tree, options, base_config: None, applied: Vec::new() }
}

fn rules(repos_yaml: &str) -> RepoRules {
    let repo = RepoId { host: "github.com".into(), owner: "o".into(), name: "r".into() };
    GlobalConfig::parse(repos_yaml, "repos.yaml").unwrap().rules(&repo, "main")
}

impl Scene {
    fn server(mut self, repos_yaml: &str) -> Scene {
        self.rules = rules(repos_yaml);
        self
    }

    fn yaml(mut self, projects_and_more: &str) -> Scene {
        let text = format!("version: 3\n{projects_and_more}");
        let directories = Directories::new(&self.tree);
        self.config = Some(repo::parse(&text, "atlantis.yaml", &self.rules, "main", &directories).unwrap());
        self
    }

    /// Sets the repo config of the base branch, so that the pull request changes it.
    fn base_yaml(mut self, projects_and_more: &str) -> Scene {
        let head = self.config.take();
        let mut base = self.yaml(projects_and_more);
        (base.base_config, base.config) = (base.config.take(), head);
        base
    }

    /// Sets the projects, `dir/workspace`, that were applied in the pull request.
    fn applied(mut self, projects: &[&str]) -> Scene {
        self.applied = projects.iter().map(|text| id(text)).collect();
        self
    }

    fn with(mut self, change: impl FnOnce(&mut ScheduleOptions)) -> Scene {
        change(&mut self.options);
        self
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            rules: &self.rules,
            repo_config: self.config.as_ref(),
            modified: &self.modified,
            tree: &self.tree,
            options: &self.options,
            config_change: (self.base_config.as_ref().zip(self.config.as_ref()))
                .map(|(base, head)| ConfigChange { base, head }),
            applied: &self.applied,
            deletions: None,
        }
    }

    fn autoplan(&self) -> String {
        labels(for_plan(&Command::new(CommandName::Plan, Trigger::Autoplan, "alice"), &self.facts()))
    }

    /// Returns the projects of a command such as `plan -d a -w b` or `import -p c`.
    fn comment(&self, text: &str) -> String {
        labels(for_plan(&command(text), &self.facts()))
    }

    /// The same for `apply`, on planned projects written as `dir/workspace` or `dir/workspace=name`.
    fn planned(&self, text: &str, planned: &[&str]) -> String {
        let ids: Vec<ProjectId> = planned.iter().map(|text| id(text)).collect();
        labels(for_planned(&command(text), &ids, &self.facts()))
    }
}

fn touched_by(project: &ProjectConfig, changed: &[String], facts: &Facts<'_>) -> bool {
    facts.graph().is_touched(project, changed)
}

fn id(text: &str) -> ProjectId {
    let (place, name) = text.split_once('=').map_or((text, None), |(place, name)| (place, Some(name.to_owned())));
    let (dir, workspace) = place.rsplit_once('/').unwrap();
    ProjectId { dir: dir.to_owned(), workspace: workspace.to_owned(), name }
}

fn command(text: &str) -> Command {
    let mut words = text.split(' ');
    let name = match words.next() {
        Some("plan") => CommandName::Plan,
        Some("apply") => CommandName::Apply,
        Some("import") => CommandName::Import,
        other => panic!("{other:?}"),
    };
    let mut command = Command::new(name, Trigger::Comment, "alice");
    while let Some(flag) = words.next() {
        let value = words.next().map(str::to_owned);
        match flag {
            "-d" => command.target.dirs.extend(value),
            "-w" => command.target.workspace = value,
            "-p" => command.target.projects.extend(value),
            "--except" => command.target.except.extend(value),
            // Without spaces, as the words of this text.
            "--tag" => command.target.tag = value.map(|query| query.replace('+', " ").parse().unwrap()),
            other => panic!("{other}"),
        }
    }
    command
}

/// `a/default, b/default | c/default`: groups are divided by `|`.
fn labels(result: Result<Schedule, NoSchedule>) -> String {
    match result {
        Ok(schedule) => {
            let group = |group: &Vec<ProjectConfig>| group.iter().map(|p| p.id.label()).collect::<Vec<_>>().join(", ");
            schedule.groups.iter().map(group).collect::<Vec<_>>().join(" | ")
        }
        Err(NoSchedule::Target(message)) => message,
        Err(NoSchedule::Config(error)) => format!("config: {error}"),
        Err(NoSchedule::Silent) => "(silence)".to_owned(),
    }
}

#[test]
fn autodiscover_plans_the_directories_of_changed_terraform_files() {
    for (files, expected) in [
        (vec!["main.tf"], "./default"),
        (vec!["README.md"], ""),
        (vec![], ""),
        (vec!["b/main.tf", "a/x.tfvars", "b/y.tf"], "b/default, a/default"),
        (vec!["a/env/prod.tfvars"], "a/default"),
        (vec!["env/prod.tfvars"], "./default"),
        (vec!["gone/main.tf"], ""),
        (vec!["a/terraform.tfstate", "a/terraform.tfstate.backup", "a/.tflint.hcl"], ""),
        (vec!["b/modules/x/main.tf"], "b/default"),
        (vec!["a/modules/x/main.tf"], "a/default"),
        (vec!["c/modules/x/main.tf"], ""),
        (vec!["mymodules/x/main.tf"], "mymodules/x/default"),
    ] {
        let dirs = [".", "a", "a/env", "a/modules/x", "b", "b/modules/x", "c/modules/x", "mymodules/x", "env"];
        let scene = scene(MemoryTree::of_dirs(dirs), &files);
        assert_eq!(scene.autoplan(), expected, "{files:?}");
        assert_eq!(scene.comment("plan"), expected, "{files:?}");
    }
}

#[test]
fn a_root_without_terraform_is_not_the_project_of_its_modules() {
    let scene = scene(MemoryTree::of_dirs(["modules/null", "staging"]), &["modules/null/main.tf"]);
    assert_eq!(scene.autoplan(), "");
    assert_eq!(scene.comment("plan -d staging"), "staging/default");
}

#[test]
fn autoplan_modules_plans_those_who_use_a_changed_module() {
    let uses = |path: &str| format!("module \"m\" {{\n  source = \"{path}\"\n}}");
    let (direct, indirect) = (uses("../modules/thing"), uses("../modules/outer"));
    let tree = MemoryTree::new([
        ("modules/thing/main.tf", ""),
        ("modules/outer/main.tf", &uses("../thing")),
        ("staging/main.tf", &direct),
        ("production/main.tf", &indirect),
        ("standalone/main.tf", ""),
    ]);
    let scene = scene(tree, &["modules/thing/main.tf"]);
    assert_eq!(scene.autoplan(), "");
    let scene = scene.with(|options| options.autoplan_modules_from = vec!["**/*.tf".into()]);
    assert_eq!(scene.autoplan(), "production/default, staging/default");
    let listed = scene.yaml("projects:\n- {name: s, dir: staging}\n- {name: x, dir: standalone}");
    assert_eq!(listed.autoplan(), "s");
}

#[test]
fn the_workspace_of_a_discovered_project_is_in_its_cloud_block() {
    let cloud =
        |name: &str| format!("terraform {{\n  cloud {{\n    workspaces {{\n      name = \"{name}\"\n    }}\n  }}\n}}");
    let tree = MemoryTree::new([
        ("a/main.tf", &cloud("prod")),
        ("b/main.tf", "terraform {\n  cloud {"),
        ("c/main.tf.json", r#"{"terraform": {"cloud": [{"workspaces": {"name": "json"}}]}}"#),
        ("bad/main.tf", &cloud("../x")),
    ]);
    let discovered = scene(tree.clone(), &["a/main.tf", "b/main.tf", "c/main.tf.json"]);
    assert_eq!(discovered.autoplan(), "a/prod, b/default, c/json");
    assert_eq!(discovered.comment("plan -d a"), "a/prod");
    assert_eq!(discovered.comment("plan -d a -w other"), "a/other");
    assert_snapshot!(scene(tree, &["bad/main.tf"]).autoplan(), @r#"config: bad/main.tf:4:14: `name` in the `cloud` block: "../x" cannot be the name of a workspace: it must not contain a slash or backslash"#);
}

#[test]
fn each_project_is_read_as_its_distribution_reads_it() {
    let cloud =
        |name: &str| format!("terraform {{\n  cloud {{\n    workspaces {{\n      name = \"{name}\"\n    }}\n  }}\n}}");
    let uses = |path: &str| format!("module \"m\" {{\n  source = \"{path}\"\n}}");
    let tree = MemoryTree::new([
        ("a/main.tf", &cloud("terraform")),
        ("a/main.tofu", &cloud("tofu")),
        ("b/main.tf", &uses("../modules/terraform")),
        ("b/main.tofu", &uses("../modules/tofu")),
        ("modules/terraform/main.tf", ""),
        ("modules/tofu/main.tf", ""),
    ]);
    let discovered = scene(tree.clone(), &["a/main.tf"]);
    assert_eq!(discovered.autoplan(), "a/terraform");
    let tofu = discovered.with(|options| options.default_distribution = Distribution::OpenTofu);
    assert_eq!(tofu.autoplan(), "a/tofu");
    let listed = |file: &str| {
        let scene = scene(tree.clone(), &[file]).with(|options| options.autoplan_modules_from = vec!["**/*.tf".into()]);
        scene.yaml("projects:\n- {name: t, dir: b}\n- {name: o, dir: b, terraform_distribution: opentofu}")
    };
    assert_eq!(listed("modules/terraform/main.tf").autoplan(), "t");
    assert_eq!(listed("modules/tofu/main.tf").autoplan(), "o");
    let scene = listed("README.md");
    let touched = |project: usize, file: &str| {
        let project = &scene.config.as_ref().unwrap().projects[project];
        touched_by(project, &[file.to_owned()], &scene.facts())
    };
    assert!(touched(0, "modules/terraform/main.tf") && !touched(0, "modules/tofu/main.tf"));
    assert!(touched(1, "modules/tofu/main.tf") && !touched(1, "modules/terraform/main.tf"));
}

#[test]
fn autodiscover_follows_server_then_repository_then_flag() {
    let base = || {
        scene(
            MemoryTree::of_dirs(["app", "infra", "legacy/old"]),
            &["app/main.tf", "infra/main.tf", "legacy/old/main.tf"],
        )
    };
    let app = "projects:\n- {name: app, dir: app}\n";
    assert_eq!(base().yaml(app).autoplan(), "app", "auto: only what is listed");
    let enabled = format!("{app}autodiscover: {{mode: enabled}}");
    assert_eq!(base().yaml(&enabled).autoplan(), "app, infra/default, legacy/old/default");
    let disabled = "repos:\n- {id: /.*/, autodiscover: {mode: disabled}}";
    assert_eq!(base().server(disabled).yaml(&enabled).autoplan(), "app");
    assert_eq!(base().with(|options| options.autodiscover_mode = AutodiscoverMode::Disabled).autoplan(), "");
    let ignoring = format!("{app}autodiscover: {{mode: enabled, ignore_paths: ['legacy/**']}}");
    let scene = base().yaml(&ignoring);
    assert_eq!(scene.autoplan(), "app, infra/default");
    assert_eq!(scene.comment("plan -d legacy/old"), "(silence)");
    assert_eq!(scene.planned("apply -d legacy/old", &[]), "(silence)");
    let servers = "repos:\n- {id: /.*/, autodiscover: {mode: enabled, ignore_paths: [infra]}}";
    assert_eq!(base().server(servers).yaml(&ignoring).autoplan(), "app, legacy/old/default");
}

#[test]
fn projects_of_other_base_branches_are_not_discovered_instead() {
    let yaml = "projects:\n- {name: rel, dir: rel, branch: /^release/}";
    let scene = scene(MemoryTree::of_dirs(["rel", "free"]), &["rel/main.tf", "free/main.tf"]);
    let auto = scene.yaml(yaml);
    assert_eq!(auto.autoplan(), "");
    assert_snapshot!(auto.comment("plan -d rel"), @"`rel` has projects for other base branches only, says `branch` in its configuration");
    assert_snapshot!(auto.comment("plan -p rel"), @"no project with name `rel`: none that is configured for this base branch has a name; choose a directory: `atlantis plan -d DIR`");
    assert_eq!(auto.yaml(&format!("{yaml}\nautodiscover: {{mode: enabled}}")).autoplan(), "free/default");
}

#[test]
fn when_modified_decides_on_listed_projects() {
    let yaml = "
projects:
- dir: app
  autoplan: {when_modified: ['**/*.tf', '!docs/*.tf', '../config/*.json']}
- dir: manual
  autoplan: {enabled: false}
";
    let plan = |file: &str| {
        let scene = scene(MemoryTree::of_dirs(["app", "app/docs", "manual"]), &[file]).yaml(yaml);
        (scene.autoplan(), scene.comment("plan"))
    };
    let both = |text: &str| (text.to_owned(), text.to_owned());
    assert_eq!(plan("config/app.json"), both("app/default"));
    assert_eq!(plan("app/docs/example.tf"), both(""));
    assert_eq!(plan("app/deep/x.tf"), both("app/default"));
    assert_eq!(plan("manual/main.tf"), (String::new(), "manual/default".to_owned()));
    let scene = scene(MemoryTree::of_dirs(["app"]), &["manual/main.tf"]).yaml(yaml);
    assert_eq!(scene.comment("plan"), "", "its directory is gone");
    assert_eq!(
        self::scene(MemoryTree::of_dirs(["manual"]), &[]).yaml(yaml).comment("plan -d manual"),
        "manual/default"
    );
}

#[test]
fn a_wrong_pattern_is_a_configuration_error() {
    let scene = scene(MemoryTree::of_dirs(["a"]), &["a/main.tf"]);
    assert_snapshot!(scene.yaml("projects:\n- {dir: a, autoplan: {when_modified: ['[']}}").autoplan(), @"config: project `a/default`: autoplan.when_modified: pattern `a/[`: a `[` is not closed");
}

#[test]
fn groups_ascend_and_keep_the_files_order_within() {
    let yaml = "
parallel_plan: true
parallel_apply: false
abort_on_execution_order_fail: true
projects:
- {name: c, dir: c, execution_order_group: 2}
- {name: a, dir: a}
- {name: b, dir: b, execution_order_group: -1}
- {name: d, dir: d}
";
    let scene = scene(MemoryTree::of_dirs(["a", "b", "c", "d"]), &["a/x.tf", "b/x.tf", "c/x.tf", "d/x.tf"]).yaml(yaml);
    assert_eq!(scene.autoplan(), "b | a, d | c");
    let schedule = for_plan(&command("plan"), &scene.facts()).unwrap();
    assert!(schedule.parallel_plan && !schedule.parallel_apply && schedule.abort_on_execution_order_fail);
    assert_eq!(scene.planned("apply", &["c/default=c", "d/default=d", "a/default=a"]), "d, a | c");
}

#[test]
fn planned_projects_have_their_configuration_of_now() {
    let server = "repos:\n- id: /.*/\n  apply_requirements: [approved]\n  allowed_overrides: [apply_requirements]";
    let yaml = "projects:\n- {name: free, dir: a, apply_requirements: []}";
    let scene = scene(MemoryTree::of_dirs(["a", "b"]), &[]).server(server).yaml(yaml);
    let schedule = for_planned(&command("apply"), &[id("a/default=free"), id("b/default")], &scene.facts()).unwrap();
    let requirements: Vec<usize> = schedule.groups[0].iter().map(|project| project.apply_requirements.len()).collect();
    assert_eq!(requirements, [0, 1]);
}

#[test]
fn a_project_is_touched_by_its_patterns_or_its_modules() {
    let tree = MemoryTree::new([
        ("a/main.tf", "module \"m\" {\n  source = \"../modules/m\"\n}"),
        ("b/main.tf", ""),
        ("modules/m/main.tf", ""),
    ]);
    let scene = scene(tree, &[]).yaml("projects:\n- {dir: b, autoplan: {when_modified: ['*.json']}}");
    let facts = scene.facts();
    let touched = |project: &str, file: &str| touched_by(&configured(&id(project), &facts), &[file.to_owned()], &facts);
    for (project, file, expected) in [
        ("a/default", "a/main.tf", true),
        ("a/default", "a/README.md", false),
        ("a/default", "b/main.tf", false),
        ("a/default", "modules/m/main.tf", true),
        ("a/default", "modules/other/main.tf", false),
        ("b/default", "b/x.json", true),
        ("b/default", "b/main.tf", false),
    ] {
        assert_eq!(touched(project, file), expected, "{project} {file}");
    }
}

#[test]
fn glob_dirs_stand_for_directories_with_terraform_files() {
    let tree = MemoryTree::new([
        ("envs/dev/main.tf", ""),
        ("envs/prod/main.tofu", ""),
        ("envs/grunt/terragrunt.hcl", ""),
        ("envs/json/main.tf.json", ""),
        ("envs/docs/README.md", ""),
        ("envs/dev/deep/main.tf", ""),
    ]);
    assert_eq!(Directories::new(&tree).matching("envs/*"), ["envs/dev", "envs/grunt", "envs/json", "envs/prod"]);
    assert_eq!(Directories::new(&tree).matching("**/deep"), ["envs/dev/deep"]);
    let rooted = MemoryTree::of_dirs([".", "a", "a/b"]);
    for (glob, dirs) in [
        ("*", vec!["a"]),
        ("?", vec!["a"]),
        ("**/*", vec!["a", "a/b"]),
        ("**", vec![".", "a", "a/b"]),
        ("a/**", vec!["a", "a/b"]),
    ] {
        assert_eq!(Directories::new(&rooted).matching(glob), dirs, "{glob}");
    }
    let scene = scene(tree, &["envs/dev/main.tf", "envs/dev/deep/main.tf"]).yaml("projects:\n- {dir: envs/*}");
    assert_eq!(scene.autoplan(), "envs/dev/default");
}

proptest! {
    #[test]
    fn order_within_a_group_is_the_files(groups in proptest::collection::vec(-3i64..3, 1..40)) {
        let scene = scene(MemoryTree::default(), &[]);
        let projects: Vec<ProjectConfig> = groups
            .iter()
            .enumerate()
            .map(|(number, group)| {
                let mut project = ProjectConfig::from_rules(id(&format!("{number:03}/default")), &scene.rules);
                project.execution_order_group = *group;
                project
            })
            .collect();
        let scheduled = schedule(projects.clone(), &scene.facts()).unwrap().groups.concat();
        let mut sorted = projects;
        sorted.sort_by_key(|project| (project.execution_order_group, project.id.dir.clone()));
        prop_assert_eq!(scheduled, sorted);
    }
}

/// A tree that counts how often it is walked.
struct Counted(MemoryTree, std::cell::Cell<usize>);

impl Tree for Counted {
    fn is_dir(&self, dir: &str) -> bool {
        self.0.is_dir(dir)
    }
    fn files(&self, dir: &str) -> Vec<String> {
        self.0.files(dir)
    }
    fn dirs(&self) -> Vec<String> {
        self.1.set(self.1.get() + 1);
        self.0.dirs()
    }
    fn read(&self, path: &str) -> Option<String> {
        self.0.read(path)
    }
}

#[test]
fn the_tree_is_walked_once_for_all_globs_of_a_config() {
    let tree = Counted(MemoryTree::of_dirs(["a/one", "a/two", "b/one"]), Default::default());
    let directories = Directories::new(&tree);
    assert_eq!(tree.1.get(), 0);
    assert_eq!(directories.matching("a/*"), ["a/one", "a/two"]);
    assert_eq!(directories.matching("*/one"), ["a/one", "b/one"]);
    assert_eq!(tree.1.get(), 1);
}
