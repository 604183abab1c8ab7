//! A log as HTML: numbered lines with links, colours and times, in sections for the steps of the job. It is read twice, line by line: once to
//! know which lines are shown, and once to show them.

use super::HEAD_LINES;
use super::ansi::{Span, TextStyle};
use super::init_fold::InitFold;
use super::log::{ERROR, hidden, kind, lines, put_text};
use super::search::{LogSearch, shown};
use crate::domain::job_times::JobTimes;
use crate::store::logs::LogText;
use crate::web::pages::{clock, seconds};
use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;

/// Maximum number of matching lines among those that a page leaves out which it shows after all.
const MAX_EXCERPTS: usize = 100;

/// Size of a page in bytes, about, from which lines have no colours: a log can have a change of colour before each character.
const MAX_COLOURED: usize = 16 << 20;

/// Number of lines before and after each of them.
const EXCERPT_CONTEXT: usize = 2;

/// A log that can be read again and again.
pub(in crate::web) trait LogLines {
    /// Calls `each` for every line.
    fn each_line(&self, each: &mut dyn FnMut(&str)) -> Result<()>;
}

impl LogLines for LogText {
    fn each_line(&self, each: &mut dyn FnMut(&str)) -> Result<()> {
        LogText::each_line(self, each)
    }
}

impl LogLines for &str {
    fn each_line(&self, each: &mut dyn FnMut(&str)) -> Result<()> {
        lines(self).for_each(each);
        Ok(())
    }
}

/// What a page shows of a log besides its lines.
pub(super) struct LogView<'a> {
    /// Times of the steps.
    pub(super) times: &'a JobTimes,
    /// Time at which the job began.
    pub(super) started: Timestamp,
    /// Text to mark.
    pub(super) search: Option<&'a LogSearch>,
    /// True if no section is folded.
    pub(super) opens_all: bool,
}

/// A rendered log.
pub(super) struct RenderedLog {
    /// Safe HTML: the log is escaped.
    pub(super) html: String,
    /// Number of lines of the log.
    pub(super) lines: usize,
    /// Number of the first line that is shown and begins an error.
    pub(super) first_error: Option<usize>,
    /// Number of lines that match the search.
    pub(super) matches: usize,
    /// Number of the first line that is shown and matches.
    pub(super) first_match: Option<usize>,
    /// True if a section is folded.
    pub(super) is_folded: bool,
}

/// A part of a log that can be folded; its lines are counted from 0.
struct LogSection {
    lines: Range<usize>,
    summary: String,
    open: bool,
    class: &'static str,
}

/// What the first reading finds.
struct LogSurvey {
    lines: usize,
    init: Option<Range<usize>>,
    /// Indexes of matching lines. A log of 8 MiB has at most 8 Mi of them.
    matches: Vec<u32>,
}

/// Lines that are left out, since the last one that is shown.
#[derive(Default)]
struct LogGap {
    lines: usize,
    errors: usize,
    matches: usize,
}

/// Renders the log.
pub(super) fn render(log: &dyn LogLines, view: &LogView<'_>) -> Result<RenderedLog> {
    let survey = survey(log, view.search)?;
    let hidden = hidden(survey.lines);
    let excerpts = excerpts(&survey.matches, &hidden, survey.lines);
    let is_shown = |index: usize| !hidden.contains(&index) || excerpts.contains(&index);
    let shown: Vec<u32> = survey.matches.iter().copied().filter(|index| is_shown(*index as usize)).collect();
    let sections = sections(view, &survey);
    let mut page = LogPage {
        html: String::new(),
        style: TextStyle::default(),
        gap: LogGap::default(),
        first_error: None,
        view,
        shown: &shown,
        next_match: 0,
        next_mark: 0,
    };
    let (mut index, mut next_section, mut matches) = (0, 0, survey.matches.iter().peekable());
    log.each_line(&mut |line| {
        // The log may have grown since it was first read.
        if index >= survey.lines {
            return;
        }
        if let Some(section) = sections.get(next_section)
            && section.lines.start == index
        {
            page.open(section);
        }
        let is_match = matches.next_if(|found| **found as usize == index).is_some();
        page.line(index, line, is_shown(index), is_match);
        index += 1;
        if sections.get(next_section).is_some_and(|section| section.lines.end == index) {
            page.close();
            next_section += 1;
        }
    })?;
    if sections.get(next_section).is_some_and(|section| section.lines.start < index) {
        page.close();
    }
    page.flush();
    Ok(RenderedLog {
        lines: survey.lines,
        first_error: page.first_error,
        matches: survey.matches.len(),
        first_match: shown.first().map(|index| *index as usize + 1),
        is_folded: sections.iter().any(|section| !section.open),
        html: page.html,
    })
}

fn survey(log: &dyn LogLines, search: Option<&LogSearch>) -> Result<LogSurvey> {
    let (mut count, mut init, mut matches) = (0, InitFold::default(), Vec::new());
    log.each_line(&mut |line| {
        init.add(count, line);
        if search.is_some_and(|search| search.finds(line)) {
            matches.extend(u32::try_from(count));
        }
        count += 1;
    })?;
    Ok(LogSurvey { lines: count, init: init.lines(), matches })
}

/// Returns the lines that are shown although they lie in the part that is left out.
fn excerpts(matches: &[u32], hidden: &Range<usize>, lines: usize) -> BTreeSet<usize> {
    let found = matches.iter().map(|index| *index as usize).filter(|index| hidden.contains(index)).take(MAX_EXCERPTS);
    found.flat_map(|index| index.saturating_sub(EXCERPT_CONTEXT)..(index + EXCERPT_CONTEXT + 1).min(lines)).collect()
}

/// Returns the sections: one for each step with output, or else one for `init`. The last one is open: if a step
/// with output failed, it is that one.
fn sections(view: &LogView<'_>, survey: &LogSurvey) -> Vec<LogSection> {
    let index = |line: u64| usize::try_from(line).unwrap_or(usize::MAX).min(survey.lines);
    let has_match = |lines: &Range<usize>| {
        let first = survey.matches.partition_point(|found| (*found as usize) < lines.start);
        survey.matches.get(first).is_some_and(|found| (*found as usize) < lines.end)
    };
    let steps = view.times.steps.iter().filter(|step| step.line > 0 && step.lines > 0);
    let mut sections: Vec<LogSection> = Vec::new();
    for step in steps {
        let lines = index(step.line - 1)..index(step.line.saturating_add(step.lines) - 1);
        if lines.is_empty() || sections.last().is_some_and(|before| lines.start < before.lines.end) {
            continue;
        }
        let mut summary = format!("<b>{}</b> · {} · {}", step.kind.as_str(), count(lines.len()), seconds(step.millis));
        if let Some(began) = after(view.started, step.began) {
            let _ = write!(summary, " · began {}", time(began, "from"));
        }
        let open = view.opens_all || has_match(&lines);
        sections.push(LogSection { lines, summary, open, class: "fold step" });
    }
    if let Some(last) = sections.last_mut() {
        last.open = true;
    } else if let Some(lines) = survey.init.clone().filter(|lines| lines.end <= HEAD_LINES) {
        let (summary, open) = (format!("init, {}", count(lines.len())), view.opens_all || has_match(&lines));
        sections.push(LogSection { lines, summary, open, class: "fold" });
    }
    sections
}

fn count(lines: usize) -> String {
    if lines == 1 { "1 line".to_owned() } else { format!("{lines} lines") }
}

fn after(started: Timestamp, millis: u64) -> Option<Timestamp> {
    started.checked_add(SignedDuration::from_millis(i64::try_from(millis).ok()?)).ok()
}

fn time(at: Timestamp, class: &str) -> String {
    let (utc, day) = (clock(at), at.strftime("%Y-%m-%d"));
    format!("<time class=\"{class}\" datetime=\"{day}T{utc}Z\" title=\"{day} {utc} UTC\" data-clock>{utc}</time>")
}

/// A page that is being written.
struct LogPage<'a> {
    html: String,
    style: TextStyle,
    gap: LogGap,
    first_error: Option<usize>,
    view: &'a LogView<'a>,
    /// Indexes of the matching lines that are shown.
    shown: &'a [u32],
    /// Index into `shown` of the next one.
    next_match: usize,
    /// Index of the next time mark.
    next_mark: usize,
}

impl LogPage<'_> {
    fn open(&mut self, section: &LogSection) {
        self.flush();
        let LogSection { summary, open, class, .. } = section;
        let open = if *open { " open" } else { "" };
        let _ = write!(self.html, "<details class=\"{class}\"{open}><summary>{summary}</summary>");
    }

    fn close(&mut self) {
        self.flush();
        self.html.push_str("</details>");
    }

    fn line(&mut self, index: usize, line: &str, is_shown: bool, is_match: bool) {
        // Colours continue on later lines.
        let spans = self.style.spans(line);
        let kind = kind(&spans);
        let marked = self.mark(index + 1);
        if !is_shown {
            self.gap.lines += 1;
            self.gap.errors += usize::from(kind == ERROR);
            self.gap.matches += usize::from(is_match);
            return;
        }
        self.flush();
        let number = index + 1;
        if kind == ERROR {
            self.first_error.get_or_insert(number);
        }
        let hit = if is_match { " hit" } else { "" };
        let _ = write!(
            self.html,
            "<div class=\"l {kind}{hit}\" id=\"L{number}\"><a class=\"n\" href=\"#L{number}\" data-n=\"{number}\" tabindex=\"-1\" \
             aria-label=\"line {number}\"></a><span class=\"t\">"
        );
        let spans = if self.html.len() < MAX_COLOURED { spans } else { vec![Span(String::new(), shown(&spans))] };
        let places = match self.view.search {
            Some(search) if is_match => search.places(&spans),
            _ => Vec::new(),
        };
        put_spans(&mut self.html, &spans, &places);
        self.html.push_str("</span>");
        if let Some(at) = marked {
            self.html.push_str(&time(at, "at"));
        }
        if is_match {
            self.put_neighbours();
        }
        self.html.push_str("</div>\n");
    }

    /// Returns the time at which this line began, if it is known.
    fn mark(&mut self, number: usize) -> Option<Timestamp> {
        let mark = self.view.times.marks.get(self.next_mark).filter(|mark| mark.line <= number as u64)?;
        self.next_mark += 1;
        if mark.line < number as u64 {
            return None;
        }
        after(self.view.started, mark.millis)
    }

    /// Adds links to the matching lines before and after this one.
    fn put_neighbours(&mut self) {
        let here = self.next_match;
        self.next_match += 1;
        let line = |index: usize| self.shown.get(index).map(|index| index + 1);
        let before = here.checked_sub(1).and_then(line).map(|line| (line, "previous", '↑'));
        let after = line(here + 1).map(|line| (line, "next", '↓'));
        self.html.push_str("<span class=\"to\">");
        for (line, which, sign) in before.into_iter().chain(after) {
            let _ = write!(self.html, "<a href=\"#L{line}\" aria-label=\"{which} match, in line {line}\">{sign}</a>");
        }
        self.html.push_str("</span>");
    }

    /// Adds the note about lines that are left out before the next one.
    fn flush(&mut self) {
        let LogGap { lines, errors, matches } = std::mem::take(&mut self.gap);
        if lines == 0 {
            return;
        }
        let among = |count: usize, what: &str| match count {
            0 => String::new(),
            1 => format!(", one {what},"),
            many => format!(", {many} {what},"),
        };
        let (errors, matches) = (among(errors, "with an error"), among(matches, "with a match"));
        let (are, them) = if lines == 1 { ("line", "it") } else { ("lines", "them all") };
        let not = if lines == 1 { "is not shown here" } else { "are not shown here" };
        let _ =
            write!(self.html, "<p class=\"cut\">{lines} {are}{errors}{matches} {not}; the download has {them}.</p>");
    }
}

/// Adds spans with these places of their text marked.
fn put_spans(html: &mut String, spans: &[Span], places: &[Range<usize>]) {
    let (mut begin, mut next) = (0, 0);
    for Span(classes, text) in spans {
        if !classes.is_empty() {
            let _ = write!(html, "<span class=\"{classes}\">");
        }
        let end = begin + text.len();
        let mut done = begin;
        // A match may end in a later span.
        while let Some(place) = places.get(next).filter(|place| place.start < end) {
            let (from, to) = (place.start.max(begin), place.end.min(end));
            put_text(html, &text[done - begin..from - begin]);
            html.push_str("<mark>");
            put_text(html, &text[from - begin..to - begin]);
            html.push_str("</mark>");
            done = to;
            if place.end > end {
                break;
            }
            next += 1;
        }
        put_text(html, &text[done - begin..]);
        if !classes.is_empty() {
            html.push_str("</span>");
        }
        begin = end;
    }
}

#[cfg(test)]
mod tests;
