//! Figures for metrics.

use super::*;
use tidelock_core::domain::drift::{DriftBlock, DriftCheck, DriftCheckEnd, DriftFinding, DriftHold, ProjectDrift};
use tidelock_core::domain::drift_issue::MissingIssues;
use tidelock_core::domain::ownership::{OwnerState, ProjectOwner};
use tidelock_core::domain::waiting::{WaitCause, WaitingPull};

pub(super) fn found(dir: &str, finding: DriftFinding) -> ProjectDrift {
    ProjectDrift {
        detection: "f".repeat(32).into(),
        repo: repo("github.com", "infra"),
        branch: "main".into(),
        reference: "main".into(),
        commit: "a".repeat(40).into(),
        project: project(dir),
        checked: at(0),
        job: None,
        finding,
        since: None,
        planned: None,
    }
}

#[tokio::test]
async fn drift_is_counted_as_its_findings_say() {
    let (_dir, store) = open();
    let summary = PlanSummary { no_changes: true, ..PlanSummary::default() };
    let block = DriftBlock { pull: pull_id(1), how: DriftHold::AtWork };
    let findings = [
        DriftFinding::Planned(summary),
        DriftFinding::Planned(PlanSummary { changes_outside: true, ..summary }),
        DriftFinding::Planned(PlanSummary { add: 1, no_changes: false, ..summary }),
        DriftFinding::Planned(PlanSummary { no_changes: false, changes_outside: true, ..summary }),
        DriftFinding::Skipped { block, because: "it is locked".into() },
        DriftFinding::Failed("\"no_changes\": false".into()),
    ];
    let drifted = findings.iter().filter(|finding| finding.has_drift()).count() as u32;
    let figures = store.write(move |tx| {
        for (number, finding) in findings.into_iter().enumerate() {
            tx.put_drift(&found(&format!("p{number}"), finding))?;
        }
        tx.figures()
    });
    assert_eq!((figures.await.unwrap().drifted, drifted), (3, 3));
}

#[tokio::test]
async fn locks_owners_plans_and_the_stop_of_applies_are_counted() {
    let (dir, store) = open();
    std::fs::create_dir(dir.path().join("plans")).unwrap();
    for plan in ["p1", "p2"] {
        std::fs::write(dir.path().join("plans").join(plan), "plan").unwrap();
    }
    assert_eq!(store.read(|view| view.figures()).await.unwrap(), StateFigures::default());
    let written = store.write(|tx| {
        let lock = |dir: &str, since| project_lock(repo("github.com", "infra"), project(dir), 1, since);
        for (dir, since) in [("a", 700), ("b", 500), ("c", 900)] {
            tx.lock_project(&lock(dir, since))?;
        }
        for (number, state) in
            [OwnerState::Planned, OwnerState::MergedUnapplied, OwnerState::MergedUnknown].into_iter().enumerate()
        {
            let ProjectLock { repo, project, holder, .. } = lock(&format!("o{number}"), 0);
            tx.insert_owner(&ProjectOwner {
                repo,
                project,
                holder,
                state,
                applied: None,
                merged: None,
                told: None,
                reminder_interval: None,
                approved: None,
                reason: String::new(),
            })?;
        }
        tx.insert_waiter(&WaitingPull {
            project: project("a"),
            pull: pull_id(2),
            since: at(0),
            cause: WaitCause::Apply,
            address: StateAddress::default(),
        })?;
        tx.put_plan(&plan("p1", 1, "a"))?;
        tx.put_plan(&plan("p2", 1, "b"))?;
        assert!(tx.consume_plan("p2", "j1")?);
        for (name, ended) in [("infra", Some(900)), ("app", Some(300)), ("new", None)] {
            let end = ended.map(|ended| DriftCheckEnd { at: at(ended), run: None, refused: None });
            let repo = repo("github.com", name);
            tx.put_drift_check(&DriftCheck {
                repo,
                due: at(100),
                began: at(200),
                attempts: 1,
                end,
                issues: MissingIssues::default(),
            })?;
        }
        tx.set_apply_lock(Some(&ApplyLock { user: "carol".into(), reason: String::new(), since: at(950) }))
    });
    written.await.unwrap();
    let expected = StateFigures {
        locks: 3,
        oldest_lock: Some(at(500)),
        waits: 1,
        owned: 3,
        owed: 2,
        plans: 1,
        drifted: 0,
        oldest_drift_check: Some(at(300)),
        applies_stopped: Some(at(950)),
    };
    assert_eq!(store.read(|view| view.figures()).await.unwrap(), expected);
}
