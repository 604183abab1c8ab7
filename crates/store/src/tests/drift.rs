//! Findings of drift runs and scheduled detections.

use super::figures::found;
use super::*;
use tidelock_core::domain::drift::{
    DriftBlock, DriftCheck, DriftCheckEnd, DriftFinding, DriftHold, DriftKind, ProjectDrift,
};
use tidelock_core::domain::drift_issue::{DriftIssue, IssuePlace, MissingIssues};
use tidelock_core::domain::state::IssueChange;

fn planned(change: u64) -> DriftFinding {
    DriftFinding::Planned(PlanSummary { change, no_changes: change == 0, ..PlanSummary::default() })
}

fn skipped() -> DriftFinding {
    DriftFinding::Skipped { block: DriftBlock { pull: pull_id(1), how: DriftHold::AtWork }, because: "busy".into() }
}

fn failed() -> DriftFinding {
    DriftFinding::Failed("\"no_changes\": true".into())
}

#[tokio::test]
async fn a_finding_says_since_when_it_is_so_and_when_it_was_planned() {
    let (_dir, store) = open();
    let times = store.write(|tx| {
        let mut times = Vec::new();
        let findings = [planned(0), planned(2), planned(3), skipped(), failed(), failed(), planned(1)];
        for (second, finding) in findings.into_iter().enumerate() {
            tx.put_drift(&ProjectDrift { checked: at(second as i64), ..found("net", finding) })?;
            let kept = tx.drift_in(&repo("github.com", "infra"))?.remove(0);
            times.push((kept.since.unwrap(), kept.planned.unwrap()));
        }
        Ok(times)
    });
    let expected = [(0, 0), (1, 1), (1, 2), (3, 2), (4, 2), (4, 2), (6, 6)];
    assert_eq!(times.await.unwrap(), expected.map(|(since, planned)| (at(since), at(planned))));
}

#[tokio::test]
async fn findings_are_listed_by_kind_and_repository_in_pages() {
    let (_dir, store) = open();
    let filled = store.write(|tx| {
        let findings = [planned(0), planned(1), planned(2), skipped(), failed()];
        for (number, finding) in findings.into_iter().enumerate() {
            tx.put_drift(&found(&format!("p{number}"), finding.clone()))?;
            let other = ProjectDrift { repo: repo("github.com", "app"), ..found(&format!("q{number}"), finding) };
            tx.put_drift(&other)?;
        }
        Ok(())
    });
    filled.await.unwrap();
    let checked = store.read(|view| {
        let list = |repo: Option<&str>, kind, after, limit| {
            let filter = DriftFilter { repo: repo.map(str::to_owned), kind };
            let page = view.list_drift(&filter, after, limit).unwrap();
            (page.rows.into_iter().map(|row| row.project.dir).collect::<Vec<_>>(), page.next)
        };
        let (first, next) = list(None, None, None, 5);
        assert_eq!(first, ["q1", "q2", "q3", "q4", "p1"]);
        assert_eq!(list(None, None, next, 5), (vec!["p2".to_owned(), "p3".into(), "p4".into()], None));
        assert_eq!(list(Some("ACME/infra"), Some(DriftKind::Drifted), None, 5).0, ["p1", "p2"]);
        assert_eq!(list(Some("github.com/acme/app"), Some(DriftKind::Clean), None, 5).0, ["q0"]);
        assert_eq!(list(None, Some(DriftKind::Skipped), None, 5).0, ["q3", "p3"]);
        assert_eq!(list(None, Some(DriftKind::Failed), None, 1).0, ["q4"]);
        let mut totals = view.drift_totals(&repo("github.com", "infra"))?;
        totals.sort_by_key(|(kind, _)| kind.as_str());
        let expected =
            [(DriftKind::Clean, 1), (DriftKind::Drifted, 2), (DriftKind::Failed, 1), (DriftKind::Skipped, 1)];
        assert_eq!(totals, expected);
        Ok(())
    });
    checked.await.unwrap();
}

#[tokio::test]
async fn projects_that_a_branch_has_no_more_are_dropped() {
    let (_dir, store) = open();
    let kept = store.write(|tx| {
        for (dir, branch) in [("a", "main"), ("b", "main"), ("b", "other")] {
            tx.put_drift(&ProjectDrift { branch: branch.into(), ..found(dir, planned(1)) })?;
        }
        let repo = repo("github.com", "infra");
        tx.drop_drift_of(&repo, "main", |gone| *gone == project("b"))?;
        Ok(tx.drift_in(&repo)?.into_iter().map(|row| (row.project.dir, row.branch)).collect::<Vec<_>>())
    });
    assert_eq!(kept.await.unwrap(), [("a".to_owned(), "main".to_owned()), ("b".into(), "other".into())]);
}

#[tokio::test]
async fn a_scheduled_detection_ends_once_and_only_itself() {
    let (_dir, store) = open();
    let done = store.write(|tx| {
        let check = |due| DriftCheck {
            repo: repo("github.com", "infra"),
            due: at(due),
            began: at(due),
            attempts: 1,
            end: None,
            issues: MissingIssues::default(),
        };
        let end = |second| DriftCheckEnd { at: at(second), run: None, refused: None };
        let ended = || tx.drift_check(&repo("github.com", "infra")).unwrap().and_then(|check| check.end);
        tx.end_drift_check(&check(0), end(5))?;
        assert!(tx.drift_checks()?.is_empty());
        tx.put_drift_check(&check(10))?;
        tx.end_drift_check(&check(0), end(11))?;
        assert_eq!(ended(), None, "an earlier one");
        tx.end_drift_check(&check(10), end(12))?;
        tx.end_drift_check(&check(10), end(13))?;
        assert_eq!(ended(), Some(end(12)));
        tx.forget_drift_check(&repo("github.com", "infra"))?;
        assert!(tx.drift_checks()?.is_empty());
        Ok(())
    });
    done.await.unwrap();
}

#[tokio::test]
async fn an_issue_is_known_by_its_project_until_it_is_closed() {
    let (_dir, store) = open();
    let done = store.write(|tx| {
        let drift = found("net", planned(1));
        let issue = DriftIssue::new("1".repeat(32).as_str().into(), &drift, "digest".into());
        tx.change_drift_issue(&issue, IssueChange::Update { body: "text".into() })?;
        assert!(tx.issues_with_effects(&issue.repo)?.contains(&issue.id) && tx.issue_of_drift(&drift)?.is_none());
        let pending = tx.pending_effects(None, 10)?;
        assert!(pending[0].pull.is_branch());
        tx.effect_done(pending[0].id, "done")?;
        assert!(tx.issues_with_effects(&issue.repo)?.is_empty());

        tx.put_drift_check(&DriftCheck {
            repo: drift.repo.clone(),
            due: at(1),
            began: at(1),
            attempts: 1,
            end: None,
            issues: MissingIssues { waiting: 2, refused: Some("disabled".into()) },
        })?;
        let place = IssuePlace { number: 7, url: "https://h/7".into() };
        // A detection has recorded another drift since the request.
        tx.put_drift_issue(&DriftIssue { shows: "newer".into(), ..issue.clone() })?;
        tx.drift_issue_opened(&issue.id, place.clone())?;
        assert_eq!(tx.drift_issue(&issue.id)?.unwrap().shows, "newer");
        tx.drift_issue_not_updated(&issue.id)?;
        assert_eq!(tx.drift_issue(&issue.id)?.unwrap().shows, "");
        let missing = tx.drift_check(&drift.repo)?.unwrap().issues;
        assert_eq!(missing, MissingIssues { waiting: 2, refused: None });
        assert_eq!(tx.issue_of_drift(&drift)?, Some(place.clone()));
        let other = ProjectDrift { branch: "other".into(), ..drift.clone() };
        assert_eq!(tx.issue_of_drift(&other)?, None);

        let known = tx.drift_issue(&issue.id)?.unwrap();
        tx.put_drift_issue(&DriftIssue { closing: true, ..known })?;
        assert_eq!(tx.issue_of_drift(&drift)?, None);
        tx.forget_drift_issue(&issue.id)?;
        assert!(tx.drift_issues_in(&drift.repo)?.is_empty() && tx.drift_issues()?.is_empty());
        Ok(())
    });
    done.await.unwrap();
}
