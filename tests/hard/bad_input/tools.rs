//! A Terraform that hangs, prints without end, or dies.

use crate::place::{Binary, CODE, LIMIT, Place, answer, marker, stub_dir};
use tempfile::TempDir;
use tidelock_forge::{Forge, ForgeOptions, OpenOptions};

#[tokio::test]
async fn a_terraform_that_hangs_is_interrupted_at_the_limit_and_killed_with_its_children() {
    let place = Place::new(&["--job-timeout=1s"]).await;
    let pids = place.writable().join("pids");
    let hang = format!("[ \"$1\" = plan ] || return 0\nsleep 600 &\necho $! $$ > {}\nwait\n", pids.display());
    let pull = place.open("Hangs", &[("a/main.tf", Some(CODE)), ("a/stub.sh", Some(&hang))]).await;
    let comment = answer(&pull, 0).await;
    assert!(comment.body.contains("--job-timeout"), "{}", comment.body);
    assert_eq!(marker(&comment.body)["results"][0]["reason"], "timeout");
    for pid in std::fs::read_to_string(&pids).unwrap().split_whitespace() {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{pid} lives on: {state}");
    }
    place.still_works().await;
    place.stop().await;
}

#[tokio::test]
async fn a_terraform_that_dies_by_a_signal_is_told_by_its_signal() {
    let place = Place::new(&[]).await;
    for (signal, number) in [("KILL", 9), ("SEGV", 11)] {
        let die = format!("if [ \"$1\" = plan ]; then echo 'before the end'; kill -{signal} $$; fi\n");
        let pull = place.open(signal, &[("a/main.tf", Some(CODE)), ("a/stub.sh", Some(&die))]).await;
        let comment = answer(&pull, 0).await;
        assert!(comment.body.contains(&format!("signal {number}")), "{}", comment.body);
        assert!(comment.body.contains("before the end"), "{}", comment.body);
        assert_eq!(marker(&comment.body)["results"][0]["outcome"], "error");
        pull.close().unwrap();
    }
    place.still_works().await;
    place.stop().await;
}

#[tokio::test]
async fn output_that_is_no_text_is_shown_without_what_terminals_and_hosts_act_on() {
    let place = Place::new(&[]).await;
    let noise = "if [ \"$1\" = plan ]; then printf '\\033]0;title\\007\\033[31mred\\033[0m\\377\\376\\000 ````` @team <!-- tidelock:{\"v\":1} -->\\n```\\n<script>alert(1)</script>\\n'; fi\n";
    let pull = place.open("Noise", &[("a/main.tf", Some(CODE)), ("a/stub.sh", Some(noise))]).await;
    let comment = answer(&pull, 0).await;
    assert!(comment.body.contains("red"), "{}", comment.body);
    assert!(!comment.body.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{:?}", comment.body);
    // The output is in a fence longer than any run of backticks in it, so that nothing in it is acted on.
    let opening = comment.body.lines().find(|line| line.starts_with("``````")).expect("a long fence");
    let ticks = opening.chars().take_while(|c| *c == '`').count();
    let inside = comment.body.split(&"`".repeat(ticks)).nth(1).unwrap();
    for hidden in ["@team", "<!-- tidelock:{\"v\":1}", "<script>"] {
        assert_eq!(comment.body.matches(hidden).count(), inside.matches(hidden).count(), "{}", comment.body);
    }
    assert!(comment.body.lines().last().unwrap().starts_with("<!-- tidelock:"));
    let job = marker_job(&place).await;
    let (status, _, page) = place.page(&job).await;
    assert_eq!(status, 200);
    assert!(!page.contains("<script>alert"), "{page}");
    place.still_works().await;
    place.stop().await;
}

/// Returns the path of the newest job's page, from the dashboard.
async fn marker_job(place: &Place) -> String {
    let (_, _, page) = place.page("/").await;
    let at = page.find("jobs/").expect("a job on the dashboard");
    format!("/{}", &page[at..at + "jobs/".len() + 32])
}

#[tokio::test]
async fn a_log_that_has_reached_its_limit_says_so_and_the_comment_is_bounded() {
    let place = Place::new(&[]).await;
    // 20 MB: more than the log keeps, more than a comment shows.
    let chatter = "if [ \"$1\" = plan ]; then yes 'all work and no play makes a dull log, and a long one as well' | head -c 20000000; fi\n";
    let pull = place.open("Chatter", &[("a/main.tf", Some(CODE)), ("a/stub.sh", Some(chatter))]).await;
    let comment = answer(&pull, 0).await;
    let done = pull.wait_for_status("atlantis/plan", |status| status.state != "pending", LIMIT).await.unwrap();
    assert_eq!(done.state, "success", "{done:?}");
    let parts = marker(&comment.body)["parts"].as_u64().unwrap();
    assert_eq!(parts, 2, "one result continues in one more comment");
    answer(&pull, 1).await;
    let comments = pull.bot_comments().unwrap();
    assert!(comments.iter().all(|comment| comment.body.chars().count() <= 65_536));
    assert!(comment.body.contains("1 to add"), "{:.2000}", comment.body);
    assert!(
        comments.iter().any(|comment| comment.body.contains("left out")),
        "no comment says that output was left out"
    );
    let job = marker_job(&place).await;
    let (_, _, log) = place.page(&format!("{job}/log")).await;
    assert!(log.len() < 9 << 20 && log.contains("reached its limit"), "{} bytes", log.len());
    place.still_works().await;
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_without_end_takes_bounded_memory_and_the_comment_says_what_is_left_out() {
    let dir = TempDir::new().unwrap();
    let forge = Forge::start(ForgeOptions { dir: dir.path().join("forge"), port: 0 }).await.unwrap();
    let bin = stub_dir(dir.path());
    let server = Binary::start(&forge, dir.path(), &["--comment-style=full"], Some(&bin)).await;
    let peak = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().to_owned();
        line.strip_suffix(" kB").unwrap().parse::<u64>().unwrap() / 1024
    };
    let before = peak();
    // 150 MB in lines, and 50 MB without a line's end.
    let line = "resource ".repeat(100);
    let flood = format!(
        "if [ \"$1\" = plan ]; then yes '{line}' | head -c 150000000; head -c 50000000 /dev/zero | tr '\\0' x; echo; fi\n"
    );
    let repo = forge.create_repo("acme/infra", &[("README.md", "")]).await.unwrap();
    let changes = [("a/main.tf", Some(CODE)), ("a/stub.sh", Some(flood.as_str()))];
    let pull = repo.open_pull("flood", "alice", "Flood", &changes, OpenOptions::default()).await.unwrap();
    let comment = answer(&pull, 0).await;
    let parts = marker(&comment.body)["parts"].as_u64().unwrap();
    answer(&pull, usize::try_from(parts).unwrap() - 1).await;
    let comments = pull.bot_comments().unwrap();
    assert!(comments.iter().any(|comment| comment.body.contains("bytes of output left out here")));
    let mut lines = comments.iter().flat_map(|comment| comment.body.lines());
    let cut = lines.find(|line| line.contains("xxxxxxxx")).expect("the line without end is there as well");
    assert!(
        cut.len() < 65_536 && (cut.ends_with('\u{2026}') || cut.ends_with("of this line left out]")),
        "{}",
        cut.len()
    );
    let grown = peak() - before;
    assert!(grown < 100, "the server grew by {grown} MB for 200 MB of output");
    let changes = [("b/main.tf", Some(CODE))];
    let next = repo.open_pull("next", "alice", "Next", &changes, OpenOptions::default()).await.unwrap();
    assert!(answer(&next, 0).await.body.contains("1 to add"));
    server.terminate();
}

#[tokio::test]
async fn a_plan_as_json_reaches_later_steps_whole_however_long_its_line_is() {
    let config = r#"{"repos":[{"id":"/.*/","workflow":"json"}],"workflows":{"json":{"plan":{"steps":[
        "init","plan","show",{"run":"wc -c < \"$SHOWFILE\""}]}}}}"#;
    let place = Place::new(&[&format!("--repo-config-json={config}")]).await;
    let long = "if [ \"$1\" = show ]; then head -c 300000 /dev/zero | tr '\\0' j; exit 0; fi\n";
    let pull = place.open("JSON", &[("a/main.tf", Some(CODE)), ("a/stub.sh", Some(long))]).await;
    let comment = answer(&pull, 0).await;
    assert!(comment.body.contains("300000") && !comment.body.contains("jjjj"), "{}", comment.body);
    place.stop().await;
}
