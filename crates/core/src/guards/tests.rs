use super::code::{CodePlaces, RecordedModule, facts};
use super::plan::{GuardedPlan, without_file};
use super::*;
use crate::inputs::tree::MemoryTree;

fn guard() -> Guard {
    Guard {
        name: "code".into(),
        providers: Some(vec!["hashicorp/*".into()]),
        modules: Some(vec!["acme/*".into()]),
        forbid: vec![Forbidden::External, Forbidden::Provisioners],
        ..Guard::default()
    }
}

/// Returns the findings about the project `p` in these files.
fn found<const N: usize>(files: [(&str, &str); N]) -> Vec<String> {
    let places = CodePlaces { dir: "p", modules: &[] };
    let tripped = of_code(&[guard()], &facts(&MemoryTree::new(files), &places));
    tripped.into_iter().flat_map(|tripped| tripped.findings).collect()
}

#[test]
fn honest_code_trips_nothing() {
    let code = r#"
terraform {
  required_version = ">= 1.5"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 6.0"
    }
    mine = { "source" = "registry.terraform.io/hashicorp/other" }
    null = "3.2.4"
  }
}
provider "google" {}
resource "google_project" "a" {}
resource "mine_thing" "b" {
  text = <<-EOT
    provisioner "local-exec" {}
    data "external" "x" {}
  EOT
}
resource "terraform_data" "c" {}
data "terraform_remote_state" "d" {
  provider = terraform
  backend  = "local"
}
# data "external" "comment" {}
module "local" { source = "../m" }
module "shared" {
  source  = "acme/net/google"
  version = "1.0.0"
}
"#;
    let lock = "provider \"registry.terraform.io/hashicorp/google\" {\n  version = \"6.1.0\"\n}\n";
    let files =
        [("p/main.tf", code), ("m/main.tf", "resource \"null_resource\" \"x\" {}"), ("p/.terraform.lock.hcl", lock)];
    assert_eq!(found(files), Vec::<String>::new());
}

#[test]
fn what_runs_programs_is_found_with_its_place() {
    let program = "`external` runs a program (`forbid: external`)";
    let provisioner = "provisioner `local-exec` (`forbid: provisioners`)";
    for (path, text, finding) in [
        ("p/main.tf", "\n\ndata \"external\" \"x\" {}", format!("p/main.tf:3: {program}")),
        ("p/main.tf", "data external x {}", format!("p/main.tf:1: {program}")),
        ("p/x.tofu", "\ndata \"external\" \"x\" {}", format!("p/x.tofu:2: {program}")),
        (
            "p/x.tf",
            "resource \"null_resource\" \"x\" {\n  provisioner \"local-exec\" {}\n}",
            format!("p/x.tf:2: {provisioner}"),
        ),
        (
            "p/x.tf",
            "removed {\n  from = null_resource.x\n  provisioner \"local-exec\" {}\n}",
            format!("p/x.tf:3: {provisioner}"),
        ),
        ("p/x.tf.json", "{\n\"data\": [{\"external\": [{\"x\": {}}]}]}", format!("p/x.tf.json:2: {program}")),
        ("p/x.tf.json", "{\"data\": {\"external\": {\"x\": {}}},\n\"data\": {}}", format!("p/x.tf.json:1: {program}")),
        ("p/x.tf.json", "{\"\\u0064ata\": {\"external\": {\"x\": {}}}}", format!("p/x.tf.json:1: {program}")),
        ("p/x.tf.json", "[{}, {\"data\": {\"external\": {\"x\": {}}}}]", format!("p/x.tf.json:1: {program}")),
        (
            "p/x.tf.json",
            "{\"resource\": {\"null_resource\": {\"a\": {}, \"a\": [{\n\"provisioner\": [{\"local-exec\": {}}]}]}}}",
            format!("p/x.tf.json:2: {provisioner}"),
        ),
        ("p/x.tf", "check \"c\" {\n  data \"external\" \"x\" {}\n}", format!("p/x.tf:2: {program}")),
        (
            "p/x.tf.json",
            "{\"check\": {\"c\": {\"data\": {\"external\": {\"x\": {}}}}}}",
            format!("p/x.tf.json:1: {program}"),
        ),
        (
            "p/x.tofu",
            "terraform {\n  encryption {\n    key_provider \"external\" \"k\" {}\n  }\n}",
            format!("p/x.tofu:3: {program}"),
        ),
        (
            "p/x.tofu",
            "terraform {\n  encryption {\n    method \"external\" \"m\" {}\n  }\n}",
            format!("p/x.tofu:3: {program}"),
        ),
        (
            "p/x.tofu.json",
            "{\"terraform\": {\"encryption\": {\"key_provider\": {\"external\": {\"k\": {}}}}}}",
            format!("p/x.tofu.json:1: {program}"),
        ),
        ("p/bom.tf", "\u{feff}data \"external\" \"x\" {}", format!("p/bom.tf:1: {program}")),
    ] {
        assert_eq!(found([(path, text)]), [finding], "{text}");
    }
}

#[test]
fn code_of_local_modules_is_read_and_cycles_end() {
    let files = [
        ("p/main.tf.json", r#"{"module": {"a": {"source": "../m/a"}}}"#),
        ("m/a/main.tf", "module \"b\" {\n  source = \"../b\"\n}"),
        ("m/b/main.tf", "module \"a\" {\n  source = \"../a\"\n}\ndata \"local_command\" \"x\" {}"),
    ];
    assert_eq!(found(files), ["m/b/main.tf:4: `local_command` runs a program (`forbid: external`)"]);
}

#[test]
fn recorded_modules_count_while_the_code_calls_them() {
    let external = "data \"external\" \"x\" {}\n";
    let tree = MemoryTree::new([
        ("p/main.tf.json", r#"{"module": {"a": {"source": "acme/x/y"}}}"#),
        ("p/.terraform/modules/a/main.tf", "module \"b\" {\n  source = \"acme/x/y\"\n}"),
        ("p/.terraform/modules/a.b/main.tf", external),
        ("p/.terraform/modules/old/main.tf", external),
        ("p/.terraform/modules/test/main.tf", external),
    ]);
    let modules = [("", "p"), ("a.b", "a.b"), ("a", "a"), ("a.old", "old"), ("test.main.a", "test")];
    let modules = modules.map(|(key, dir)| {
        let dir = if key.is_empty() { dir.to_owned() } else { format!("p/.terraform/modules/{dir}") };
        RecordedModule { key: key.to_owned(), dir }
    });
    let found = of_code(&[guard()], &facts(&tree, &CodePlaces { dir: "p", modules: &modules }));
    let found: Vec<_> = found.into_iter().flat_map(|tripped| tripped.findings).collect();
    assert_eq!(found, ["p/.terraform/modules/a.b/main.tf:1: `external` runs a program (`forbid: external`)"]);
}

#[test]
fn sources_out_of_the_lists_trip() {
    for (text, finding) in [
        (
            "module \"m\" {\n  source = \"evil/net/google\"\n}",
            "p/x.tf:2: the module source `evil/net/google` is not in `modules`",
        ),
        ("module \"m\" {\n  source = \"/tmp/x\"\n}", "p/x.tf:2: the module source `/tmp/x` is not in `modules`"),
        ("module \"m\" {\n  source = \"${var.x}\"\n}", "p/x.tf:2: a module whose source is not a literal text"),
        (
            "module \"m\" {\n  source = \"../../x\"\n}",
            "p/x.tf:2: it cannot be checked: the module is not inside of the repository",
        ),
        (
            "provider \"aws\" {}\nterraform {\n  required_providers {\n    aws = { source = \"evil/aws\" }\n  }\n}",
            "p/x.tf:4: the provider `evil/aws` is not in `providers`",
        ),
        (
            "terraform {\n  required_providers {\n    aws = merge({}, {source = \"evil/aws\"})\n  }\n}",
            "p/x.tf:3: a provider whose source is not a literal text",
        ),
        (
            "terraform {\n  required_providers {\n    aws = { (\"source\") = \"evil/aws\" }\n  }\n}",
            "p/x.tf:3: a provider whose source is not a literal text",
        ),
        ("resource \"x\" \"y\" {", "p/x.tf:1: it cannot be checked: it does not parse"),
    ] {
        assert_eq!(found([("p/x.tf", text)]), [finding], "{text}");
    }
    for (text, finding) in [
        (
            r#"{"module": {"m": {"source": "acme/x/y", "source": "evil/x/y"}}}"#,
            "p/x.tf.json:1: the module source `evil/x/y` is not in `modules`",
        ),
        (
            r#"{"module": {"m": {"source": "acme/%{if true}x%{endif}"}}}"#,
            "p/x.tf.json:1: a module whose source is not a literal text",
        ),
        (
            r#"{"terraform": [{"required_providers": [{"a": {"source": "evil/a"}}]}]}"#,
            "p/x.tf.json:1: the provider `evil/a` is not in `providers`",
        ),
        ("{\n]", "p/x.tf.json:2: it cannot be checked: it is no valid JSON"),
    ] {
        assert_eq!(found([("p/x.tf.json", text)]), [finding], "{text}");
    }
    let lock = "provider \"registry.terraform.io/evil/x\" {\n  version = \"1.0.0\"\n}\n";
    assert_eq!(
        found([("p/.terraform.lock.hcl", lock)]),
        ["p/.terraform.lock.hcl: the provider `registry.terraform.io/evil/x` is not in `providers`"]
    );
    assert_eq!(
        found([("p/.terraform.lock.hcl", "provider \"")]),
        ["p/.terraform.lock.hcl: it cannot be checked: it does not parse"]
    );
}

#[test]
fn what_hides_blocks_from_the_parser_is_refused() {
    let after = "\n}\ndata \"external\" \"x\" {\n  program = [\"sh\"]\n}\nlocals {\n";
    for (text, line, why) in [
        (format!("locals {{\n  a = <<EOT\ntext\nEOT /*\nEOT{after}  # */\n}}\n"), 4, "ambiguous end of a heredoc"),
        (
            format!("locals {{\n  a = <<EOT\ntext\n\u{a0}EOT{after}  b = <<EOT\nx\nEOT\n}}\n"),
            4,
            "ambiguous end of a heredoc",
        ),
        (format!("locals {{\n  a = <<EOT\nEOT{after}  b = <<EOT\nEOT\n}}\n"), 3, "a heredoc is empty; write '\"\"'"),
    ] {
        let finding = format!("p/x.tf:{line}: it cannot be checked: {}", why.replace('\'', "`"));
        assert_eq!(found([("p/x.tf", &text)]), [finding], "{text}");
    }
}

#[test]
fn nesting_of_json_is_limited() {
    let program = "p/x.tf.json:1: `external` runs a program (`forbid: external`)";
    for text in [
        r#"{"check": {"c": [[{"data": {"external": {"x": {}}}}]]}}"#,
        r#"{"check": {"c": {"data": [[{"external": {"x": {}}}]]}}}"#,
        r#"{"data": [[{"external": {"x": {}}}]]}"#,
    ] {
        assert_eq!(found([("p/x.tf.json", text)]), [program], "{text}");
    }
    let source = r#"{"module": {"m": [[{"source": "evil/x/y"}]]}}"#;
    assert_eq!(found([("p/x.tf.json", source)]), ["p/x.tf.json:1: the module source `evil/x/y` is not in `modules`"]);
    let provisioner = r#"{"resource": {"null_resource": {"r": [[{"provisioner": [[{"local-exec": {}}]]}]]}}}"#;
    assert_eq!(
        found([("p/x.tf.json", provisioner)]),
        ["p/x.tf.json:1: provisioner `local-exec` (`forbid: provisioners`)"]
    );
    let deeper = r#"{"module": {"m": [[[{"source": "evil/x/y"}]]]}}"#;
    assert_eq!(
        found([("p/x.tf.json", deeper)]),
        ["p/x.tf.json:1: it cannot be checked: it has too many lists in one another"]
    );
    // Nothing reads the inner checks, and neither does Terraform.
    let checks = format!("{}{}", r#"{"check":{"a":"#.repeat(20_000), "1") + &"}}".repeat(20_000);
    assert_eq!(found([("p/x.tf.json", &checks)]), Vec::<String>::new());
    let lists = format!("{{\"check\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(found([("p/x.tf.json", &lists)]).len(), 1);
    let blocks = format!("{}{}", "check \"c\" {\n".repeat(20_000), "}\n".repeat(20_000));
    assert_eq!(found([("p/x.tf", &blocks)]), ["p/x.tf:65: it cannot be checked: it does not parse"]);
}

#[test]
fn the_work_for_code_is_limited() {
    let tripped = |files: Vec<(String, String)>| {
        let tree = MemoryTree::from_files(files.into_iter());
        let facts = facts(&tree, &CodePlaces { dir: "p", modules: &[] });
        assert!(facts.len() <= 10_001, "{}", facts.len());
        of_code(&[guard()], &facts).into_iter().flat_map(|tripped| tripped.findings).collect::<Vec<_>>()
    };
    let blocks = "data \"null_x\" \"x\" {}\n".repeat(10_001);
    let many = ["a", "b"].map(|name| (format!("p/{name}.tf"), blocks.clone()));
    assert_eq!(tripped(many.into()), ["p/a.tf:10001: it cannot be checked: there is too much code"]);
    let modules = "module \"m\" {\n  source = \"acme/x/y\"\n}\n".repeat(10_001);
    assert_eq!(
        tripped(vec![("p/a.tf".into(), modules)]),
        ["p/a.tf:30002: it cannot be checked: there is too much code"]
    );
    let large = format!("# {}\n", "x".repeat((1 << 20) - 3));
    let files = (0..65).map(|at| (format!("p/{at:02}.tf"), large.clone()));
    assert_eq!(tripped(files.collect()), ["p/64.tf: it cannot be checked: there is too much code"]);
}

fn limits() -> Guard {
    Guard {
        name: "limits".into(),
        max_destroys: Some(1),
        max_replacements: Some(0),
        protect: vec!["google_sql_*".into(), "module.vault".into(), "null_resource.kept".into()],
        ..Guard::default()
    }
}

/// Returns a plan of these changes: address, previous address or nothing, actions.
fn plan(changes: &[(&str, &str, &[&str])]) -> GuardedPlan {
    let change = |(address, before, actions): &(&str, &str, &[&str])| {
        let before = if before.is_empty() { serde_json::Value::Null } else { (*before).into() };
        serde_json::json!({"address": address, "previous_address": before, "mode": "managed", "change": {"actions": actions}})
    };
    let changes: Vec<_> = changes.iter().map(change).collect();
    let plan =
        serde_json::json!({"format_version": "1.2", "resource_changes": changes, "configuration": {"root_module": {}}});
    GuardedPlan::parse(plan.to_string().as_bytes()).unwrap()
}

#[test]
fn counts_and_protected_resources_of_a_plan() {
    let said = |changes: &[(&str, &str, &[&str])]| {
        let tripped = plan(changes).trips(&[limits()]);
        tripped.into_iter().flat_map(|tripped| tripped.findings).collect::<Vec<_>>()
    };
    assert!(
        said(&[("a.b", "", &["delete"]), ("a.c", "", &["create"]), ("google_sql_x.a", "", &["update"])]).is_empty()
    );
    assert_eq!(
        said(&[("a.b", "", &["delete"]), ("a.c[\"`x`\"]", "", &["create", "delete"])]),
        [
            "2 to destroy, at most 1 allowed (`max_destroys`): `a.b`, `a.c[\"'x'\"]`",
            "1 to replace, at most 0 allowed (`max_replacements`): `a.c[\"'x'\"]`"
        ]
    );
    // A deposed object and a new one have one address.
    assert_eq!(
        said(&[("a.b", "", &["delete"]), ("a.b", "", &["create"])]),
        ["1 to replace, at most 0 allowed (`max_replacements`): `a.b`"]
    );
    for (change, finding) in [
        (("google_sql_x.a", "", &["delete"][..]), "`google_sql_x.a` would be destroyed (`protect: google_sql_*`)"),
        (
            ("module.vault.a.b", "", &["forget"]),
            "`module.vault.a.b` would be removed from the state (`protect: module.vault`)",
        ),
        (
            ("null_resource.new", "null_resource.kept", &["no-op"]),
            "`null_resource.kept` would be moved to `null_resource.new`, which is not protected (`protect: null_resource.kept`)",
        ),
        (("other.a", "google_sql_x.a", &["delete"]), "`google_sql_x.a` would be destroyed (`protect: google_sql_*`)"),
    ] {
        assert_eq!(said(&[change]), [finding]);
    }
    assert!(said(&[("google_sql_x.b", "google_sql_x.a", &["no-op"])]).is_empty());
}

#[test]
fn code_in_a_plan_file_is_judged_as_well() {
    let plan = serde_json::json!({
        "format_version": "1.2",
        "resource_changes": [{"address": "a.b", "mode": "managed", "provider_name": "registry.terraform.io/evil/a", "change": {"actions": ["create"]}}],
        "configuration": {
            "provider_config": {"null": {"full_name": "registry.terraform.io/hashicorp/null"}},
            "root_module": {"module_calls": {"m": {"source": "evil/m/x", "module": {
                "resources": [{"address": "null_resource.x", "type": "null_resource", "provisioners": [{"type": "local-exec"}]}, {"address": "data.external.y", "type": "external"}],
            }}, "own": {"source": "./own"}}},
        },
    });
    let tripped = GuardedPlan::parse(plan.to_string().as_bytes()).unwrap().trips(&[guard()]);
    let [one] = tripped.as_slice() else { panic!("{tripped:?}") };
    assert_eq!(
        one.findings,
        [
            "a.b: the provider `registry.terraform.io/evil/a` is not in `providers`",
            "module.m: the module source `evil/m/x` is not in `modules`",
            "module.m.null_resource.x: provisioner `local-exec` (`forbid: provisioners`)",
            "module.m.data.external.y: `external` runs a program (`forbid: external`)",
        ]
    );
    for wrong in ["{}", "x", r#"{"format_version": "1.0"}"#, r#"{"format_version": "2.0", "configuration": {}}"#] {
        assert!(GuardedPlan::parse(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn an_override_of_code_does_not_pass_limits_without_a_plan_file() {
    let both = Guard { max_destroys: Some(0), ..guard() };
    let facts = [CodeFact { place: "p/x.tf:1".into(), what: CodeKind::Provisioner("local-exec".into()) }];
    let mut found = of_code(std::slice::from_ref(&both), &facts);
    let by = crate::domain::Login::from("carol");
    found[0].passed = Some(crate::domain::guards::GuardPass { by, why: "on trial".into() });
    without_file(&mut found, &both);
    let [one] = found.as_slice() else { panic!("{found:?}") };
    assert!(!one.of_code && one.passed.is_none());
    assert_eq!(one.findings[1], "the plan cannot be checked: its workflow leaves no plan file");
    let known = found.clone();
    without_file(&mut found, &both);
    assert_eq!(found, known);
}
