//! Order of Terragrunt units.

use super::*;

const ON: &str = "repos:\n  - id: /.*/\n    terragrunt: true\n";

/// Creates units from names and the names that each depends on.
fn live(units: &[(&str, &[&str])]) -> Scene {
    let file = |on: &[&str]| {
        let paths = on.iter().map(|on| if on.starts_with('$') { (*on).to_owned() } else { format!("\"../{on}\"") });
        let paths = paths.collect::<Vec<_>>().join(", ").replace("$env", "get_env(\"X\")");
        format!("terraform {{\n  source = \"git::https://x.test/m\"\n}}\ndependencies {{\n  paths = [{paths}]\n}}\n")
    };
    let files = units.iter().map(|(name, on)| (format!("{name}/terragrunt.hcl"), file(on)));
    let modified: Vec<String> = units.iter().map(|(name, _)| format!("{name}/terragrunt.hcl")).collect();
    let modified: Vec<&str> = modified.iter().map(String::as_str).collect();
    scene(MemoryTree::from_files(files), &modified).server(ON)
}

fn plan_of(scene: &Scene) -> Result<Schedule, NoSchedule> {
    for_plan(&Command::new(CommandName::Plan, Trigger::Autoplan, "alice"), &scene.facts())
}

fn layers_of(schedule: &Schedule) -> Vec<Vec<&str>> {
    schedule.groups.iter().map(|group| group.iter().map(|project| project.id.dir.as_str()).collect()).collect()
}

#[test]
fn units_are_planned_after_those_that_they_depend_on() {
    let scene = live(&[("app", &["vpc", "db"]), ("db", &["vpc"]), ("other", &[]), ("vpc", &[])]);
    let schedule = plan_of(&scene).unwrap();
    assert_eq!(layers_of(&schedule), [vec!["other", "vpc"], vec!["db"], vec!["app"]]);
    assert!(schedule.groups.iter().flatten().all(|project| project.terragrunt) && schedule.remarks.is_empty());
    assert_eq!(schedule.dependencies[&id("app/default")], [id("db/default"), id("vpc/default")].into());
    // A unit that is planned alone still has its dependencies.
    let alone = for_plan(&command("plan -d app"), &scene.facts()).unwrap();
    assert_eq!((layers_of(&alone), alone.units[&id("app/default")].on.len()), (vec![vec!["app"]], 2));
}

#[test]
fn order_groups_come_first_and_the_switch_is_off_where_nobody_sets_it() {
    let projects = "projects:\n  - dir: app\n    execution_order_group: 1\n    terragrunt: true\n  - dir: vpc\n    execution_order_group: 1\n    terragrunt: true\n  - dir: db\n";
    let files =
        |dir: &str, on: &str| (format!("{dir}/terragrunt.hcl"), format!("dependencies {{\n  paths = [{on}]\n}}\n"));
    let tree = [files("app", "\"../vpc\""), files("db", "\"../app\""), files("vpc", "")];
    let scene = scene(
        MemoryTree::from_files(tree.into_iter()),
        &["app/terragrunt.hcl", "db/terragrunt.hcl", "vpc/terragrunt.hcl"],
    );
    let scene = scene.yaml(projects);
    let schedule = plan_of(&scene).unwrap();
    assert_eq!(layers_of(&schedule), [vec!["db"], vec!["vpc"], vec!["app"]]);
    assert!(!schedule.groups[0][0].terragrunt && schedule.groups[1][0].terragrunt);
}

#[test]
fn a_unit_that_does_not_tell_all_runs_after_those_that_do_and_people_are_told_once() {
    let schedule = plan_of(&live(&[("a", &["$env"]), ("after", &["a"]), ("b", &["$env"]), ("c", &[])])).unwrap();
    assert_eq!(layers_of(&schedule), [vec!["c"], vec!["a"], vec!["b"], vec!["after"]]);
    assert_eq!(schedule.remarks.len(), 2);
    assert!(schedule.remarks[0].starts_with("`a/terragrunt.hcl`, line 5: `paths` of `dependencies` cannot be told"));
}

#[test]
fn units_in_a_circle_are_refused_by_name() {
    let refused = plan_of(&live(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("free", &[])])).unwrap_err();
    let NoSchedule::Config(error) = refused else { panic!("{refused:?}") };
    assert_eq!(
        error.to_string(),
        "units of Terragrunt depend on each other in a cycle: `a` → `b` → `c` → `a`; remove one of these dependencies"
    );
}

#[test]
fn a_deep_chain_of_units_takes_no_stack() {
    let names: Vec<String> = (0..2000).map(|n| format!("u{n:04}")).collect();
    let files = names.iter().enumerate().map(|(n, name)| {
        let on = names.get(n + 1).map(|next| format!("\"../{next}\"")).unwrap_or_default();
        (format!("{name}/terragrunt.hcl"), format!("dependencies {{\n  paths = [{on}]\n}}\n"))
    });
    let scene = scene(MemoryTree::from_files(files), &[]).yaml("projects:\n  - dir: u0000\n    terragrunt: true\n");
    let schedule = for_plan(&command("plan -d u0000"), &scene.facts()).unwrap();
    assert_eq!(schedule.units[&id("u0000/default")].on.len(), 1999);
}

#[test]
fn a_chain_of_units_that_makes_too_many_pairs_is_refused() {
    let files = (0..1500).map(|n| {
        let text = format!(
            "terraform {{\n  source = \"git::https://x.test/m\"\n}}\ndependencies {{\n  paths = [\"../u{}\"]\n}}\n",
            n + 1
        );
        (format!("u{n}/terragrunt.hcl"), text)
    });
    let scene = scene(MemoryTree::from_files(files), &["u1499/terragrunt.hcl"]).server(ON);
    let Err(NoSchedule::Config(error)) = plan_of(&scene) else { panic!("it is not refused") };
    let error = error.to_string();
    assert!(
        error.starts_with("units of Terragrunt have more than 500000 dependencies between units, at `u"),
        "{error}"
    );
}
