//! The page `docs/settings.md`, made from the table.

use super::table::{self, Effect, Kind, Setting};

const INTRODUCTION: &str = "\
# Settings

<!-- Made from src/settings/table by `settings::reference`; a test compares them. -->

Each setting is a flag of `tidelock server` (`--gh-user`), a variable (`ATLANTIS_GH_USER`, or `TIDELOCK_GH_USER`, which wins)
and a key of the YAML file that `--config` names (`gh-user`). The command line wins over variables, variables over the file. An
empty value, and 0 where that makes no sense, mean the default. Lists are separated by commas; durations are written `90s`,
`10m`, `1h` or in seconds. Steps and Terraform get the server's variables but for the secret ones.

Unknown flags and keys stop the start; unknown variables are warned of.
";

/// `docs/settings.md`.
pub fn reference() -> String {
    let mut page = INTRODUCTION.to_owned();
    let is_plain = |setting: &&Setting| setting.effect == Effect::Built && !setting.ours;
    let is_ours = |setting: &&Setting| setting.effect == Effect::Built && setting.ours;
    let is_accepted = |setting: &&Setting| matches!(setting.effect, Effect::Accepted(_));
    let is_unbuilt = |setting: &&Setting| setting.effect == Effect::NotBuilt;
    group(&mut page, "Settings of Atlantis", "They mean what they mean there, unless they say otherwise.", is_plain);
    group(&mut page, "Settings that Atlantis does not have", "", is_ours);
    group(&mut page, "Accepted, without an effect", "Another value than the default is warned of.", is_accepted);
    group(&mut page, "Not built yet", "Another value than the default stops the start.", is_unbuilt);
    page
}

fn group(page: &mut String, title: &str, remark: &str, filter: impl Fn(&&Setting) -> bool) {
    let remark = if remark.is_empty() { String::new() } else { format!("{remark}\n\n") };
    *page += &format!("\n## {title}\n\n{remark}| setting | default | meaning |\n| --- | --- | --- |\n");
    let mut settings: Vec<_> = table::all().filter(filter).collect();
    settings.sort_by_key(|setting| setting.name);
    for setting in settings {
        let default = match setting.default {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        let secret = if setting.kind == Kind::Secret { " (secret)" } else { "" };
        let why = match setting.effect {
            Effect::Accepted(why) if !why.is_empty() => format!(" ({why})"),
            _ => String::new(),
        };
        *page += &format!("| `{}` | {default} | {}{secret}{why}. |\n", setting.name, setting.help.replace('|', "\\|"));
    }
}
