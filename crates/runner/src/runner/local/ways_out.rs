//! Detects code that reads files other than its own: then its own files do not determine its effects. Pure.

use regex::Regex;
use rustix::fs::Mode;
use serde_json::Value;
use std::sync::LazyLock;

/// Texts that lead to other directories.
const WAYS_OUT: [&str; 7] = ["../", "/..", "\"..\"", "dirname(", "pathexpand(", "cd ..", "show-toplevel"];
/// The same in scripts, where `dirname` gives their own directory.
const WAYS_OUT_OF_SCRIPTS: [&str; 4] = ["../", "/..", "cd ..", "show-toplevel"];
/// Endings of scripts.
const SCRIPTS: [&str; 7] = [".sh", ".bash", ".py", ".rb", ".pl", ".ps1", ".js"];
/// Functions that read a file, with the beginning of their argument.
static READING: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let functions = "file(?:base64(?:sha256|sha512)?|exists|md5|set|sha1|sha256|sha512)?|templatefile";
    Regex::new(&format!(r"(?:^|[^A-Za-z0-9_.:-])(?:{functions})\s*\(\s*(?P<told>[^\n]?[^\n]?[^\n]{{0,40}})")).ok()
});
/// The beginning of a path below the directory of the code.
static OWN: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"^(?:path\.|"\$\{\s*path\.|"[^/~$]|"\$[^{])"#).ok());

/// Returns true if a file is code of Terraform.
pub(super) fn is_code(name: &str) -> bool {
    [".tf", ".tofu", ".tf.json", ".tofu.json"].iter().any(|ending| name.ends_with(ending))
}

/// Describes files that code reads besides its own. A module's `source` is not one, since its directory is noted.
pub(super) fn of_code(name: &str, text: &str) -> Option<&'static str> {
    let (mut sources, mut leads_out) = (0, false);
    for line in text.lines().map(str::trim_start).filter(|line| WAYS_OUT.iter().any(|way| line.contains(way))) {
        match line.starts_with("source") || line.starts_with("\"source\"") {
            true => sources += 1,
            false => leads_out = true,
        }
    }
    // Other blocks have a `source` as well.
    if leads_out || (sources > 0 && sources > sources_of_modules(name, text)) {
        return Some("its code names files of other directories");
    }
    let (Some(reading), Some(own)) = (READING.as_ref(), OWN.as_ref()) else {
        return Some("its code may read any file");
    };
    // The value of an attribute in JSON is a template.
    let text = if name.ends_with(".json") { text.replace("\\\"", "\"") } else { text.to_owned() };
    let is_own = |told: &str| own.is_match(told);
    let all_own =
        reading.captures_iter(&text).all(|found| found.name("told").is_some_and(|told| is_own(told.as_str())));
    (!all_own).then_some("its code reads files whose names it does not tell, or that are outside of its directory")
}

/// Counts the `source`s of module blocks that lead out.
fn sources_of_modules(name: &str, text: &str) -> usize {
    let leads_out = |source: &str| WAYS_OUT.iter().any(|way| source.contains(way));
    if !name.ends_with(".json") {
        let Ok(body) = hcl::parse(text) else { return 0 };
        let modules = body.blocks().filter(|block| block.identifier() == "module");
        let sources = modules.flat_map(|block| block.body().attributes().filter(|one| one.key() == "source"));
        return sources
            .filter(|one| matches!(one.expr(), hcl::Expression::String(source) if leads_out(source)))
            .count();
    }
    let Ok(json) = serde_json::from_str::<Value>(text) else { return 0 };
    let modules = json.get("module").and_then(Value::as_object).into_iter().flatten();
    modules.filter(|(_, module)| module["source"].as_str().is_some_and(leads_out)).count()
}

/// Returns true if code has provisioners, which may run any file of its directory.
pub(super) fn has_provisioners(text: &str) -> bool {
    text.contains("provisioner")
}

/// Returns true if somebody may execute a file of this mode.
pub(super) fn can_run(mode: Mode) -> bool {
    mode.intersects(Mode::XUSR | Mode::XGRP | Mode::XOTH)
}

/// Returns true if a file may be run, and names files of other directories.
pub(super) fn of_script(name: &str, mode: Mode, bytes: &[u8]) -> bool {
    let is_script = can_run(mode) || bytes.starts_with(b"#!") || SCRIPTS.iter().any(|ending| name.ends_with(ending));
    is_script && {
        let text = String::from_utf8_lossy(bytes);
        WAYS_OUT_OF_SCRIPTS.iter().any(|way| text.contains(way))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_source_of_a_module_may_lead_out() {
        for fine in [
            "module \"m\" {\n  source = \"../m\"\n}\n",
            "x = merge(local.all...)",
            "x = file(\"p.json\")",
            "x = templatefile(\"${path.module}/t/${each.key}.tpl\", {})",
            "x = fileset(path.module, \"*.json\")",
            "x = provider::p::file(var.x)",
            "command = \"sh ${path.module}/run.sh\"",
        ] {
            assert_eq!(of_code("main.tf", fine), None, "{fine}");
        }
        assert_eq!(of_code("main.tf.json", "{\"module\": {\"m\": {\n\"source\": \"../m\"\n}}}"), None);
        for bad in [
            "x = file(\"../p.json\")",
            "resource \"a\" \"b\" {\n  source = \"../p.zip\"\n}\n",
            "module \"m\" {\n  source = \"../m\"\n}\nresource \"a\" \"b\" {\n  source = \"../p.zip\"\n}\n",
            "data \"archive_file\" \"b\" {\n  source_dir = \"../p\"\n}\n",
            "provisioner \"file\" {\n  source = \"../p\"\n}\n",
            "working_dir = \"..\"",
            "command = \"cd .. && make\"",
            "command = \"sh $(git rev-parse --show-toplevel)/x.sh\"",
            "x = file(\"/etc/p\")",
            "x = file(\n  pathexpand(\"~/p\"))",
            "x = file(\"~/p\")",
            "x = file(var.x)",
            "x = templatefile(\"${var.x}/p\", {})",
            "x = file(\"${abspath(path.module)}/p\")",
        ] {
            assert!(of_code("main.tf", bad).is_some(), "{bad}");
        }
        assert!(of_code("main.tf.json", "{\"r\": {\n\"source\": \"../m\"\n}}").is_some());
        assert!(of_code("main.tf.json", "{\"r\": \"${file(\\\"/etc/p\\\")}\"}").is_some());
    }

    #[test]
    fn scripts_may_lead_out_as_well() {
        let (plain, executable) = (Mode::from_raw_mode(0o644), Mode::from_raw_mode(0o755));
        assert!(of_script("run.sh", plain, b"cat ../x") && of_script("run", executable, b"cd .."));
        assert!(of_script("run", plain, b"#!/bin/sh\n. ../x"));
        assert!(!of_script("readme.md", plain, b"[x](../x)"));
        assert!(!of_script("run.sh", executable, b"cd $(dirname $0)"));
    }
}
