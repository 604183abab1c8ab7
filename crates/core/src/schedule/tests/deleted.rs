use super::*;
use crate::config::{DeletedProjects, Requirement};

const CODE: &str =
    "terraform {\n  backend \"gcs\" {\n    prefix = \"a\"\n  }\n}\nresource \"x\" \"y\" {}\nlocals {\n  z = 1\n}\n";

/// Returns the text with another backend.
fn code(prefix: &str) -> String {
    CODE.replace("\"a\"", &format!("\"{prefix}\""))
}

fn deletions_of(command: &Command, base: &Scene, head: &Scene) -> Deletions {
    let (base, head) = (base.facts(), head.facts());
    let base = Facts { modified: head.modified, rules: head.rules, ..base };
    deletions(command, &emptied(head.rules, head.modified, head.tree), &head, &base).unwrap()
}

/// Returns the deleted projects, and `!` with the directories that are kept.
fn found(command: &str, base: &Scene, head: &Scene) -> String {
    let found = deletions_of(&super::command(command), base, head);
    let kept = found.kept.iter().map(|kept| format!("!{}", kept.dir));
    found.projects.iter().map(|project| project.id.label()).chain(kept).collect::<Vec<_>>().join(" ")
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
}

#[test]
fn listed_projects_are_those_of_the_base_and_depend_on_each_other_in_reverse() {
    let projects = "projects:\n- {name: net, dir: net, execution_order_group: 1}\n- {name: app, dir: app, workspace: w, depends_on: [net], execution_order_group: 2}\n- {name: web, dir: web}\n";
    let base = scene(MemoryTree::of_dirs(["net", "app", "web"]), &[]).yaml(projects);
    let rules = format!("{ON}\n  destroy_requirements: [approved, mergeable]\n  apply_requirements: [mergeable]");
    let modified = ["net/main.tf", "app/main.tf", "web/main.tf", "atlantis.yaml"];
    let head = scene(MemoryTree::of_dirs(["web"]), &modified).server(&rules).yaml("projects:\n- {dir: web}\n");
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
fn a_directory_that_looks_moved_is_kept_unless_it_is_named() {
    let base = || scene(MemoryTree::new([("a/main.tf", CODE), ("c/main.tf", &code("c"))]), &[]);
    let gone = ["a/main.tf", "b/main.tf", "c/main.tf"];
    let head = |other: &str, text: &str| {
        let files = [("c/main.tf".to_owned(), code("c")), (other.to_owned(), text.to_owned())];
        let head = scene(MemoryTree::from_files(files.into_iter()), &gone).server(ON);
        Scene { modified: vec!["a/main.tf".to_owned(), other.to_owned()], ..head }
    };
    // The same backend, and nothing else in common.
    let backend = "terraform {\n backend \"gcs\" {\n prefix = \"a\"\n }\n}\n";
    assert_eq!(found("plan", &base(), &head("b/main.tf", backend)), "!a");
    let json = "{\"terraform\": {\"backend\": {\"gcs\": {\"prefix\": \"a\"}}}}";
    assert_eq!(found("plan", &base(), &head("b/main.tf.json", json)), "!a");
    // The same code with another backend.
    assert_eq!(found("plan", &base(), &head("b/main.tf", &code("b"))), "!a");
    assert_eq!(found("plan", &base(), &head("b/main.tf", "resource \"other\" \"one\" {}\n")), "a/default");
    // An existing directory takes the backend over.
    assert_eq!(found("plan", &base(), &head("c/main.tf", backend)), "!a");
    let named = Command { extra_args: vec!["-destroy".into()], ..super::command("plan -d a") };
    assert_eq!(deletions_of(&named, &base(), &head("b/main.tf", CODE)).projects.len(), 1);
    assert_eq!(found("plan -d a", &base(), &head("b/main.tf", CODE)), "!a");
    let everything = Command { extra_args: vec!["-destroy".into()], ..super::command("plan") };
    assert_eq!(deletions_of(&everything, &base(), &head("b/main.tf", CODE)).projects.len(), 0);
}

#[test]
fn a_name_that_moves_to_another_directory_may_take_the_state_along() {
    let base = scene(MemoryTree::of_dirs(["a"]), &[]).yaml("projects:\n- {name: net, dir: a}\n");
    let head = |config: &str| {
        let tree = MemoryTree::new([("b/main.tf", "resource \"other\" \"one\" {}\n")]);
        scene(tree, &["a/main.tf", "b/main.tf", "atlantis.yaml"]).server(ON).yaml(config)
    };
    assert_eq!(found("plan", &base, &head("projects:\n- {name: net, dir: b}\n")), "!a");
    assert_eq!(found("plan", &base, &head("projects:\n- {name: other, dir: b}\n")), "net");
}

#[test]
fn a_generated_config_and_units_are_kept() {
    let base = || scene(MemoryTree::of_dirs(["a", "b"]), &[]);
    let head = scene(MemoryTree::of_dirs(["b"]), &["a/main.tf"]).server(ON).yaml("projects:\n- {dir: b}\n");
    assert_eq!(found("plan", &base(), &head), "!a");
    let text = "terraform {\n  source = \"git::https://x.test/m\"\n}\n";
    let unit = scene(MemoryTree::new([("a/terragrunt.hcl", text), ("b/main.tf", "")]), &[]);
    let head = scene(MemoryTree::of_dirs(["b"]), &["a/terragrunt.hcl"]).server(&format!("{ON}\n  terragrunt: true"));
    assert_eq!(found("plan", &unit, &head), "!a");
}
