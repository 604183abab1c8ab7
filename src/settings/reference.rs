//! The page `docs/settings.md`, generated from the table.

use super::table::{self, Support};

const INTRODUCTION: &str = "\
# Settings

<!-- Generated from the tables in src/settings by `settings::reference`; a test compares them. -->

Each setting is a flag of `tidelock server` (`--gh-user`), a variable (`ATLANTIS_GH_USER`, or `TIDELOCK_GH_USER`, which wins)
and a key of the YAML file that `--config` names (`gh-user`). The command line wins over variables, variables over the file. An
empty value, and 0 where that makes no sense, mean the default. Lists are separated by commas; durations are written `90s`,
`10m`, `1h` or in seconds. Steps and Terraform get the server's variables but for the secret ones.

Unknown flags and keys stop the start; unknown variables are warned of.

A setting that is marked *live* changes without a restart when the config file changes ([reload.md](reload.md)).
";

/// Returns the text of `docs/settings.md`.
pub fn reference() -> String {
    let mut page = INTRODUCTION.to_owned();
    group(
        &mut page,
        "Settings of Atlantis",
        "They mean what they mean there, unless the text says otherwise.",
        |support| support == Support::Atlantis,
    );
    group(&mut page, "Settings that Atlantis does not have", "", |support| support == Support::Tidelock);
    group(&mut page, "Accepted, without an effect", "A value other than the default causes a warning.", |support| {
        matches!(support, Support::Accepted(_))
    });
    page
}

fn group(page: &mut String, title: &str, remark: &str, belongs: impl Fn(Support) -> bool) {
    let remark = if remark.is_empty() { String::new() } else { format!("{remark}\n\n") };
    *page += &format!("\n## {title}\n\n{remark}| setting | default | meaning |\n| --- | --- | --- |\n");
    let mut settings: Vec<_> = table::all().filter(|setting| belongs(setting.support)).collect();
    settings.sort_by_key(|setting| setting.name);
    for setting in settings {
        let default = match setting.default {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        let live = if setting.is_live && !matches!(setting.support, Support::Accepted(_)) { " (live)" } else { "" };
        let secret = if setting.is_secret() { " (secret)" } else { "" };
        let why = match setting.support {
            Support::Accepted(why) if !why.is_empty() => format!(" ({why})"),
            _ => String::new(),
        };
        let help = setting.help.trim_end_matches('.').replace('|', "\\|");
        *page += &format!("| `{}` | {default} | {help}{secret}{live}{why}. |\n", setting.name);
    }
}
