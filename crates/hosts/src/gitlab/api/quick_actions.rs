//! Quick actions: GitLab carries out a line of a comment that begins with `/merge`, `/approve`, `/close` and the like, with the rights of
//! its author (docs.gitlab.com/user/project/quick_actions). Text of plans is hostile, and may contain such lines.

use std::borrow::Cow;

/// Character without a width. A line that begins with it shows the same, and is no quick action.
const ZERO_WIDTH: char = '\u{200b}';

/// Returns a text that shows the same and has no quick action. Lines in code blocks are changed as well: GitLab and Markdown do not always
/// agree on where a code block ends.
pub(super) fn defused(text: &str) -> Cow<'_, str> {
    let places: Vec<usize> = slashes(text).collect();
    if places.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + places.len() * ZERO_WIDTH.len_utf8());
    let mut done = 0;
    for place in places {
        out.push_str(&text[done..place]);
        out.push(ZERO_WIDTH);
        done = place;
    }
    out.push_str(&text[done..]);
    Cow::Owned(out)
}

/// Returns the places of slashes that begin a word and before which their line has only blanks and characters that GitLab may drop.
fn slashes(text: &str) -> impl Iterator<Item = usize> {
    let mut is_start = true;
    text.char_indices().filter_map(move |(place, char)| {
        let was_start = is_start;
        is_start = is_line_end(char) || was_start && is_dropped(char);
        // GitLab removes carriage returns first, also within a command.
        let rest = text[place + char.len_utf8()..].trim_start_matches(is_dropped);
        let begins_word = rest.starts_with(|next: char| next.is_alphabetic());
        (was_start && char == '/' && begins_word).then_some(place)
    })
}

fn is_line_end(char: char) -> bool {
    matches!(char, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_dropped(char: char) -> bool {
    char.is_whitespace() || char.is_control() || char == '\u{feff}'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn visible(text: &str) -> String {
        text.chars().filter(|char| *char != ZERO_WIDTH).collect()
    }

    #[test]
    fn no_line_of_a_comment_is_a_quick_action() {
        for hostile in [
            "/merge",
            "text\n/close",
            "text\r\n/Close\r\n",
            "text\r/approve",
            "a\n\r/approve",
            "/\rmerge",
            "\u{feff}/merge",
            "  /merge",
            "\t/label ~x",
            "\u{a0}/merge",
            "a\u{b}/merge\u{c}/close\u{85}/reopen\u{2028}/approve\u{2029}/label",
            "```\nplan\n```\n/merge\n```",
            "```diff\n/merge\n```",
            "````\n```\n/merge\n````",
            "~~~\n/merge\n~~~",
            "<pre>\n/merge\n</pre>",
            ">>>\n/merge\n>>>",
            "<!--\n/merge\n-->",
            "`\n/merge\n`",
        ] {
            let out = defused(hostile);
            assert!(slashes(&out).next().is_none() && out != hostile, "{out:?}");
            assert_eq!(visible(&out), hostile);
            assert_eq!(defused(&out), out, "a second time changes nothing");
        }
    }

    #[test]
    fn other_text_stays_as_it_is() {
        for text in [
            "",
            "a /merge",
            "+ /etc/hosts",
            "- /merge",
            "// comment",
            "/ 5",
            "/*",
            "/",
            "https://example.com/close",
            "a\n+/close",
        ] {
            assert!(matches!(defused(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_shows_is_unchanged_and_no_line_begins_with_a_command(text in "(?s)([ \\t\\r\\n`~>/]|/merge|\\PC|\u{2028}){0,40}") {
            let out = defused(&text);
            prop_assert_eq!(visible(&out), visible(&text));
            // As GitLab looks for commands: it removes carriage returns, and `^` is the place after a line feed.
            let seen = out.replace('\r', "");
            prop_assert!(!seen.split('\n').any(|line| line.starts_with("/merge")));
        }
    }
}
