//! Logs as pages show them.

use super::*;
use crate::domain::job_times::{StepKind, StepTime, TimeMark};
use crate::web::jobs::{HEAD_LINES, MAX_PAGE_LINES};
use insta::assert_snapshot;
use proptest::prelude::*;

/// Renders a log without recorded steps.
fn plainly(text: &str) -> RenderedLog {
    looking_for("", text)
}

fn looking_for(words: &str, text: &str) -> RenderedLog {
    let (times, search) = (JobTimes::default(), LogSearch::new(words));
    let view = LogView { times: &times, started: Timestamp::UNIX_EPOCH, search: search.as_ref(), opens_all: false };
    render(&text, &view).unwrap()
}

#[test]
fn a_line_is_escaped_numbered_and_coloured() {
    assert_snapshot!(plainly("<b>&\"'\x1b[31mred").html, @r##"<div class="l " id="L1"><a class="n" href="#L1" data-n="1" tabindex="-1" aria-label="line 1"></a><span class="t">&lt;b&gt;&amp;&quot;&#39;<span class="c1">red</span></span></div>"##);
}

#[test]
fn init_is_folded_only_when_it_is_through() {
    let done = "Initializing the backend...\n- Installing x\n\nTerraform has been successfully initialized!\n\nYou may now begin working\n\nPlan: 1 to add\n";
    let html = plainly(done).html;
    assert!(html.starts_with("<details class=\"fold\"><summary>init, 7 lines</summary>"), "{html}");
    assert!(html.contains("</details><div class=\"l sum\" id=\"L8\">"), "{html}");
    assert!(!plainly("Initializing the backend...\n- Installing x\n").html.contains("<details"));
}

/// Times of two steps, the first of three lines and the second of two, in a log whose first line is the server's.
fn two_steps() -> JobTimes {
    let step = |kind, began, millis, line, lines| StepTime { kind, millis, began, line, lines };
    JobTimes {
        steps: vec![
            step(StepKind::Init, 1_000, 3_100, 2, 3),
            step(StepKind::Show, 4_100, 200, 5, 0),
            step(StepKind::Plan, 5_000, 61_000, 5, 2),
        ],
        marks: vec![TimeMark { line: 3, millis: 2_000 }, TimeMark { line: 6, millis: 12_000 }],
    }
}

const SIX: &str = "note\none\ntwo\nthree\nfour\nfive\nDone.\n";

fn in_steps(words: &str, opens_all: bool) -> RenderedLog {
    let (times, search) = (two_steps(), LogSearch::new(words));
    let view = LogView { times: &times, started: Timestamp::UNIX_EPOCH, search: search.as_ref(), opens_all };
    render(&SIX, &view).unwrap()
}

#[test]
fn steps_are_sections_with_times_and_the_last_one_is_open() {
    let rendered = in_steps("", false);
    assert!(rendered.is_folded);
    let words = regex::Regex::new("<a [^>]*></a>|</?span[^>]*>|</?div[^>]*>| title=\"[^\"]*\"").unwrap();
    assert_snapshot!(words.replace_all(&rendered.html, ""), @r##"
    note
    <details class="fold step"><summary><b>init</b> · 3 lines · 3.1 s · began <time class="from" datetime="1970-01-01T00:00:01Z" data-clock>00:00:01</time></summary>one
    two<time class="at" datetime="1970-01-01T00:00:02Z" data-clock>00:00:02</time>
    three
    </details><details class="fold step" open><summary><b>plan</b> · 2 lines · 1 min 1 s · began <time class="from" datetime="1970-01-01T00:00:05Z" data-clock>00:00:05</time></summary>four
    five<time class="at" datetime="1970-01-01T00:00:12Z" data-clock>00:00:12</time>
    </details>Done.
    "##);
    assert!(rendered.html.contains("title=\"1970-01-01 00:00:12 UTC\""), "{}", rendered.html);
    assert!(!in_steps("", true).is_folded && !in_steps("TWO", false).is_folded && in_steps("four", false).is_folded);
}

#[test]
fn matches_are_marked_across_colours_and_lead_to_each_other() {
    let text = "a <Er\x1b[31mror>\x1b[0m ab\nnothing\nerror ERROR\n";
    let rendered = looking_for("error", text);
    assert_eq!((rendered.matches, rendered.first_match), (2, Some(1)));
    let html = &rendered.html;
    let across = "a &lt;<mark>Er</mark><span class=\"c1\"><mark>ror</mark>&gt;</span> ab";
    assert!(html.contains(across), "{html}");
    assert!(html.contains("<mark>error</mark> <mark>ERROR</mark>"), "{html}");
    assert!(
        html.contains("<span class=\"to\"><a href=\"#L3\" aria-label=\"next match, in line 3\">↓</a></span>"),
        "{html}"
    );
    assert!(
        html.contains("<span class=\"to\"><a href=\"#L1\" aria-label=\"previous match, in line 1\">↑</a></span>"),
        "{html}"
    );
    assert_eq!(looking_for("<mark>", text).matches, 0);
}

#[test]
fn matches_in_lines_that_are_left_out_are_shown_with_what_is_around_them() {
    let needle = HEAD_LINES + 100;
    let line = |n| if n == needle { "the needle\n".to_owned() } else { format!("{n}\n") };
    let text: String = (1..=MAX_PAGE_LINES + 1_000).map(line).collect();
    let rendered = looking_for("NEEDLE", &text);
    assert_eq!((rendered.matches, rendered.first_match), (1, Some(needle)));
    let html = &rendered.html;
    for (number, shown) in
        [(needle - 3, false), (needle - 2, true), (needle, true), (needle + 2, true), (needle + 3, false)]
    {
        assert_eq!(html.contains(&format!("id=\"L{number}\"")), shown, "{number}");
    }
    assert!(html.contains("<p class=\"cut\">97 lines are not shown here"), "{html}");
    assert!(html.contains("<p class=\"cut\">898 lines are not shown here"), "{html}");

    let all: String = (1..=MAX_PAGE_LINES + 1_000).map(|n| format!("x {n}\n")).collect();
    let rendered = looking_for("x", &all);
    assert_eq!(rendered.matches, MAX_PAGE_LINES + 1_000);
    let left_out = 1_000 - MAX_EXCERPTS - EXCERPT_CONTEXT;
    let note = format!("{left_out} lines, {left_out} with a match, are not shown here");
    assert!(rendered.html.contains(&note), "{}", &rendered.html[..2_000]);
}

#[test]
fn a_huge_log_shows_its_beginning_and_its_end() {
    let text: String = (1..=MAX_PAGE_LINES + 5).map(|n| format!("{n}\n")).collect();
    let rendered = plainly(&text);
    assert_eq!(rendered.lines, MAX_PAGE_LINES + 5);
    assert!(rendered.html.contains("5 lines are not shown here"));
    for (number, shown) in [(1, true), (HEAD_LINES, true), (HEAD_LINES + 1, false), (HEAD_LINES + 5, false)] {
        assert_eq!(rendered.html.contains(&format!("id=\"L{number}\"")), shown, "{number}");
    }
    assert!(rendered.html.contains(&format!("id=\"L{}\"", MAX_PAGE_LINES + 5)));
}

#[test]
fn the_first_error_that_is_shown_is_found_and_hidden_ones_are_counted() {
    assert_eq!(plainly("a\n│ Error: b\nError: c\n").first_error, Some(2));
    assert_eq!(plainly("a\nb: Error: c\n").first_error, None);
    let error_in = |lines: &[usize]| {
        let line = |n| if lines.contains(&n) { "Error: x\n".to_owned() } else { format!("{n}\n") };
        plainly(&(1..=MAX_PAGE_LINES + 5).map(line).collect::<String>())
    };
    let rendered = error_in(&[HEAD_LINES + 1, HEAD_LINES + 5, HEAD_LINES + 6]);
    assert_eq!(rendered.first_error, Some(HEAD_LINES + 6));
    assert!(rendered.html.contains("5 lines, 2 with an error, are not shown here"));
    assert!(error_in(&[HEAD_LINES + 2]).html.contains("5 lines, one with an error, are not shown here"));
}

proptest! {
    #[test]
    fn nothing_of_a_log_becomes_markup(text in "[<>&\"'a-c=/\n\x1b\\[m01;]{0,80}", words in "[<>&\"'a-c=/m01;]{0,2}") {
        let html = looking_for(&words, &text).html;
        let allowed = regex::Regex::new(
            r##"<div class="l [a-z]*(?: hit)?" id="L\d+"><a class="n" href="#L\d+" data-n="\d+" tabindex="-1" aria-label="line \d+"></a><span class="t">|</?span( class="[a-z0-9 ]+")?>|</div>|</?mark>|<a href="#L\d+" aria-label="(next|previous) match, in line \d+">[↑↓]</a>"##,
        ).unwrap();
        let rest = allowed.replace_all(&html, "");
        prop_assert!(!rest.contains(['<', '>', '"', '\'']), "{rest}");
    }
}

#[test]
fn a_log_of_nothing_but_colours_has_a_page_of_bounded_size() {
    let line: String = (0..2_700).map(|n| format!("\x1b[3{}mx", n % 7 + 1)).collect();
    let page = plainly(&format!("{line}\n").repeat(500));
    assert!(page.html.contains("<span class=\"c2\">x</span>") && page.html.ends_with("xxx</span></div>\n"));
    assert!(page.html.len() < MAX_COLOURED + 1_000_000, "{} bytes", page.html.len());
}
