//! `-d`, `-w`, `-p`: their selections, and their refusals.

use super::*;

/// A repository with all kinds of projects.
fn configured_scene() -> Scene {
    let yaml = "
projects:
- {dir: app, workspace: staging}
- {dir: app, workspace: prod}
- {name: one, dir: shared}
- {name: two, dir: shared}
- {name: net-eu, dir: net/eu}
- {name: net-us, dir: net/us}
- {dir: gone, name: gone}
";
    let dirs = ["app", "shared", "net/eu", "net/us", "free"];
    scene(MemoryTree::of_dirs(dirs), &["shared/main.tf"]).yaml(yaml)
}

#[test]
fn targets_choose_projects() {
    let scene = configured_scene();
    for (text, expected) in [
        ("plan -p one", "one"),
        ("plan -d app -w prod", "app/prod"),
        ("plan -d net/eu", "net-eu"),
        ("plan -d net/*", "net-eu, net-us"),
        ("plan -d {net,db}/*", "net-eu, net-us"),
        ("plan -d free", "free/default"),
        ("plan -d free -w x", "free/x"),
        ("import -p two", "two"),
        ("plan -p two -p one", "two, one"),
        ("plan -d net/* -d free -d net/eu", "net-eu, net-us, free/default"),
        (
            "plan -p one -p nope",
            "no project with name `nope`; there are: `one`, `gone`, `two`, `net-eu`, `net-us`; for example `atlantis plan -p one`",
        ),
    ] {
        assert_eq!(scene.comment(text), expected, "{text}");
    }
    let root =
        self::scene(MemoryTree::of_dirs(["."]), &[]).yaml("projects:\n- {dir: .}\n- {dir: ., workspace: staging}");
    assert_eq!(root.comment("plan -w staging"), "./staging");
    assert_eq!(root.comment("plan -w default"), "./default");
    assert_eq!(root.comment("plan -d ."), "./default");
}

#[test]
fn refused_targets_name_the_next_command() {
    let scene = configured_scene();
    assert_snapshot!(scene.comment("plan -p nope"), @"no project with name `nope`; there are: `one`, `gone`, `two`, `net-eu`, `net-us`; for example `atlantis plan -p one`");
    assert_snapshot!(scene.comment("plan -d app"), @"`app` is not configured for the workspace `default`; there are: `atlantis plan -d app -w staging`, `atlantis plan -d app -w prod`");
    assert_snapshot!(scene.comment("plan -d app -w nope"), @"`app` is not configured for the workspace `nope`; there are: `atlantis plan -d app -w staging`, `atlantis plan -d app -w prod`");
    assert_snapshot!(scene.comment("plan -d shared"), @"`shared` (workspace `default`) has more than one project; name one: `atlantis plan -p one`, `atlantis plan -p two`");
    assert_snapshot!(scene.comment("plan -d nowhere"), @"the directory `nowhere` does not exist in this pull request; give one that does: `atlantis plan -d DIR`");
    assert_snapshot!(scene.comment("plan -p gone"), @"the directory `gone` of project `gone` does not exist in this pull request; see what there is with `atlantis plan`");
    assert_snapshot!(scene.comment("plan -d db/*"), @"`-d db/*` matches no configured project in workspace `default`; there are: `gone`, `net/eu`, `net/us`, `shared`; a glob chooses among the projects of `atlantis.yaml`; for one directory: `atlantis plan -d DIR`");
    assert_snapshot!(scene.comment("plan -d free -w ../x"), @r#"`-w "../x"` is not a valid workspace name: it must not contain a slash or backslash"#);
    assert_snapshot!(scene.comment("import"), @"import cannot run on multiple projects; name one: `atlantis import -p one`, `atlantis import -p two`");
    assert_snapshot!(self::scene(MemoryTree::of_dirs(["."]), &[]).comment("plan -p app"), @"cannot choose the project `app` by name: no `atlantis.yaml` here configures projects; choose its directory: `atlantis plan -d DIR`");
    assert_snapshot!(self::scene(MemoryTree::of_dirs(["."]), &[]).yaml("projects: [{dir: .}]").comment("plan -p app"), @"no project with name `app`: none that is configured for this base branch has a name; choose a directory: `atlantis plan -d DIR`");
}

#[test]
fn the_next_command_repeats_the_arguments_of_this_one() {
    let mut command = command("import -d shared");
    command.positional = vec!["a.b[\"x\"]".to_owned(), "id".to_owned()];
    command.extra_args = vec!["-lock=false".to_owned()];
    assert_snapshot!(labels(for_plan(&command, &configured_scene().facts())), @r#"`shared` (workspace `default`) has more than one project; name one: `atlantis import -p one 'a.b["x"]' id -- '-lock=false'`, `atlantis import -p two 'a.b["x"]' id -- '-lock=false'`"#);
}

#[test]
fn under_silence_no_projects_a_miss_is_another_servers_business() {
    let scene = configured_scene().with(|options| options.silence_no_projects = true);
    assert_eq!(scene.comment("plan -p nope -p one"), "one", "the other name is another server's");
    for text in ["plan -p nope", "plan -d free", "plan -d db/*"] {
        assert_eq!(scene.comment(text), "(silence)", "{text}");
    }
    let bare = self::scene(MemoryTree::of_dirs(["a"]), &[]).with(|options| options.silence_no_projects = true);
    assert_eq!(bare.comment("plan -d a"), "a/default");
}

#[test]
fn regex_targets_are_anchored_and_limited_by_prefixes() {
    let scene = configured_scene().with(|options| options.enable_regexp_cmd = true);
    assert_eq!(scene.comment("plan -p net-.*"), "net-eu, net-us");
    assert_eq!(scene.comment("plan -p one"), "one");
    assert_snapshot!(scene.comment("plan -p on"), @"no project with name `on`; there are: `one`, `gone`, `two`, `net-eu`, `net-us`; for example `atlantis plan -p one`");
    assert_snapshot!(scene.comment("plan -p one)|(two"), @"`-p one)|(two` is not a valid regular expression; fix it, or give a project's whole name");
    assert_eq!(scene.planned("apply -p net-.*", &["net/eu/default=net-eu", "net/us/default=net-us"]), "net-eu, net-us");
    let yaml = "allowed_regexp_prefixes: [dev]\nprojects:\n- {name: dev-a, dir: app}\n- {name: dev-b, dir: free}";
    let limited = scene.yaml(yaml);
    assert_eq!(limited.comment("plan -p dev-.*"), "dev-a, dev-b");
    assert_snapshot!(limited.comment("plan -p .*"), @"`-p .*` matches 2 projects, but does not begin with one of allowed_regexp_prefixes: `dev`; begin it with one, or name one project");
    assert_snapshot!(limited.planned("apply -p .*", &["app/default=dev-a", "free/default=dev-b"]), @"`-p .*` matches 2 projects, but does not begin with one of allowed_regexp_prefixes: `dev`; begin it with one, or name one project");
}

#[test]
fn restrict_file_list_wants_changes_in_what_is_planned() {
    let restricted = |files: &[&str]| {
        let scene =
            scene(MemoryTree::of_dirs(["a", "a/sub", "b"]), files).with(|options| options.restrict_file_list = true);
        scene.yaml("projects:\n- {name: a, dir: a}\n- {name: b, dir: b}")
    };
    assert_eq!(restricted(&["a/x.tf"]).comment("plan -d a"), "a");
    assert_snapshot!(restricted(&["a/sub/x.tf"]).comment("plan -d a"), @"`a` has no changed file in this pull request, and this server plans only directories that have (--restrict-file-list); plan what changed: `atlantis plan`");
    assert_eq!(restricted(&["a/sub/x.tf"]).comment("plan -p a"), "a");
    assert_snapshot!(restricted(&["a/x.tf", "b/x.tf"]).comment("plan -p a"), @"this pull request changes files outside of the chosen project, which this server refuses (--restrict-file-list): `b/x.tf`; plan everything: `atlantis plan`");
    assert_eq!(restricted(&[]).comment("import -d a"), "a", "only plans are restricted");
}

#[test]
fn apply_finds_what_was_planned() {
    let scene = configured_scene();
    let planned = ["shared/default=one", "free/default", "app/prod", "shared/default=old", "free/x"];
    for (text, expected) in [
        ("apply", "one, free/default, app/prod, old, free/x"),
        ("apply -p one", "one"),
        ("apply -p old", "old"),
        ("apply -p two", "two"),
        ("apply -p two -p old", "two, old"),
        ("apply -d f* -d net/*", "free/default, net-eu, net-us"),
        ("apply -d free", "free/default"),
        ("apply -d free -w x", "free/x"),
        ("apply -d app -w prod", "app/prod"),
        ("apply -d app -w staging", "app/staging"),
        ("apply -d net/*", "net-eu, net-us"),
        ("apply -d f*", "free/default"),
    ] {
        assert_eq!(scene.planned(text, &planned), expected, "{text}");
    }
    assert_snapshot!(scene.planned("apply -d shared", &planned), @"`shared` (workspace `default`) has more than one project; name one: `atlantis apply -p one`, `atlantis apply -p old`");
    assert_snapshot!(scene.planned("apply -p nope", &planned), @"no project with name `nope`; there are: `one`, `gone`, `two`, `net-eu`, `net-us`; for example `atlantis apply -p one`");
    assert_eq!(scene.planned("apply", &[]), "");
}

/// Five projects of two environments, of which the pull request changes three.
fn tagged_scene() -> Scene {
    let yaml = "
projects:
- {name: dev-net, dir: dev/net, tags: [env:dev, net]}
- {name: dev-app, dir: dev/app, tags: [env:dev]}
- {name: prod-net, dir: prod/net, tags: [env:prod, net]}
- {name: prod-app, dir: prod/app, tags: [env:prod]}
- {name: misc, dir: misc}
";
    let dirs = ["dev/net", "dev/app", "prod/net", "prod/app", "misc", "docs"];
    scene(MemoryTree::of_dirs(dirs), &["dev/net/main.tf", "prod/net/main.tf", "misc/main.tf"]).yaml(yaml)
}

#[test]
fn names_may_be_globs() {
    let scene = tagged_scene();
    for (text, expected) in [
        ("plan -p prod-*", "prod-net, prod-app"),
        (
            "plan -p ?iss -p *-net",
            "no project matches `-p ?iss`; there are: `misc`, `dev-net`, `dev-app`, `prod-net`, `prod-app`; for example `atlantis plan -p misc -p '*-net'`",
        ),
        ("plan -p *-net -p prod-*", "dev-net, prod-net, prod-app"),
        ("plan -p [a", "`-p`: `[a` is not a valid glob: unclosed character class; missing ']'; fix it"),
    ] {
        assert_eq!(scene.comment(text), expected, "{text}");
    }
    let planned = ["dev/net/default=dev-net", "prod/net/default=prod-net"];
    assert_eq!(scene.planned("apply -p *-net", &planned), "dev-net, prod-net");
    assert_eq!(scene.planned("apply -p prod-*", &planned), "prod-net");
    let limited = scene.yaml(
        "allowed_regexp_prefixes: [dev]\nprojects:\n- {name: dev-a, dir: dev/app}\n- {name: dev-b, dir: dev/net}",
    );
    assert_eq!(limited.comment("plan -p dev-*"), "dev-a, dev-b");
    assert!(limited.comment("plan -p *").contains("allowed_regexp_prefixes"));
}

#[test]
fn a_directory_of_the_very_name_is_no_glob() {
    let yaml = "projects:\n- {dir: e/a}\n- {dir: e/b}";
    let scene =
        scene(MemoryTree::of_dirs(["e/a", "e/b", "e/[ab]", "e/[a]", "e/c*", "e[b"]), &["e/[ab]/x.tf"]).yaml(yaml);
    for (text, expected) in [
        ("plan -d e/[ab]", "e/[ab]/default"),
        ("plan -d e/[ab]/", "e/[ab]/default"),
        ("plan -d e/*", "e/a/default, e/b/default"),
        ("plan -d e/c*", "e/c*/default"),
        ("plan -d e[b", "e[b/default"),
        ("plan -d e[c", "`-d`: `e[c` is not a valid glob: unclosed character class; missing ']'; quote or fix it"),
        // A directory of the name brings nothing back that a glob leaves out.
        ("plan -d e/* --except e/[a]", "e/b/default"),
        (
            "plan -d e/[ab] -d e/* --except e/[ab]",
            "nothing is left with `--except e/[ab]`; without `--except`, the projects are: `e/[ab]/default`, `e/a/default`, `e/b/default`",
        ),
        ("plan -d e/* --except e/[!b]", "e/b/default"),
    ] {
        assert_eq!(scene.comment(text), expected, "{text}");
    }
    assert_eq!(scene.planned("apply -d e/[ab]", &["e/a/default", "e/[ab]/default"]), "e/[ab]/default");
    assert_eq!(scene.planned("apply -d e/gone[1]", &["e/gone1/default", "e/gone[1]/default"]), "e/gone[1]/default");
}

#[test]
fn tags_and_exceptions_narrow_what_is_selected() {
    let scene = tagged_scene();
    for (text, expected) in [
        ("plan --tag net", "dev-net, prod-net"),
        ("plan --tag env:prod", "prod-net"),
        ("plan --tag not+env:prod", "dev-net, misc"),
        ("plan --tag env:dev+or+env:prod --except prod/**", "dev-net"),
        ("plan --except misc", "dev-net, prod-net"),
        ("plan --except *-net", "misc"),
        ("plan --except dev/net --except prod-net", "misc"),
        ("plan --except dev --except prod", "misc"),
        // A value may mean a project that is not selected, or a directory without projects.
        ("plan --except dev-app --except docs", "dev-net, prod-net, misc"),
        // With a named target, also what the pull request does not change.
        ("plan -d ** --tag env:prod", "prod-net, prod-app"),
        ("plan -p * --tag env:prod+and+not+net", "prod-app"),
        ("plan -p prod-* --except prod-net", "prod-app"),
        ("plan -d docs --tag not+net", "docs/default"),
        ("import --tag env:prod", "prod-net"),
    ] {
        assert_eq!(scene.comment(text), expected, "{text}");
    }
    let planned = ["dev/net/default=dev-net", "prod/net/default=prod-net", "docs/default"];
    assert_eq!(scene.planned("apply --tag env:prod", &planned), "prod-net");
    assert_eq!(scene.planned("apply --except prod/*", &planned), "dev-net, docs/default");
    assert_eq!(scene.planned("apply -p *-net --tag env:dev", &planned), "dev-net");
    assert_eq!(scene.planned("apply --tag env:prod", &[]), "");
}

#[test]
fn what_narrows_to_nothing_or_matches_nothing_is_refused() {
    let scene = tagged_scene();
    assert_snapshot!(scene.comment("plan --tag not+env:prd"), @"no project has the tag `env:prd` of `--tag`; there are: `env:prod`, `env:dev`, `net`");
    assert_snapshot!(scene.comment("plan --tag env:prod+and+env:dev"), @"no project matches `--tag env:prod and env:dev`; without it, the projects are: `dev-net` (env:dev, net), `prod-net` (env:prod, net), `misc` (without tags)");
    assert_snapshot!(scene.comment("plan --except prd-*"), @"`--except prd-*` matches no project; there are: `prod-net`, `prod-app`, `misc`, `dev-net`, `dev-app`");
    assert_snapshot!(scene.comment("plan --except * --except **/net"), @"nothing is left with `--except *`, `--except **/net`; without `--except`, the projects are: `dev-net`, `prod-net`, `misc`");
    assert_snapshot!(configured_scene().comment("plan --tag a"), @"no project has the tag `a` of `--tag`; none that is configured for this base branch has `tags`");
    let silent = scene.with(|options| options.silence_no_projects = true);
    assert_eq!(silent.comment("plan --tag env:prd"), "(silence)");
    assert_eq!(silent.comment("plan --except prd-* --except prod-net"), "(silence)");
}

#[test]
fn restrict_file_list_looks_at_what_is_left() {
    let scene = tagged_scene().with(|options| options.restrict_file_list = true);
    assert_eq!(scene.comment("plan --tag env:prod"), "prod-net");
    assert_eq!(scene.comment("plan -d prod/* --tag net"), "prod-net");
    assert!(scene.comment("plan -d prod/* --tag env:prod").contains("(--restrict-file-list)"));
    assert!(scene.comment("plan -p * --except misc").contains("`misc/main.tf`"));
}
