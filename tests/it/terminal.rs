//! Formats of the server's log: lines for people on a terminal, JSON for machines elsewhere.

use crate::support::*;

/// Returns true for a line such as `12:34:56  INFO listening address=…`, without colours.
fn is_readable(line: &str) -> bool {
    let (time, rest) = line.split_at_checked(8).unwrap_or_default();
    let digits = time.split(':').all(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit()));
    let word = rest.split_whitespace().next().unwrap_or_default();
    digits && time.matches(':').count() == 2 && ["ERROR", "WARN", "INFO"].contains(&word)
}

/// Removes the sequences that set colours.
fn plain(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or(part, |(_, rest)| rest))
}

#[test]
fn log_lines_are_readable_on_a_terminal_and_json_elsewhere() {
    run_test(Setup::one_project().own_process(), async |ctx| {
        ctx.server.stop().await;
        let log = ctx.server.log();
        let messages: Vec<String> = log
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
            .map(|event| event["message"].as_str().unwrap().to_owned())
            .collect();
        for wanted in ["listening", "ready"] {
            assert!(messages.iter().any(|message| message == wanted), "{wanted} is missing: {messages:?}");
        }

        let shown = ctx.server.on_a_terminal("listening").await;
        assert!(shown.contains("\u{1b}["), "a terminal has colours: {shown}");
        let shown = plain(&shown);
        // The terminal echoes the interrupt.
        let lines: Vec<&str> = shown.lines().map(|line| line.trim_start_matches("^C").trim_end()).collect();
        assert!(lines.iter().all(|line| line.is_empty() || is_readable(line)), "{shown}");
        let has = |words: &[&str]| lines.iter().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(has(&["INFO listening", "address=127.0.0.1:", "version="]), "{shown}");
        assert!(has(&["INFO stopping", "SIGINT"]) && has(&["INFO stopped"]), "{shown}");
        ctx.server.start().await;
    });
}
