use super::*;
use crate::config::{DeletedProjects, Requirement};

const CODE: &str =
    "terraform {\n  backend \"gcs\" {\n    prefix = \"a\"\n  }\n}\nresource \"x\" \"y\" {}\nlocals {\n  z = 1\n}\n";

/// Returns the text with another backend.
fn code(prefix: &str) -> String {
    CODE.replace("\"a\"", &format!("\"{prefix}\""))
}

/// Returns a tree of projects in these directories, each with a state of its own.
fn tree_of(dirs: &[&str]) -> MemoryTree {
    MemoryTree::from_files(dirs.iter().map(|dir| (format!("{dir}/main.tf"), code(dir))))
}

fn deletions_of(command: &Command, base: &Scene, head: &Scene) -> Deletions {
    let (base, head) = (base.facts(), head.facts());
    let base = Facts { modified: head.modified, rules: head.rules, ..base };
    deletions(command, &emptied(head.rules, head.modified, head.tree), &head, &base).unwrap()
}

/// Returns the deleted projects, and `!` with the directories that are kept.
fn found(command: &str, base: &Scene, head: &Scene) -> String {
    let (command, arguments) = command.split_once(" -- ").unwrap_or((command, ""));
    let extra_args = arguments.split_whitespace().map(str::to_owned).collect();
    let found = deletions_of(&Command { extra_args, ..super::command(command) }, base, head);
    let kept = found.kept.iter().map(|kept| format!("!{}", kept.dir));
    found.projects.iter().map(|project| project.id.label()).chain(kept).collect::<Vec<_>>().join(" ")
}

/// Returns the only reason to keep a directory, if nothing is destroyed.
fn why(base: &Scene, head: &Scene) -> String {
    let found = deletions_of(&super::command("plan"), base, head);
    assert!(found.projects.is_empty() && found.kept.len() == 1, "{found:?}");
    let because = found.kept[0].because.clone();
    because.split_once("planned as a destroy: ").unwrap().1.to_owned()
}

const ON: &str = "repos:\n- id: /.*/\n  deleted_projects: destroy";

#[test]
fn only_directories_that_lose_all_their_files_are_deleted() {
    let base = || {
        scene(MemoryTree::new([("a/main.tf", CODE), ("a/x.tf", ""), ("b/main.tf", ""), ("modules/m/main.tf", "")]), &[])
    };
    let gone = ["a/main.tf", "a/x.tf", "modules/m/main.tf"];
    let head = |files: &[(&str, &str)], modified: &[&str]| {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        scene(MemoryTree::from_files(files), modified).server(ON)
    };
    let left = [("b/main.tf", "")];
    assert_eq!(found("plan", &base(), &head(&left, &gone)), "a/default");
    assert_eq!(found("plan", &base(), &head(&left, &gone).server("repos: []")), "", "off by default");
    assert_eq!(found("plan", &base(), &head(&[("a/x.tf", ""), ("b/main.tf", "")], &gone[..1])), "", "a file is left");
    assert_eq!(found("plan", &base(), &head(&[("a/README.md", ""), ("b/main.tf", "")], &gone)), "a/default");
    // The base branch has a directory that the head does not have yet.
    assert_eq!(found("plan", &base(), &head(&left, &["b/main.tf"])), "");
    // The base branch has a file there that the head does not have yet.
    assert!(why(&base(), &head(&left, &gone[..1])).starts_with("the base branch has `a/x.tf`, which"));
}

#[test]
fn listed_projects_are_those_of_the_base_and_depend_on_each_other_in_reverse() {
    let projects = "projects:\n- {name: net, dir: net, execution_order_group: 1}\n- {name: app, dir: app, workspace: w, depends_on: [net], execution_order_group: 2}\n- {name: web, dir: web}\n";
    let base = scene(tree_of(&["net", "app", "web"]), &[]).yaml(projects);
    let rules = format!("{ON}\n  destroy_requirements: [approved, mergeable]\n  apply_requirements: [mergeable]");
    let modified = ["net/main.tf", "app/main.tf", "web/main.tf", "atlantis.yaml"];
    let head = scene(tree_of(&["web"]), &modified).server(&rules).yaml("projects:\n- {dir: web}\n");
    let command = super::command("plan");
    let found = deletions_of(&command, &base, &head);
    let net = found.projects.iter().find(|project| project.id.dir == "net").unwrap();
    assert!(net.deleted && net.depends_on == ["app"]);
    let facts = Facts { deletions: Some(&found), ..head.facts() };
    let schedule = for_plan(&command, &facts).unwrap();
    let order: Vec<String> = schedule.groups.iter().flatten().map(|project| project.id.label()).collect();
    assert_eq!(order, ["web/default", "app", "net"]);
    // The configuration of a plan is found again, whatever else is applied by then.
    let again =
        planned_deletions(std::slice::from_ref(&net.id), &head.facts(), &Facts { rules: &head.rules, ..base.facts() });
    assert_eq!(again[0].digest(), net.digest());
    assert_eq!(head.rules.deleted_projects, DeletedProjects::Destroy);
    assert_eq!(net.apply_requirements, [Requirement::Approved, Requirement::Mergeable]);
    let by_dir = for_plan(&super::command("plan -d app -w w"), &facts).unwrap();
    assert!(by_dir.groups[0][0].deleted);
    assert!(for_plan(&super::command("plan -d app -w other"), &facts).is_err());
}

#[test]
fn deleted_projects_of_one_group_go_in_reverse_too() {
    let projects = "projects:\n- {name: net, dir: net}\n- {name: app, dir: app, depends_on: [net]}\n";
    let base = scene(tree_of(&["net", "app"]), &[]).yaml(projects);
    let head = scene(tree_of(&[]), &["net/main.tf", "app/main.tf", "atlantis.yaml"]).server(ON).yaml("");
    let command = super::command("plan");
    let found = deletions_of(&command, &base, &head);
    let schedule = for_plan(&command, &Facts { deletions: Some(&found), ..head.facts() }).unwrap();
    let order: Vec<Vec<String>> =
        schedule.groups.iter().map(|group| group.iter().map(|project| project.id.label()).collect()).collect();
    assert_eq!(order, [["app"], ["net"]]);
}

#[test]
fn a_project_that_stays_keeps_what_it_depends_on() {
    let listed = "- {name: app, dir: app, depends_on: [net]}\n";
    let base = scene(tree_of(&["net", "app"]), &[]).yaml(&format!("projects:\n- {{name: net, dir: net}}\n{listed}"));
    let head = |config: &str| scene(tree_of(&["app"]), &["net/main.tf", "atlantis.yaml"]).server(ON).yaml(config);
    let still = head(&format!("projects:\n- {{name: net, dir: net}}\n{listed}"));
    assert!(why(&base, &still).starts_with("`app` still depends on it"));
    assert_eq!(found("plan -d net -- -destroy", &base, &still), "!net");
    assert_eq!(found("plan", &base, &head("projects:\n- {name: app, dir: app}\n")), "net");
    assert!(why(&base, &head("")).starts_with("`app` depends on it on the base branch, and stays"));
    // It is deleted as well, and kept.
    let moved = scene(MemoryTree::new([("b/main.tf", &code("app"))]), &["net/main.tf", "app/main.tf", "b/main.tf"]);
    assert_eq!(found("plan", &base, &moved.server(ON)), "!net !app");
}

#[test]
fn a_directory_that_looks_moved_is_kept_unless_it_is_named() {
    let base = || scene(MemoryTree::new([("a/main.tf", CODE), ("c/main.tf", "resource \"x\" \"c\" {}")]), &[]);
    let head = |other: &str, text: &str| {
        let files =
            [("c/main.tf".to_owned(), "resource \"x\" \"c\" {}".to_owned()), (other.to_owned(), text.to_owned())];
        scene(MemoryTree::from_files(files.into_iter()), &["a/main.tf", other]).server(ON)
    };
    // The same backend, and nothing else in common.
    let backend = "terraform {\n backend \"gcs\" {\n prefix = \"a\"\n }\n}\n";
    assert_eq!(found("plan", &base(), &head("b/main.tf", backend)), "!a");
    let json = "{\"terraform\": {\"backend\": {\"gcs\": {\"prefix\": \"a\"}}}}";
    assert_eq!(found("plan", &base(), &head("b/main.tf.json", json)), "!a");
    // A resource of it, with another backend.
    assert_eq!(found("plan", &base(), &head("b/main.tf", &code("b"))), "!a");
    let json = "{\"resource\": {\"x\": {\"y\": {}}}}";
    assert_eq!(found("plan", &base(), &head("b/main.tf.json", json)), "!a");
    assert_eq!(found("plan", &base(), &head("b/main.tf", "resource \"other\" \"one\" {}\n")), "a/default");
    // An existing directory takes the backend, or resources over.
    assert_eq!(found("plan", &base(), &head("c/main.tf", backend)), "!a");
    assert_eq!(found("plan", &base(), &head("c/more.tf", "import {\n  to = x.z\n  id = \"1\"\n}\n")), "!a");
    // What cannot be read may be anything.
    assert!(why(&base(), &head("b/main.tf", "resource {{{")).starts_with("`b/main.tf` cannot be compared with it"));
    let named = Command { extra_args: vec!["-destroy".into()], ..super::command("plan -d a") };
    assert_eq!(deletions_of(&named, &base(), &head("b/main.tf", CODE)).projects.len(), 1);
    assert_eq!(found("plan -d a", &base(), &head("b/main.tf", CODE)), "!a");
    for other in ["plan", "plan -d b"] {
        let other = Command { extra_args: vec!["-destroy".into()], ..super::command(other) };
        assert_eq!(deletions_of(&other, &base(), &head("b/main.tf", CODE)).projects.len(), 0);
    }
}

#[test]
fn a_copy_that_was_merged_before_keeps_the_original() {
    let files = |other: &str| [("a/main.tf", CODE.to_owned()), ("z/main.tf", other.to_owned())];
    let base = |other: &str| {
        scene(MemoryTree::from_files(files(other).map(|(path, text)| (path.to_owned(), text)).into_iter()), &[])
    };
    let head = |other: &str| {
        scene(MemoryTree::from_files([("z/main.tf".to_owned(), other.to_owned())].into_iter()), &["a/main.tf"])
            .server(ON)
    };
    let found = |other: &str| found("plan", &base(other), &head(other));
    assert_eq!(found(CODE), "!a");
    assert_eq!(
        found(&CODE.replace("prefix", "bucket = \"b\"\n    prefix")),
        "!a",
        "the other one may have this bucket too"
    );
    assert_eq!(found(&code("z")), "a/default");
    assert_eq!(found(&CODE.replace("gcs", "s3")), "a/default");
    assert_eq!(found("terraform { backend {{{"), "!a");
    assert_eq!(found("a template {{{"), "a/default");
    let reads =
        "data \"terraform_remote_state\" \"a\" {\n  backend = \"gcs\"\n  config = {\n    prefix = \"a\"\n  }\n}\n";
    assert_eq!(found(reads), "!a");
    assert_eq!(found(&reads.replace("\"a\"\n", "\"b\"\n")), "a/default");
}

#[test]
fn a_state_without_a_name_in_the_code_is_compared_with_changed_directories() {
    let partial = "terraform {\n  backend \"s3\" {}\n}\n";
    let base = || scene(MemoryTree::new([("a/main.tf", partial), ("c/main.tf", partial)]), &[]);
    let head = |files: &[(&str, &str)], modified: &[&str]| {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        scene(MemoryTree::from_files(files), modified).server(ON)
    };
    assert_eq!(found("plan", &base(), &head(&[("c/main.tf", partial)], &["a/main.tf", "c/main.tf"])), "a/default");
    let new = [("c/main.tf", partial), ("b/main.tf", partial)];
    assert_eq!(found("plan", &base(), &head(&new, &["a/main.tf", "b/main.tf"])), "!a");
}

#[test]
fn a_directory_whose_state_is_not_named_is_kept() {
    let base = scene(MemoryTree::new([("a/main.tf", "resource \"x\" \"y\" {}")]), &[]);
    let head = scene(MemoryTree::from_files(std::iter::empty()), &["a/main.tf"]).server(ON);
    assert!(why(&base, &head).starts_with("its code on the base branch has no `backend` or `cloud` block"));
    assert_eq!(found("plan -d a -- -destroy", &base, &head), "!a");
}

#[test]
fn a_module_of_another_directory_is_kept() {
    let user = "module \"m\" {\n  source = \"../a\"\n}\n";
    let base = || scene(MemoryTree::new([("a/main.tf", CODE), ("user/main.tf", user)]), &[]);
    let head = || scene(MemoryTree::new([("user/main.tf", "")]), &["a/main.tf", "user/main.tf"]).server(ON);
    assert!(why(&base(), &head()).starts_with("`user` uses it as a module"));
    let listed = base().yaml("projects:\n- {dir: a}\n");
    assert_eq!(found("plan", &listed, &head().yaml("")), "a/default");
}

#[test]
fn workflows_that_cannot_destroy_are_kept() {
    let base = || scene(tree_of(&["a"]), &[]);
    let of = |stages: &str| {
        let rules = format!("{ON}\n  workflow: w\nworkflows:\n  w:\n{stages}");
        scene(tree_of(&[]), &["a/main.tf"]).server(&rules)
    };
    let plans = of("    plan: {steps: [{run: echo}]}\n");
    assert!(why(&base(), &plans).starts_with("its workflow `w` plans with commands of its own"));
    let applies = of("    apply: {steps: [{run: terraform apply -auto-approve}]}\n");
    assert!(why(&base(), &applies).starts_with("its workflow `w` applies with commands of its own"));
    let named = of("    apply: {steps: [{run: terraform apply $PLANFILE}]}\n");
    assert_eq!(found("plan", &base(), &named), "a/default");
}

#[test]
fn a_name_that_moves_to_another_directory_may_take_the_state_along() {
    let base = scene(tree_of(&["a"]), &[]).yaml("projects:\n- {name: net, dir: a}\n");
    let head = |config: &str| {
        let tree = MemoryTree::new([("b/main.tf", "resource \"other\" \"one\" {}\n")]);
        scene(tree, &["a/main.tf", "b/main.tf", "atlantis.yaml"]).server(ON).yaml(config)
    };
    let moved = || head("projects:\n- {name: net, dir: b}\n");
    assert_eq!(found("plan", &base, &moved()), "!a");
    assert_eq!(found("plan", &base, &head("projects:\n- {name: other, dir: b}\n")), "net");
    // By this name, people mean the new directory.
    let by_name = Command { extra_args: vec!["-destroy".into()], ..super::command("plan -p net") };
    assert_eq!(deletions_of(&by_name, &base, &moved()).projects.len(), 0);
}

#[test]
fn a_generated_config_hooks_and_units_are_kept() {
    let base = || scene(tree_of(&["a", "b"]), &[]);
    let head = scene(tree_of(&["b"]), &["a/main.tf"]).server(ON).yaml("projects:\n- {dir: b}\n");
    assert_eq!(found("plan", &base(), &head), "!a");
    let hooks = format!("{ON}\n  pre_workflow_hooks: [{{run: ./generate}}]");
    let head = || scene(tree_of(&["b"]), &["a/main.tf"]).server(&hooks);
    assert!(why(&base(), &head()).starts_with("a workflow hook may write the repository's configuration"));
    let listed = base().yaml("projects:\n- {dir: a}\n- {dir: b}\n");
    let head = head().yaml("projects:\n- {dir: b}\n");
    assert!(why(&listed, &head).starts_with("workflow hooks may write files of it"));
    let text = "terraform {\n  source = \"git::https://x.test/m\"\n}\n";
    let unit = scene(MemoryTree::new([("a/terragrunt.hcl", text), ("b/main.tf", "")]), &[]);
    let head = scene(MemoryTree::of_dirs(["b"]), &["a/terragrunt.hcl"]).server(&format!("{ON}\n  terragrunt: true"));
    assert_eq!(found("plan", &unit, &head), "!a");
}
