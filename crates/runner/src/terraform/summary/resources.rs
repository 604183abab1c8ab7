//! Resources of a plan, from the comment line above each and the marked lines of its block.

use super::pattern;
use regex::Regex;
use std::sync::LazyLock;
use tidelock_core::domain::outcome::{ResourceAction, ResourceChange};

/// Most attributes that are listed for one resource.
const MOST_ATTRIBUTES: usize = 20;
/// Column of the names of a resource's own attributes. Names at deeper levels stand further right.
const NAME_COLUMN: usize = 8;
/// Terraform's remark after an attribute that forces a replacement.
const FORCES: &str = "# forces replacement";

// One space for a forgotten resource, two otherwise; values are indented deeper.
pattern!(
    HEADING,
    r"^ {1,2}# (\S.*?)(?: \(deposed object \w+\))? (will be|must be|is tainted|has moved to|will no longer be|was) ?(.*)$"
);
pattern!(BEGINS, r"^(?:Terraform|OpenTofu) (?:will perform|planned) the following actions");
pattern!(ATTRIBUTE, r#"^( +)(?:[-+~]|-/\+|\+/-)? +("[^"]*"|[\w.-]+) *(?:=|\{)"#);

/// Returns the resources in the order of the text: `# addr will be created` and the like, with the attributes that change or force
/// replacement.
pub fn plan_resources(text: &str) -> Vec<ResourceChange> {
    let (Some(begins), Some(heading)) = (&*BEGINS, &*HEADING) else { return Vec::new() };
    let mut resources: Vec<ResourceChange> = Vec::new();
    let mut block: Option<Block> = None;
    let mut inside = false;
    for line in text.lines() {
        if begins.is_match(line) {
            inside = true;
        } else if line.starts_with("Plan: ") {
            inside = false;
        }
        if !inside {
            continue;
        }
        if let Some((action, address)) = heading.captures(line).and_then(|found| change(&found)) {
            resources.push(ResourceChange { action, address, attributes: Vec::new() });
            block = Some(Block::default());
        } else if let (Some(open), Some(resource)) = (&mut block, resources.last_mut()) {
            if line.starts_with("    }") && line.trim() == "}" {
                if matches!(resource.action, ResourceAction::Replace | ResourceAction::Update) {
                    resource.attributes = std::mem::take(open).attributes(resource.action);
                }
                block = None;
            } else {
                open.line(line);
            }
        }
    }
    resources
}

/// Returns the action and address of a heading; `None` for others, such as a deferred change.
fn change(found: &regex::Captures<'_>) -> Option<(ResourceAction, String)> {
    let (address, verb, rest) = (found.get(1)?.as_str(), found.get(2)?.as_str(), found.get(3)?.as_str());
    let action = match verb {
        "has moved to" => return Some((ResourceAction::Move, rest.to_owned())),
        "must be" if rest.starts_with("replaced") => ResourceAction::Replace,
        "is tainted" => ResourceAction::Replace,
        "will no longer be" if rest.starts_with("managed by") => ResourceAction::Forget,
        "will be" => match rest.split([' ', ',']).next()? {
            "created" => ResourceAction::Create,
            "updated" => ResourceAction::Update,
            "destroyed" => ResourceAction::Destroy,
            "replaced" => ResourceAction::Replace,
            "read" => ResourceAction::Read,
            "imported" => ResourceAction::Import,
            "removed" if rest.contains("but will not be destroyed") => ResourceAction::Forget,
            _ => return None,
        },
        _ => return None,
    };
    Some((action, address.to_owned()))
}

/// Attributes of one resource, collected as its lines are read.
#[derive(Default)]
struct Block {
    /// Names of the blocks around the current line, by column.
    path: Vec<(usize, String)>,
    forcing: Vec<String>,
    /// Changed attributes; true if the new value is unknown.
    changed: Vec<(String, bool)>,
    heredoc: bool,
}

impl Block {
    fn line(&mut self, line: &str) {
        let text = line.trim();
        if self.heredoc {
            self.heredoc = !text.starts_with("EOT");
            return;
        }
        self.heredoc = text.ends_with("<<-EOT");
        let unknown = line.contains("(known after apply)");
        if text.starts_with(['}', ']', ')']) {
            let column = line.len() - line.trim_start().len();
            self.path.retain(|(name, _)| *name <= column);
            if column == NAME_COLUMN && unknown {
                self.changed.last_mut().into_iter().for_each(|last| last.1 = true);
            }
        } else if let Some(found) = ATTRIBUTE.as_ref().and_then(|regex| regex.captures(line))
            && let Some(name) = found.get(2)
        {
            self.path.retain(|(column, _)| *column < name.start());
            self.path.push((name.start(), name.as_str().trim_matches('"').to_owned()));
            let marked = line[..name.start()].contains(['+', '-', '~']);
            if name.start() == NAME_COLUMN && marked {
                self.changed.push((name.as_str().trim_matches('"').to_owned(), unknown));
            }
        }
        if text.ends_with(FORCES) {
            let path: Vec<&str> = self.path.iter().map(|(_, name)| name.as_str()).collect();
            self.forcing.push(path.join("."));
        }
    }

    /// Returns the attributes that force a replacement; otherwise the changed ones, without computed ones if there are others.
    fn attributes(self, action: ResourceAction) -> Vec<String> {
        let mut names = match action {
            ResourceAction::Replace if !self.forcing.is_empty() => self.forcing,
            _ => {
                let all_unknown = self.changed.iter().all(|(_, unknown)| *unknown);
                self.changed.into_iter().filter(|(_, unknown)| all_unknown || !unknown).map(|(name, _)| name).collect()
            }
        };
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names.truncate(MOST_ATTRIBUTES);
        names
    }
}
