use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const JOB: &str = "0123456789abcdef0123456789abcdef";

fn logs() -> (tempfile::TempDir, Logs) {
    let dir = tempfile::tempdir().unwrap();
    let logs = Logs::new(dir.path());
    (dir, logs)
}

async fn rest_of(mut reader: LogReader) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(piece) = reader.next().await.unwrap() {
        assert!(piece.len() as u64 <= PIECE && piece.ends_with('\n'));
        lines.extend(piece.lines().map(str::to_owned));
    }
    lines
}

async fn text_of(logs: &Logs) -> String {
    logs.read(&JOB.into()).await.unwrap().unwrap().so_far().await.unwrap()
}

#[tokio::test]
async fn a_log_can_be_read_while_it_grows_after_its_end_and_after_a_restart() {
    let (dir, logs) = logs();
    let writer = logs.create(&JOB.into()).unwrap();
    writer.line("one");
    let reader = logs.read(&JOB.into()).await.unwrap().unwrap();
    assert!(reader.is_live());
    assert_eq!(text_of(&logs).await, "one\n");
    writer.line("two");
    drop(writer);
    assert_eq!(rest_of(reader).await, ["one", "two"]);

    for logs in [logs, Logs::new(dir.path())] {
        let mut reader = logs.read(&JOB.into()).await.unwrap().unwrap();
        assert!(!reader.is_live());
        assert_eq!(reader.so_far().await.unwrap(), "one\ntwo\n");
    }
}

#[tokio::test]
async fn each_line_is_on_the_disk_when_it_is_written() {
    let (dir, logs) = logs();
    let writer = logs.create(&JOB.into()).unwrap();
    writer.line("one");
    // The log for a server that starts after this one was killed.
    assert_eq!(text_of(&Logs::new(dir.path())).await, "one\n");
    drop(writer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_that_join_at_any_moment_get_every_line_exactly_once_and_in_order() {
    const LINES: usize = 500;
    const READERS: usize = 8;
    for _ in 0..20 {
        let (_dir, logs) = logs();
        let writer = logs.create(&JOB.into()).unwrap();
        let written = Arc::new(AtomicUsize::new(0));
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let (logs, written) = (logs.clone(), written.clone());
                tokio::spawn(async move {
                    while written.load(Ordering::Relaxed) < reader * LINES / READERS {
                        tokio::task::yield_now().await;
                    }
                    rest_of(logs.read(&JOB.into()).await.unwrap().unwrap()).await
                })
            })
            .collect();
        let writing = tokio::task::spawn_blocking(move || {
            for number in 0..LINES {
                writer.line(&number.to_string());
                written.store(number + 1, Ordering::Relaxed);
                if number % 7 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let expected: Vec<String> = (0..LINES).map(|number| number.to_string()).collect();
        for reader in readers {
            assert_eq!(reader.await.unwrap(), expected);
        }
        writing.await.unwrap();
    }
}

#[tokio::test]
async fn a_reader_that_is_slow_misses_nothing_and_takes_small_pieces() {
    let (_dir, logs) = logs();
    let writer = logs.create(&JOB.into()).unwrap();
    let slow = logs.read(&JOB.into()).await.unwrap().unwrap();
    for number in 0..50_000 {
        writer.line(&number.to_string());
    }
    drop(writer);
    let expected: Vec<String> = (0..50_000).map(|number| number.to_string()).collect();
    assert_eq!(rest_of(slow).await, expected);
}

#[tokio::test]
async fn a_log_ends_at_its_limit_with_a_notice_written_once() {
    let (_dir, logs) = logs();
    let writer = logs.create(&JOB.into()).unwrap();
    let line = "x".repeat(LINE_LIMIT);
    for _ in 0..=LOG_LIMIT / LINE_LIMIT as u64 {
        writer.line(&line);
    }
    writer.line("too late");
    let text = text_of(&logs).await;
    assert!(text.len() as u64 <= LOG_LIMIT);
    assert!(text.ends_with(&format!("x\n{LIMIT_NOTICE}\n")));
    assert_eq!(text.matches(LIMIT_NOTICE).count(), 1);
}

#[tokio::test]
async fn long_and_several_lines_are_split_and_nothing_is_lost() {
    let (_dir, logs) = logs();
    let writer = logs.create(&JOB.into()).unwrap();
    let long = "é".repeat(LINE_LIMIT);
    let reader = logs.read(&JOB.into()).await.unwrap().unwrap();
    writer.line(&long);
    writer.line("a\nb");
    writer.line("");
    drop(writer);
    let lines = rest_of(reader).await;
    assert!(lines.iter().all(|line| line.len() <= LINE_LIMIT));
    assert_eq!(lines[..2].concat(), long);
    assert_eq!(lines[2..], ["a", "b", ""]);
}

#[tokio::test]
async fn only_a_job_id_is_ever_a_path() {
    let (dir, logs) = logs();
    std::fs::create_dir_all(dir.path().join("logs")).unwrap();
    std::fs::write(dir.path().join("secret.log"), "x").unwrap();
    for job in ["", "../secret", "x", &JOB[1..], &format!("{JOB}0"), &JOB.to_uppercase(), &format!("../{}", &JOB[3..])]
    {
        assert!(logs.read(&job.into()).await.unwrap().is_none(), "{job}");
        assert!(logs.create(&job.into()).is_err(), "{job}");
        logs.remove(&job.into());
    }
    assert!(logs.read(&JOB.into()).await.unwrap().is_none());
    assert!(dir.path().join("secret.log").exists());
}

#[tokio::test]
async fn a_log_has_one_writer_and_is_removed_only_when_that_is_gone() {
    let (_dir, logs) = logs();
    let writer = logs.create(&JOB.into()).unwrap();
    assert!(logs.create(&JOB.into()).is_err());
    logs.remove(&JOB.into());
    writer.line("one");
    drop(writer);
    let again = logs.create(&JOB.into()).unwrap();
    again.line("two");
    drop(again);
    assert_eq!(text_of(&logs).await, "one\ntwo\n");
    assert!(lock(&logs.live).is_empty());
    logs.remove(&JOB.into());
    logs.remove(&JOB.into());
    assert!(logs.read(&JOB.into()).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_never_takes_a_log_for_ended_that_has_just_begun() {
    for _ in 0..50 {
        let (_dir, logs) = logs();
        let stop = Arc::new(AtomicBool::new(false));
        let reading = {
            let (logs, stop) = (logs.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    if let Some(reader) = logs.read(&JOB.into()).await.unwrap() {
                        return Some(rest_of(reader).await);
                    }
                }
                None
            })
        };
        let writer = logs.create(&JOB.into()).unwrap();
        writer.line("one");
        writer.line("two");
        tokio::task::yield_now().await;
        drop(writer);
        stop.store(true, Ordering::Relaxed);
        if let Some(lines) = reading.await.unwrap() {
            assert_eq!(lines, ["one", "two"]);
        }
    }
}

#[tokio::test]
async fn lines_have_the_same_numbers_for_the_writer_and_for_all_readers() {
    let (dir, logs) = logs();
    let writer = logs.create(&JOB.into()).unwrap();
    let long = "x".repeat(2 * LINE_LIMIT + 1);
    let numbers = ["one", "", long.as_str(), "two\nthree", "four"].map(|line| writer.numbered_line(line));
    assert_eq!((numbers, writer.lines()), ([1..2, 2..3, 3..6, 6..8, 8..9].map(Some), 8));
    let mut reader = logs.read(&JOB.into()).await.unwrap().unwrap();
    let text = reader.text();
    writer.line("five");
    drop(writer);
    let mut lines = Vec::new();
    text.each_line(&mut |line| lines.push(line.to_owned())).unwrap();
    assert_eq!((lines.len(), lines[0].as_str(), lines[1].as_str(), lines[7].as_str()), (8, "one", "", "four"));
    assert_eq!(rest_of(logs.read(&JOB.into()).await.unwrap().unwrap().until_now()).await.len(), 9);
    // The next process goes on.
    let writer = Logs::new(dir.path()).create(&JOB.into()).unwrap();
    assert_eq!(writer.numbered_line("six"), Some(10..11));
}

#[tokio::test]
async fn a_full_log_has_no_number_for_what_it_drops() {
    let (_dir, logs) = logs();
    let writer = logs.create(&JOB.into()).unwrap();
    let line = "x".repeat(LINE_LIMIT - 1);
    let kept = (1..).take_while(|number| writer.numbered_line(&line) == Some(*number..number + 1)).count() as u64;
    assert_eq!((writer.lines(), writer.numbered_line("late")), (kept + 1, None));
    assert_eq!(kept + 1, LOG_LIMIT / LINE_LIMIT as u64);
}
