//! Limits on what a child can do to the server, and the output that the server reads of it.

use super::*;
use proptest::prelude::*;
use std::sync::Mutex;
use std::time::Instant;

fn sh(script: &str) -> Invocation {
    let path = std::env::var("PATH").unwrap();
    Invocation::new("sh", ["-c", script], "/tmp").env(vec![("PATH".into(), path)])
}

async fn finish(invocation: Invocation) -> Finished {
    run(invocation, &Redactor::default(), &CancellationToken::new(), None).await.unwrap()
}

fn secrets(values: &[&str]) -> Redactor {
    Redactor::new(values.iter().map(|value| SecretString::from(*value)).collect())
}

#[tokio::test]
async fn lines_reach_the_sink_redacted_and_both_streams_are_kept() {
    let seen = Mutex::new(Vec::new());
    let sink = |line: &str| seen.lock().unwrap().push(line.to_owned());
    let (redactor, cancel) = (secrets(&["hunter22"]), CancellationToken::new());
    let script = "echo one; echo 'pw hunt''er22!' >&2; printf 'no newline'; exit 3";
    let done = run(sh(script).reading(100), &redactor, &cancel, Some(&sink)).await.unwrap();
    assert_eq!((done.code, done.signal, done.ending().as_str()), (Some(3), None, "exit status 3"));
    assert_eq!(done.read_text().unwrap(), "one\nno newline");
    let mut lines: Vec<&str> = done.output.lines().collect();
    lines.sort();
    assert_eq!(lines, ["no newline", "one", "pw <redacted>!"]);
    assert_eq!(seen.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn what_is_read_is_as_it_was_printed_and_what_is_shown_is_not() {
    let script = r"printf 'a\rsecret-of-ours \033[1mb\377'; head -c 100000 /dev/zero; echo to stderr >&2";
    let (redactor, cancel) = (secrets(&["secret-of-ours"]), CancellationToken::new());
    let done = run(sh(script).reading(200_000), &redactor, &cancel, None).await.unwrap();
    let read = done.read().unwrap();
    assert!(read.starts_with(b"a\rsecret-of-ours \x1b[1mb\xff\0\0") && read.len() == 100_023, "{}", read.len());
    assert!(!done.output.contains("secret-of-ours"));
    let done = run(sh(script).reading(10), &redactor, &cancel, None).await.unwrap();
    assert_eq!(done.read().unwrap_err().to_string(), "it printed more than 10 bytes");
    assert_eq!(run(sh(script), &redactor, &cancel, None).await.unwrap().read().unwrap(), b"");
}

#[tokio::test]
async fn lines_arrive_while_the_process_runs() {
    let cancel = CancellationToken::new();
    let sink = |line: &str| assert_eq!((line, cancel.cancel()), ("ready", ()));
    let done = run(sh("echo ready; exec sleep 60"), &Redactor::default(), &cancel, Some(&sink)).await.unwrap();
    assert!(done.cancelled && !done.success());
    assert_eq!(done.signal, Some(2));
}

#[tokio::test]
async fn environment_is_exactly_what_was_given() {
    let env = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned()), ("A".to_owned(), "b c".to_owned())];
    let done = finish(Invocation::new("env", Vec::<String>::new(), "/").env(env)).await;
    let mut lines: Vec<&str> = done.output.lines().collect();
    lines.sort();
    assert_eq!(lines, ["A=b c", "PATH=/usr/bin:/bin"]);
}

#[tokio::test]
async fn a_program_that_is_not_on_path_is_named_with_the_path() {
    let invocation = Invocation::new("no-such-tool", ["x"], "/").env(vec![("PATH".into(), "/nowhere".into())]);
    let error = run(invocation, &Redactor::default(), &CancellationToken::new(), None).await.unwrap_err();
    assert_eq!(error.to_string(), "no-such-tool is not on PATH (\"/nowhere\"); install it there");
}

#[tokio::test]
async fn standard_input_is_what_was_given_or_empty() {
    let big = "x".repeat(1 << 20);
    assert_eq!(finish(sh("wc -c").stdin(big.clone().into_bytes())).await.output.trim(), big.len().to_string());
    assert_eq!(finish(sh("wc -c")).await.output.trim(), "0");
}

#[tokio::test]
async fn a_timeout_interrupts_first_and_kills_after_the_grace() {
    let polite = sh("trap 'echo stopping; exit 7' INT; echo up; while :; do sleep 0.05; done");
    // Long enough for a shell to begin on a busy machine: before its trap is set, an interrupt ends it.
    let limit = Duration::from_secs(3);
    let done = finish(polite.timeout(limit)).await;
    assert!(done.timed_out && done.output.contains("stopping"), "{done:?}");
    assert_eq!((done.code, done.ending().as_str()), (Some(7), "timed out"));

    let deaf = sh("trap '' INT; while :; do sleep 0.05; done");
    let done = finish(deaf.timeout(limit).grace(Duration::from_millis(200))).await;
    assert!(done.timed_out);
    assert_eq!(done.signal, Some(9));
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipe_neither_blocks_us_nor_lives_on() {
    let begin = Instant::now();
    let done = finish(sh("sleep 300 & echo $!")).await;
    assert!(begin.elapsed() < Duration::from_secs(20), "waited for the grandchild");
    assert_eq!(done.code, Some(0));
    let status = format!("/proc/{}/stat", done.output.trim());
    for _ in 0..200 {
        // The killed process may still be a zombie if no process reaps orphans.
        match std::fs::read_to_string(&status) {
            Ok(stat) if !stat.contains(") Z ") => tokio::time::sleep(Duration::from_millis(20)).await,
            _ => return,
        }
    }
    panic!("the grandchild lives on");
}

#[tokio::test]
async fn gigabytes_of_output_stay_bounded_with_head_tail_and_a_count() {
    let done = finish(sh("seq 1 400000").output_limit(10_000)).await;
    assert!(done.output.len() < 10_200, "{}", done.output.len());
    assert!(done.output.starts_with("1\n2\n3\n") && done.output.ends_with("399999\n400000\n"));
    let total: usize = (1..=400_000).map(|n: u32| n.to_string().len() + 1).sum();
    let notice = done.output.lines().find(|line| line.starts_with("[... ")).unwrap();
    let kept: usize = done.output.lines().filter(|l| l.parse::<u32>().is_ok()).map(|l| l.len() + 1).sum();
    assert_eq!(notice, format!("[... {} bytes of output left out here ...]", total - kept));
}

#[tokio::test]
async fn a_line_without_end_is_cut_with_a_notice_and_no_half_of_a_secret() {
    let secret = "S3cr3tS3cr3tS3cr3t";
    let script =
        format!("head -c {} /dev/zero | tr '\\0' x; printf {secret}; head -c 100000 /dev/zero; echo; echo on", 65_530);
    let done = run(sh(&script), &secrets(&[secret]), &CancellationToken::new(), None).await.unwrap();
    let (first, second) = done.output.split_once('\n').unwrap();
    assert!(first.ends_with(" bytes of this line left out]") && first.len() < output::LINE_LIMIT + 100);
    assert!(!first.contains("S3cr"), "{}", &first[65_000..]);
    assert_eq!(second, "on\n");
}

#[tokio::test]
async fn progress_shows_its_last_state_and_bad_utf8_is_replaced() {
    let done = finish(sh(r"printf '10%%\r50%%\r100%%\r\ndone \377\r\nlast\r'")).await;
    assert_eq!(done.output, "100%\ndone \u{fffd}\nlast\n");
}

#[tokio::test]
async fn a_secret_file_is_on_descriptor_3_of_that_child_alone() {
    let secret = || Some(SecretString::from("username=a\npassword=b\n"));
    let twice = "cat /proc/self/fd/3; cat /proc/self/fd/3; env; cat /proc/self/cmdline";
    let done = finish(sh(twice).secret_file(secret())).await;
    assert_eq!(done.output.matches("password=b").count(), 2, "{}", done.output);
    assert!(!done.output.split("PATH=").nth(1).unwrap().contains("password"));

    let holder = tokio::spawn(async move { finish(sh("sleep 0.5").secret_file(secret())).await });
    for _ in 0..10 {
        let other = finish(sh("ls -l /proc/self/fd")).await;
        assert!(!other.output.contains("memfd"), "{}", other.output);
    }
    assert!(holder.await.unwrap().success());
}

#[tokio::test]
async fn another_user_has_no_group_of_ours() {
    if !rustix::process::geteuid().is_root() {
        // Written directly, because the test runner hides the output of a passing test.
        std::io::Write::write_all(
            &mut std::io::stderr(),
            b"skipped: another_user_has_no_group_of_ours: only root may become somebody else\n",
        )
        .unwrap();
        return;
    }
    let done = finish(sh("id -u; id -g; id -G").run_as(Some(RunAs { uid: 65_534, gid: 65_534 }))).await;
    assert_eq!(done.output, "65534\n65534\n65534\n");
}

#[tokio::test]
async fn a_dropped_run_kills_its_group() {
    let (tell, told) = tokio::sync::oneshot::channel();
    let tell = Mutex::new(Some(tell));
    let sink = move |line: &str| {
        if let Some(tell) = tell.lock().unwrap().take() {
            tell.send(line.to_owned()).unwrap();
        }
    };
    let task = tokio::spawn(async move {
        run(sh("echo $$; exec sleep 300"), &Redactor::default(), &CancellationToken::new(), Some(&sink)).await
    });
    let id = told.await.unwrap();
    task.abort();
    let gone = async {
        while std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("it is killed");
}

#[test]
fn hardened_we_are_not_dumpable() {
    harden_self().unwrap();
    assert_eq!(rustix::process::dumpable_behavior().unwrap(), rustix::process::DumpableBehavior::NotDumpable);
}

#[test]
fn secrets_are_masked_in_every_usual_form() {
    let redactor = secrets(&["ghp_0123456789abcdef", "line-one\nline-two\nxy", "abc", "p@ss/word"]);
    let table = [
        ("Authorization: token ghp_0123456789abcdef.", "Authorization: token <redacted>."),
        ("line-two then xy and abc", "<redacted> then xy and abc"),
        ("https://u:p%40ss%2Fword@host/", "https://u:<redacted>@host/"),
        ("nothing here", "nothing here"),
    ];
    for (text, masked) in table {
        assert_eq!(redactor.redact(text), masked);
    }
    use base64::Engine;
    for user in ["", "x-access-token:", "ab:", "abc:"] {
        let header = base64::prelude::BASE64_STANDARD.encode(format!("{user}ghp_0123456789abcdef"));
        let masked = redactor.redact(&header);
        assert!(masked.contains("<redacted>") && masked.len() < user.len() * 2 + 16, "{masked}");
    }
    assert_eq!(secrets(&["abcdef", "efgh"]).redact("xabcdefghx"), "x<redacted>x");
}

proptest! {
    #[test]
    fn no_secret_gets_through_however_the_stream_is_cut(
        secret in "[0-9]{4,12}", before in "[0-9 ]{0,20}", after in "[0-9 ]{0,20}", cuts in prop::collection::vec(1usize..8, 1..40),
    ) {
        let redactor = secrets(&[&secret]);
        let text = format!("{before}{secret}{after}\n");
        let (mut lines, mut seen, mut rest) = (output::Lines::default(), String::new(), text.as_bytes());
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, left) = rest.split_at((*cut).min(rest.len()));
            lines.feed(chunk, |line| seen.push_str(&line.redacted(&redactor, &mut false)));
            rest = left;
        }
        prop_assert!(!seen.contains(&secret) && seen.contains("<redacted>"), "{seen}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_child_of_low_priority_lets_all_others_go_first() {
    // Field 19 of proc_pid_stat(5) is the nice value.
    let script = "until [ \"$(cut -d' ' -f19 /proc/$$/stat)\" = 19 ]; do :; done";
    let done = run(sh(script).low_priority(true), &Redactor::default(), &CancellationToken::new(), None).await.unwrap();
    assert!(done.success(), "{}", done.ending());
}

#[tokio::test]
async fn a_confined_child_reaches_what_it_may_and_this_process_everything() {
    let Protection::Landlock(version) = Protection::of_steps(StepConfinement::Auto).unwrap() else { return };
    let dir = tempfile::TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name);
    for folder in ["hidden", "hidden/own", "kept", "free"] {
        std::fs::create_dir_all(path(folder)).unwrap();
        std::fs::write(path(folder).join("file"), "text\n").unwrap();
    }
    let confinement = Confinement {
        shared: Arc::new(SharedBounds::new(vec![path("hidden")], vec![path("kept")], vec!["/".into()])),
        own: vec![(path("hidden/own"), Reach::Write), (path("not there"), Reach::Write)],
    };
    let script = "for file in hidden hidden/own kept free; do cat $file/file && echo read $file; done 2>&1; \
                  for file in hidden hidden/own kept free; do (echo new > $file/new) && echo wrote $file; done; kill -0 $OUR_PID && echo signal";
    let mut invocation = Invocation { confinement: Some(Arc::new(confinement)), ..sh(script) };
    invocation.dir = dir.path().to_owned();
    invocation.env.push(("OUR_PID".into(), std::process::id().to_string()));
    let output = finish(invocation).await.output;
    let done: Vec<_> = output.lines().filter(|line| line.starts_with("read ") || line.starts_with("wrote ")).collect();
    assert_eq!(done, ["read hidden/own", "read kept", "read free", "wrote hidden/own", "wrote free"], "{output}");
    assert!(version < 6 || !output.contains("signal"), "{output}");
    assert_eq!(std::fs::read_to_string(path("hidden/file")).unwrap(), "text\n");
    assert!(finish(sh(&format!("cat {}", path("hidden/file").display()))).await.success());
}

#[tokio::test]
async fn a_process_that_is_gone_has_no_children_and_has_ended() {
    let done = finish(sh("echo $$")).await;
    let gone = rustix::process::Pid::from_raw(done.output.trim().parse().unwrap()).unwrap();
    assert!(platform::children_of(gone).unwrap().is_empty());
    platform::await_end(gone, Duration::from_secs(60)).unwrap();
}

#[test]
fn values_are_masked_between_quotes_of_json_and_hcl() {
    let redactor = secrets(&["pa\"ss\\wo<rd>${x}"]);
    for text in [
        r#"+ x = "pa\"ss\\wo<rd>$${x}""#,
        r#"{"x":"pa\"ss\\wo<rd>${x}"}"#,
        r#"{"x":"pa\"ss\\wo\u003crd\u003e${x}"}"#,
        "pa\"ss\\wo<rd>${x}",
    ] {
        let masked = redactor.redact(text);
        assert!(masked.contains("<redacted>") && !masked.contains("wo"), "{text}: {masked}");
    }
}

#[test]
fn masks_hide_what_they_match_except_totals() {
    use crate::terraform::summary::{is_total, strip_ansi};
    let regexes = [r"xoxb-[0-9a-z-]+", r"\d+", "key: split"].map(|text| regex::Regex::new(text).unwrap());
    let masks = Masks { regexes: regexes.into(), plain: strip_ansi, spares: is_total };
    let redactor = secrets(&["hunter22"]).with_masks(masks).with(vec![SecretString::from("later-secret")]);
    for (text, masked) in [
        ("a xoxb-1-a b 12\nnext 3", "a <redacted> b <redacted>\nnext <redacted>"),
        ("pw hunter22 and later-secret", "pw <redacted> and <redacted>"),
        ("\u{1b}[1mkey:\u{1b}[0m split\u{1b}[32m!\u{1b}[0m", "<redacted>!"),
        ("\u{1b}[1mplain\u{1b}[0m", "\u{1b}[1mplain\u{1b}[0m"),
        ("Plan: 1 to add, 2 to change, 3 to destroy.", "Plan: 1 to add, 2 to change, 3 to destroy."),
        ("\u{1b}[1mPlan:\u{1b}[0m 1 to add.", "\u{1b}[1mPlan:\u{1b}[0m 1 to add."),
        (
            "Apply complete! Resources: 4 added, 0 changed, 0 destroyed.",
            "Apply complete! Resources: 4 added, 0 changed, 0 destroyed.",
        ),
        ("Plan: 1 to add, customer 4711", "Plan: <redacted> to add, customer <redacted>"),
        ("Plan: 1 to add. 4711", "Plan: <redacted> to add. <redacted>"),
    ] {
        assert_eq!(redactor.redact(text), masked, "{text}");
    }
}

#[test]
fn texts_in_a_value_that_is_json_are_masked_alone() {
    let json = r#"{"type": "service_account", "key": "-----BEGIN KEY-----\nMIIEvQIBADANBg\n-----END KEY-----\n", "list": [{"password": "hunter22-deep"}], "port": 5432}"#;
    let redactor = Redactor::default().with_parts(vec![SecretString::from(json)]);
    for (text, masked) in [
        ("# google_service_account.app will be created", "# google_service_account.app will be created"),
        ("    \"MIIEvQIBADANBg\",", "    \"<redacted>\","),
        ("+ password = \"hunter22-deep\"", "+ password = \"<redacted>\""),
        ("the account has port 5432", "the account has port 5432"),
    ] {
        assert_eq!(redactor.redact(text), masked);
    }
}

#[test]
fn values_are_masked_where_programs_break_their_lines() {
    let parts = |value: &str| Redactor::default().with_parts(vec![SecretString::from(value)]);
    let redactor = parts("correct horse battery staple of many words");
    for text in ["correct horse battery", "staple of many words", "correct+horse+battery+staple+of+many+words"] {
        assert_eq!(redactor.redact(&format!("is {text}.")), "is <redacted>.");
    }
    assert_eq!(redactor.redact("words of many horses"), "words of many horses");
    let pem = parts("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----\n");
    assert_eq!(pem.redact("-----BEGIN PUBLIC KEY-----"), "-----BEGIN PUBLIC KEY-----");
    assert_eq!(parts("open terraform now").redact("by terraform"), "by terraform");
    use base64::Engine;
    let value = "abcdefghij0123456789".repeat(8);
    let encoded = base64::prelude::BASE64_STANDARD.encode(&value);
    for columns in [64, 76] {
        let lines: Vec<&[u8]> = encoded.as_bytes().chunks(columns).collect();
        for line in &lines[..lines.len() - 1] {
            assert_eq!(parts(&value).redact(std::str::from_utf8(line).unwrap()), "<redacted>");
        }
    }
}

#[test]
fn many_secrets_are_found_like_few() {
    let value = |at: usize| format!("value-{at:05}-of-many-secrets");
    for count in [2, 5000] {
        let values: Vec<String> = (0..count).map(value).collect();
        let redactor = secrets(&values.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(redactor.redact(&format!("{} and {}", value(0), value(count - 1))), "<redacted> and <redacted>");
        assert_eq!(redactor.redact("value-without-a-number"), "value-without-a-number");
    }
}

#[test]
fn colours_do_not_part_a_value() {
    use crate::terraform::summary::{is_total, strip_ansi};
    let masks = || Masks { regexes: Vec::new(), plain: strip_ansi, spares: is_total };
    let redactor = secrets(&["hunter22"]).with_masks(masks());
    for redactor in [&redactor, &redactor.without_masks(), &redactor.with(vec![SecretString::from("more")])] {
        assert_eq!(redactor.redact("\u{1b}[1mhunt\u{1b}[0mer22\nx"), "<redacted>\nx");
        assert_eq!(redactor.redact("\u{1b}[1mhunter\u{1b}[0m"), "\u{1b}[1mhunter\u{1b}[0m");
    }
}

#[test]
fn patterns_are_left_out_for_decisions_and_bounded_for_people() {
    use crate::terraform::summary::{is_total, strip_ansi};
    let regexes = vec![regex::Regex::new("[0-9]").unwrap()];
    let redactor = secrets(&["hunter22"]).with_masks(Masks { regexes, plain: strip_ansi, spares: is_total });
    assert_eq!(redactor.redact("2 failures of hunter22"), "<redacted> failures of <redacted>");
    assert_eq!(redactor.without_masks().redact("2 failures of hunter22"), "2 failures of <redacted>");
    assert_eq!(redactor.redact(&"a1".repeat(5000)), "<redacted>");
}
