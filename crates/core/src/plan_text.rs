//! Reads the text of a plan as Terraform 0.12 to 1.14 and OpenTofu print it, without escapes: its sections, and the lines of each.
//!
//! Sections cover the whole text: text that is not understood is a section of its own. Terraform puts headings and
//! totals at the first columns and indents values, but a value can have a carriage return, and a message any line. So a text whose headings
//! and totals do not agree is doubtful ([`PlanText::is_doubtful`]): a change can be forged, but none can be hidden without that. Reading
//! takes linear time, and memory for at most [`MAX_SECTIONS`] sections.

mod heading;
mod lines;
#[cfg(test)]
mod tests;

use crate::domain::outcome::ResourceAction;
pub use lines::{LineReader, LineSign, PlanLine, ValueMark};
use std::collections::HashSet;

/// Maximum number of sections; the rest of a text is one more.
pub const MAX_SECTIONS: usize = 20_000;

/// End of the block of a resource, and its column. After it, only what belongs to the resource is indented as deep.
const BLOCK_END: &str = "    }";
const BLOCK_COLUMN: usize = 4;
/// Number of different sentences with totals from which a text is doubtful anyway.
const MAX_TOTALS: usize = 1;
/// Number of characters of the shortest rule between parts of the output.
const SHORTEST_RULE: usize = 10;

/// A plan as a list of sections, which are the whole text in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanText<'a> {
    /// The sections.
    pub sections: Vec<PlanSection<'a>>,
    /// True if a line that looks like a heading or like totals begins no section.
    has_strays: bool,
}

/// Part of the text of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanSection<'a> {
    /// Its kind.
    pub kind: SectionKind<'a>,
    /// Its lines, with their line feeds.
    pub text: &'a str,
    /// Number of lines of the text before it.
    pub line: usize,
}

/// Kinds of sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SectionKind<'a> {
    /// Sentences before the changes, with the meaning of the signs.
    Legend,
    /// A planned change of a resource.
    Change(PlannedChange<'a>),
    /// Changes of outputs.
    Outputs,
    /// Changes outside of Terraform, deferred changes, warnings and errors.
    Note,
    /// The totals, or the sentence that nothing changes.
    Totals,
    /// Everything else.
    Text,
}

/// A planned change of a resource, as its heading tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedChange<'a> {
    /// Address, such as `module.a.google_compute_network.main["x"]`.
    pub address: &'a str,
    /// The action; absent for one that is not known here.
    pub action: Option<ResourceAction>,
    /// Id of the deposed object that it is about.
    pub deposed: Option<&'a str>,
    /// Words of the heading after the address, such as `is tainted, so must be replaced`; all words for a move.
    pub said: &'a str,
}

impl<'a> PlanText<'a> {
    /// Reads a text without escapes.
    pub fn read(text: &'a str) -> PlanText<'a> {
        let mut reader = SectionReader::default();
        let mut place = 0;
        for (number, line) in text.split_inclusive('\n').enumerate() {
            reader.line(line.trim_end_matches('\n'), place, number);
            place += line.len();
        }
        let starts = reader.starts;
        let ends = starts.iter().skip(1).map(|start| start.place).chain([text.len()]);
        let sections = starts.iter().zip(ends).map(|(start, end)| PlanSection {
            kind: start.kind,
            text: &text[start.place..end],
            line: start.line,
        });
        PlanText { sections: sections.collect(), has_strays: reader.has_strays }
    }

    /// Returns the changes with their sections.
    pub fn changes(&self) -> impl Iterator<Item = (&PlanSection<'a>, PlannedChange<'a>)> {
        self.sections.iter().filter_map(|section| match section.kind {
            SectionKind::Change(change) => Some((section, change)),
            _ => None,
        })
    }

    /// Returns the changes with the places of their sections, without those that the text has again, as a step may show a plan again.
    pub fn distinct_changes(&self) -> Vec<(usize, PlannedChange<'a>)> {
        let mut seen = HashSet::new();
        let places = self.sections.iter().enumerate();
        let changes = places.filter_map(|(place, section)| match section.kind {
            SectionKind::Change(change) if seen.insert(section.text.trim_end()) => Some((place, change)),
            _ => None,
        });
        changes.collect()
    }

    /// Returns the different sentences with totals, in their order.
    pub fn totals(&self) -> Vec<&'a str> {
        let mut totals: Vec<&str> = Vec::new();
        for section in self.sections.iter().filter(|section| section.kind == SectionKind::Totals) {
            let line = section.text.lines().next().unwrap_or_default().trim_end();
            // A third one tells no more of a text than that it is doubtful.
            if totals.len() <= MAX_TOTALS && !totals.contains(&line) {
                totals.push(line);
            }
        }
        totals
    }

    /// Returns true if changes may be missing or forged: the totals are absent, several, or of other numbers than the changes, a line in
    /// another section looks like a heading or like totals, or there are more sections than are read.
    pub fn is_doubtful(&self) -> bool {
        let changes = self.distinct_changes();
        let totals = self.totals();
        let is_uncounted = !changes.is_empty() && totals.is_empty();
        let differs = || match totals.first() {
            Some(line) if !changes.is_empty() => !are_counted(&changes, line),
            _ => false,
        };
        self.has_strays || self.sections.len() > MAX_SECTIONS || totals.len() > 1 || is_uncounted || differs()
    }
}

/// Returns true if a sentence with totals has the numbers of these changes. Changes whose action is not known may be any of them.
fn are_counted(changes: &[(usize, PlannedChange<'_>)], totals: &str) -> bool {
    use ResourceAction::{Create, Destroy, Replace, Update};
    let number = |actions: &[ResourceAction]| {
        let is_kept =
            |change: &PlannedChange<'_>| actions.contains(&Destroy) && change.said.contains("will not be destroyed");
        let counted = changes.iter().map(|(_, change)| change);
        counted
            .filter(|change| change.action.is_some_and(|action| actions.contains(&action)) && !is_kept(change))
            .count()
    };
    let said = |words: &str| {
        let before = totals.split_once(words)?.0;
        before.rsplit(' ').next()?.parse::<usize>().ok()
    };
    [(" to add", &[Create, Replace][..]), (" to change", &[Update]), (" to destroy", &[Destroy, Replace])]
        .into_iter()
        .all(|(words, actions)| said(words) == Some(number(actions)))
}

impl<'a> PlanSection<'a> {
    /// Returns its lines.
    pub fn lines(&self) -> impl Iterator<Item = PlanLine<'a>> {
        let mut reader = LineReader::default();
        self.text.split_inclusive('\n').map(move |line| reader.read(line.trim_end_matches('\n')))
    }

    /// Returns Terraform's remarks below the heading of a change, such as `because x.y is not in configuration`.
    pub fn remarks(&self) -> impl Iterator<Item = &'a str> {
        let below = self.text.lines().skip(1).map_while(|line| line.trim().strip_prefix("# "));
        below.map(|remark| remark.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(remark))
    }

    /// Returns the sign of the block of a change.
    pub fn sign(&self) -> Option<LineSign> {
        let comments = |line: &PlanLine<'_>| line.text.trim_start().starts_with('#');
        self.lines().find(|line| !comments(line))?.sign
    }
}

impl<'a> PlannedChange<'a> {
    /// Returns the address of its module; empty for the root module.
    pub fn module(&self) -> &'a str {
        let mut end = 0;
        while let Some(rest) = self.address[end..].trim_start_matches('.').strip_prefix("module.") {
            let begin = self.address.len() - rest.len();
            match heading::part_end(rest) {
                Some(length) => end = begin + length,
                None => break,
            }
        }
        &self.address[..end]
    }
}

/// Sentences at the first column that begin a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlanMarker {
    Actions,
    Legend,
    Totals,
    Outputs,
    Note,
    Box,
}

impl PlanMarker {
    fn of(line: &str) -> Option<PlanMarker> {
        let is = |starts: &[&str]| starts.iter().any(|start| line.starts_with(start));
        let said = line.strip_prefix("Terraform ").or_else(|| line.strip_prefix("OpenTofu ")).unwrap_or_default();
        let says = |starts: &[&str]| starts.iter().any(|start| said.starts_with(start));
        let acts = ["will perform the following actions", "planned the following actions"];
        let notes = ["Note: Objects have changed outside of ", "Note: This is a partial plan", "Warning: ", "Error: "];
        let acts_beside = ["will invoke the following"];
        Some(match line {
            "Changes to Outputs:" => PlanMarker::Outputs,
            "╷" => PlanMarker::Box,
            _ if says(&acts) => PlanMarker::Actions,
            _ if says(&["used the "]) || is(&["An execution plan has been generated"]) => PlanMarker::Legend,
            _ if is(&["No changes."]) || is(&["Plan: "]) && line.contains(" to ") => PlanMarker::Totals,
            _ if is(&notes) || says(&acts_beside) => PlanMarker::Note,
            _ => return None,
        })
    }
}

/// Returns true if a line has the form of a heading with a known action, or of totals.
fn looks_counted(line: &str) -> bool {
    match line.starts_with(' ') {
        true => heading::parse(line).is_some_and(|heading| heading.action.is_some()),
        false => line.starts_with("Plan: ") && line.contains(" to "),
    }
}

/// Beginning of a section.
#[derive(Debug)]
struct SectionStart<'a> {
    kind: SectionKind<'a>,
    place: usize,
    line: usize,
}

/// Finds the beginnings of sections, line by line.
#[derive(Default)]
struct SectionReader<'a> {
    starts: Vec<SectionStart<'a>>,
    /// True from the sentence before the changes to the totals.
    among_changes: bool,
    /// True once the block of the current change, or the box of the current note, has ended.
    is_closed: bool,
    /// True once the block of the current change has begun.
    is_block: bool,
    /// Heredocs of the current change.
    values: LineReader<'a>,
    /// True once there were totals.
    is_counted: bool,
    has_strays: bool,
    /// True inside of a box around a warning or an error.
    is_boxed: bool,
    /// True if the line before is blank.
    after_blank: bool,
}

impl<'a> SectionReader<'a> {
    fn line(&mut self, line: &'a str, place: usize, number: usize) {
        let is_change = self.starts.last().is_some_and(|start| matches!(start.kind, SectionKind::Change(_)));
        // Terraform closes each block: until then, every line is the change's.
        let (mut is_value, mut is_inside) = (false, false);
        if is_change && !self.is_closed {
            is_value = self.values.read(line).is_value;
            self.is_block |= line.trim_end().ends_with('{');
            is_inside = is_value || self.is_block;
        }
        let kind = if is_inside { None } else { self.begins(line) };
        let begins = kind.is_some();
        self.after_blank = line.trim().is_empty();
        let kind = kind.or(self.starts.is_empty().then_some(SectionKind::Text));
        self.has_strays |= !begins && looks_counted(line);
        let Some(mut kind) = kind else {
            self.is_closed |= is_change && !is_value && line.trim_end() == BLOCK_END;
            return;
        };
        let last = self.starts.last().map(|start| start.kind);
        if self.starts.len() >= MAX_SECTIONS {
            kind = SectionKind::Text;
        }
        (self.is_closed, self.is_block, self.values) = (false, false, LineReader::default());
        let continues = matches!(kind, SectionKind::Text | SectionKind::Legend) && last == Some(kind);
        if !continues && self.starts.len() <= MAX_SECTIONS {
            self.starts.push(SectionStart { kind, place, line: number });
        }
    }

    /// Returns the kind of the section that begins with a line; `None` if the line belongs to the current one.
    fn begins(&mut self, line: &'a str) -> Option<SectionKind<'a>> {
        if line.trim().is_empty() {
            return None;
        }
        let current = self.starts.last().map(|start| start.kind);
        if !line.starts_with(' ') {
            return self.begins_at_margin(line, current);
        }
        if self.among_changes
            && let Some(heading) = heading::parse(line)
            && (heading.action.is_some() || self.after_blank)
        {
            return Some(SectionKind::Change(heading));
        }
        let column = line.len() - line.trim_start_matches(' ').len();
        match current {
            Some(SectionKind::Change(_)) if self.is_closed && column < BLOCK_COLUMN => Some(SectionKind::Text),
            Some(SectionKind::Note) if self.is_closed => Some(SectionKind::Text),
            Some(SectionKind::Totals) => Some(SectionKind::Text),
            _ => None,
        }
    }

    /// Does the same for a line that is not indented.
    fn begins_at_margin(&mut self, line: &str, current: Option<SectionKind<'a>>) -> Option<SectionKind<'a>> {
        if self.is_boxed && line.starts_with(['│', '╵']) {
            self.is_closed = line.starts_with('╵');
            self.is_boxed = !self.is_closed;
            return None;
        }
        // A remark below a heading may have line breaks.
        let is_open_change = matches!(current, Some(SectionKind::Change(_))) && !self.is_closed;
        // The text of a warning without a box may have any line. Those that are about the plan come after its totals.
        let is_open_note = current == Some(SectionKind::Note) && !self.is_closed && self.is_counted;
        let may_begin = |marker: &PlanMarker| match marker {
            PlanMarker::Note | PlanMarker::Box => true,
            _ => !is_open_note,
        };
        if let Some(marker) = PlanMarker::of(line).filter(|marker| !is_open_change && may_begin(marker)) {
            self.is_counted |= marker == PlanMarker::Totals;
            self.among_changes = match marker {
                PlanMarker::Actions => true,
                PlanMarker::Legend => self.among_changes,
                _ => false,
            };
            self.is_boxed = marker == PlanMarker::Box;
            return Some(match marker {
                PlanMarker::Actions | PlanMarker::Legend => SectionKind::Legend,
                PlanMarker::Totals => SectionKind::Totals,
                PlanMarker::Outputs => SectionKind::Outputs,
                PlanMarker::Note | PlanMarker::Box => SectionKind::Note,
            });
        }
        let is_rule = line.chars().all(|c| matches!(c, '─' | '-')) && line.chars().count() >= SHORTEST_RULE;
        match current? {
            SectionKind::Change(_) => self.is_closed.then_some(SectionKind::Text),
            SectionKind::Note => (is_rule || self.is_closed).then_some(SectionKind::Text),
            SectionKind::Legend => is_rule.then_some(SectionKind::Text),
            SectionKind::Outputs | SectionKind::Totals => Some(SectionKind::Text),
            SectionKind::Text => None,
        }
    }
}
