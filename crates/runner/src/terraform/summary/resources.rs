//! Resources of a plan, from the comment line above each and the marked lines of its block.

use super::pattern;
use regex::Regex;
use std::sync::LazyLock;
use tidelock_core::domain::outcome::{ResourceAction, ResourceChange};
use tidelock_core::plan_text::{PlanLine, PlanText, ValueMark};

/// Most attributes that are listed for one resource.
const MOST_ATTRIBUTES: usize = 20;
/// Column of the names of a resource's own attributes. Names at deeper levels stand further right.
const NAME_COLUMN: usize = 8;

pattern!(ATTRIBUTE, r#"^( +)(?:[-+~]|-/\+|\+/-)? +("[^"]*"|[\w.-]+) *(?:=|\{)"#);

/// Returns the resources in the order of the text: `# addr will be created` and the like, with the attributes that change or force
/// replacement. Leaves out what has no action that is known, such as a deferred change.
pub fn plan_resources(text: &str) -> Vec<ResourceChange> {
    let plan = PlanText::read(text);
    let resources = plan.changes().filter_map(|(section, change)| {
        let action = change.action?;
        let mut attributes = Vec::new();
        if matches!(action, ResourceAction::Replace | ResourceAction::Update) {
            let mut block = Block::default();
            section.lines().take_while(|line| line.text.trim_end() != "    }").for_each(|line| block.line(&line));
            attributes = block.attributes(action);
        }
        Some(ResourceChange { action, address: change.address.to_owned(), attributes })
    });
    resources.collect()
}

/// Attributes of one resource, collected as its lines are read.
#[derive(Default)]
struct Block {
    /// Names of the blocks around the current line, by column.
    path: Vec<(usize, String)>,
    forcing: Vec<String>,
    /// Changed attributes; true if the new value is unknown.
    changed: Vec<(String, bool)>,
}

impl Block {
    fn line(&mut self, line: &PlanLine<'_>) {
        if line.is_value {
            return;
        }
        let unknown = line.has(ValueMark::Unknown);
        if line.text[line.column..].starts_with(['}', ']', ')']) {
            self.path.retain(|(name, _)| *name <= line.column);
            if line.column == NAME_COLUMN && unknown {
                self.changed.last_mut().into_iter().for_each(|last| last.1 = true);
            }
        } else if let Some(found) = ATTRIBUTE.as_ref().and_then(|regex| regex.captures(line.text))
            && let Some(name) = found.get(2)
        {
            self.path.retain(|(column, _)| *column < name.start());
            self.path.push((name.start(), name.as_str().trim_matches('"').to_owned()));
            if name.start() == NAME_COLUMN && line.sign.is_some() {
                self.changed.push((name.as_str().trim_matches('"').to_owned(), unknown));
            }
        }
        if line.has(ValueMark::ForcesReplacement) {
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
