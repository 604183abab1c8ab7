//! Texts of the plans of a run, from the logs of its jobs.

use crate::domain::state::{Job, JobState};
use crate::store::logs::Logs;
use crate::web::jobs::plain_log;

/// Size of all logs that are read for one page, in bytes; twice that of the longest log.
const MAX_READ: usize = 16 << 20;

/// Length from which a log splits a line, in bytes, and the most bytes by which the last character shortens the part.
const SPLIT_AT: usize = 16 << 10;
const LONGEST_CHARACTER: usize = 4;

/// A job that made a plan, and its text.
pub(super) struct ProjectText {
    pub(super) job: Job,
    pub(super) text: PlanSource,
}

/// Text of a job's log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PlanSource {
    /// The log without escapes; whether its lines have the numbers that the page of the log shows.
    Log(String, bool),
    /// The job still runs.
    Running,
    /// The log was dropped.
    Gone,
    /// The logs of the projects before it are as long as one page reads.
    TooLong,
}

/// Reads the logs of jobs, one after another.
pub(super) async fn read(logs: &Logs, jobs: Vec<Job>) -> anyhow::Result<Vec<ProjectText>> {
    let mut texts = Vec::with_capacity(jobs.len());
    let mut read = 0;
    for job in jobs {
        let text = match job.state {
            JobState::Running => PlanSource::Running,
            _ if read >= MAX_READ => PlanSource::TooLong,
            _ => match logs.read(&job.id).await? {
                Some(mut log) => {
                    let log = log.so_far().await?;
                    read += log.len();
                    tokio::task::spawn_blocking(move || source(&log)).await?
                }
                None => PlanSource::Gone,
            },
        };
        texts.push(ProjectText { job, text });
    }
    Ok(texts)
}

/// Returns the text of a log. A part of a line that the log has split is put together again: it could begin like a heading.
fn source(log: &str) -> PlanSource {
    let mut whole = String::with_capacity(log.len());
    let mut numbered = true;
    for line in log.split_inclusive('\n') {
        let length = line.trim_end_matches('\n').len();
        let is_split = (SPLIT_AT - LONGEST_CHARACTER + 1..=SPLIT_AT).contains(&length);
        whole.push_str(if is_split { line.trim_end_matches('\n') } else { line });
        numbered &= !is_split;
    }
    PlanSource::Log(plain_log(&whole), numbered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::JobId;

    #[tokio::test]
    async fn a_line_that_a_log_has_split_is_whole_again() {
        let dir = tempfile::tempdir().unwrap();
        let (logs, id) = (Logs::new(dir.path()), JobId::from_bits(7));
        let mut texts = Vec::new();
        for long in [format!("{}  # a.b will be destroyed", "x".repeat(SPLIT_AT)), "ä€".repeat(SPLIT_AT)] {
            let text = format!("before\n{long}\nafter\n");
            let log = logs.create(&id).unwrap();
            text.lines().for_each(|line| log.line(line));
            drop(log);
            let kept = logs.read(&id).await.unwrap().unwrap().so_far().await.unwrap();
            assert!(kept.lines().count() > 3, "it is not split");
            assert_eq!(source(&kept), PlanSource::Log(text, false));
            logs.remove(&id);
            texts.push(kept);
        }
        assert_eq!(source("a\nb\n"), PlanSource::Log("a\nb\n".to_owned(), true));
    }
}
