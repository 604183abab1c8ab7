//! Inputs of a plan besides the files of its directory: modules, files that its code reads, and those that its workflow names.

use crate::support::*;
use std::os::unix::ffi::OsStrExt;

/// Code of a project at `dir` whose input is this expression.
fn reading(dir: &str, expression: &str) -> String {
    let state = dir.replace('/', "-");
    terraform(&state, "VALUE").replace("\"VALUE\"", expression)
}

fn sparse(files: &[(&str, &str)]) -> Setup {
    Setup::repo(files).file("unneeded/readme", "not needed\n").flags(&["--sparse-checkout"])
}

fn has(ctx: &Ctx, path: &str) -> bool {
    ctx.server.data(&format!("repos/acme/infra/1/default/{path}")).exists()
}

const SHARED: [(&str, &str); 3] =
    [("shared/keys/one.json", "ONE\n"), ("shared/flag", "set\n"), ("shared/greeting.tpl", "hello ${name}\n")];

#[test]
fn a_sparse_tree_has_the_files_that_code_reads() {
    let expression = "join(\",\", [join(\"+\", fileset(\"${path.module}/../shared/keys\", \"*.json\")), \
                      fileexists(\"../shared/flag\") ? \"flagged\" : \"bare\", \
                      templatefile(\"${path.root}/../shared/greeting.tpl\", { name = \"you\" }), module.m.there])";
    let code =
        |extra: &str| format!("{}\nmodule \"m\" {{\n  source = \"../linked/m\"\n}}\n{extra}", reading("a", expression));
    let module = "output \"there\" {\n  value = fileexists(\"${path.module}/../../config/on\") ? \"on\" : \"off\"\n}\n";
    let setup = sparse(&SHARED).file("a/main.tf", &code("")).file("real/m/main.tf", module).file("config/on", "\n");
    run_test(setup, async |ctx| {
        ctx.push_links("main", &[("linked", "real")]).await;
        let pull = ctx.open("change", &[("a/main.tf", &code("# changed\n"))]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("one.json,flagged,hello you").has("on");
        said.has_not("bare").has_not("off");
        assert!(has(ctx, "shared/flag") && !has(ctx, "unneeded"));
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_sparse_tree_is_whole_where_nobody_can_tell_what_code_reads() {
    let code = |default: &str| {
        let input = reading("a", "fileexists(var.flag) ? \"flagged\" : \"bare\"");
        format!("{input}\nvariable \"flag\" {{\n  default = \"{default}\"\n}}\n")
    };
    run_test(sparse(&SHARED).file("a/main.tf", &code("x")), async |ctx| {
        let pull = ctx.open("change", &[("a/main.tf", &code("../shared/flag"))]).await;
        ctx.next(&pull).await.is("plan", "success").has("flagged");
        assert!(has(ctx, "unneeded"));
    });
}

/// Projects whose plan gets a variable file from the server's own workflow.
fn with_var_file() -> Setup {
    let code = format!("{}variable \"v\" {{}}\n", reading("a", "var.v"));
    let rules = "repos:\n  - id: /.*/\n    workflow: custom\nworkflows:\n  custom:\n    plan:\n      steps:\n        - init:\n            extra_args: [\"-backend-config=../vars/backend.hcl\"]\n        - plan:\n            extra_args: [-var-file, \"../vars/$WORKSPACE.tfvars\"]\n";
    Setup::repo(&[("a/main.tf", &code), ("b/main.tf", &code), ("unneeded/readme", "\n")])
        .file("vars/default.tfvars", "v = \"from vars\"\n")
        .file("vars/backend.hcl", "")
        .repos_yaml(rules)
}

#[test]
fn a_sparse_tree_has_the_files_that_the_servers_workflow_names() {
    run_test(with_var_file().flags(&["--sparse-checkout"]), async |ctx| {
        let pull = ctx.open("change", &[("a/new.tf", "# changed\n")]).await;
        ctx.next(&pull).await.is("plan", "success").has("from vars");
        assert!(!has(ctx, "unneeded"));
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_variable_file_of_the_servers_workflow_plans_all_that_are_made_of_it() {
    let config = "version: 3\nautodiscover: {mode: enabled}\nprojects:\n  - dir: a\n";
    run_test(with_var_file().file("atlantis.yaml", config), async |ctx| {
        let pull = ctx.open("change", &[("vars/backend.hcl", "# changed\n")]).await;
        let said = ctx.next(&pull).await;
        let dirs: Vec<_> = said.outcomes().into_iter().map(|(dir, _)| dir).collect();
        assert_eq!(dirs, ["a", "b"]);
    });
}

#[test]
fn a_file_that_code_reads_plans_those_who_read_it() {
    let read = |dir: &str| (format!("{dir}/main.tf"), reading(dir, "file(\"${path.module}/../shared/flag\")"));
    let config = "version: 3\nautodiscover: {mode: enabled}\nprojects:\n  - dir: a\n";
    let mut setup = Setup::repo(&SHARED).file("atlantis.yaml", config).file("c/main.tf", &terraform("c", "1"));
    for (path, text) in ["a", "b"].map(read) {
        setup = setup.file(&path, &text);
    }
    run_test(setup, async |ctx| {
        let pull = ctx.open("change", &[("shared/flag", "changed\n")]).await;
        let said = ctx.next(&pull).await;
        said.has("changed");
        let dirs: Vec<_> = said.outcomes().into_iter().map(|(dir, _)| dir).collect();
        assert_eq!(dirs, ["a", "b"]);
    });
}

#[test]
fn a_plan_is_invalidated_by_a_file_that_its_code_reads() {
    let code = reading("a", "file(\"${path.module}/../shared/flag\")");
    let setup = Setup::repo(&SHARED).file("a/main.tf", &code).file("c/main.tf", &terraform("c", "1"));
    let setup = setup.repos_yaml("repos: [{id: /.*/, repo_locks: {mode: strict}, plan_requirements: []}]");
    run_test(setup.flags(&["--checkout-strategy=merge"]), async |ctx| {
        let pull = ctx.planned_own("first", &["a"]).await;
        ctx.repo.push("main", &[("unread/file", Some("1\n"))]).await.unwrap();
        ctx.repo.push("main", &[("shared/flag", Some("moved\n"))]).await.unwrap();
        ctx.next(&pull).await.is_message("plans_fell").has("dir `a`");
        ctx.next(&pull).await.is_replan("success").has("moved");
    });
}

#[test]
fn a_directory_whose_name_is_not_utf8_is_reported() {
    let config = "version: 3\nautodiscover: {mode: enabled}\nprojects:\n  - dir: a\n";
    run_test(Setup::projects(&["a"]).file("atlantis.yaml", config), async |ctx| {
        let path = std::ffi::OsStr::from_bytes(b"caf\xe9/main.tf");
        ctx.push_raw("change", path, &terraform("cafe", "1")).await;
        let pull = ctx.open("change", &[("a/main.tf", &terraform("a", "2"))]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("caf\u{fffd}").has("is not UTF-8");
    });
}
