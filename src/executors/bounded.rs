//! Bounds of what a job says in its result: its job runs the code of a pull request, which can say anything.

use crate::domain::guards::TrippedGuard;
use crate::runner::result::{Ending, LockTrace, PlanMade, Ran, StepProblem};
use crate::terraform::state_lock::find_lock;

/// Longest text about a plan, in characters. Comments and records quote such texts.
const MAX_WORDS: usize = 1000;
/// Most guards that a job can name, and most findings of one.
const MAX_GUARDS: usize = 100;
const MAX_FINDINGS: usize = 10;
/// Longest name of a machine, in characters: that of a host in the DNS.
const MAX_MACHINE: usize = 253;

/// Returns the result with bounded texts. The state lock that the job met is that of its output: `force-unlock` decides by it.
pub(super) fn bounded(ran: Ran) -> Ran {
    let met = match &ran.ending {
        Ending::Broken(_) => find_lock(&ran.output),
        Ending::Done | Ending::Stopped => None,
    };
    let machine = cut(ran.state_lock.machine, MAX_MACHINE);
    let ending = match ran.ending {
        Ending::Broken(StepProblem::Guarded { guards }) => {
            Ending::Broken(StepProblem::Guarded { guards: bounded_guards(guards) })
        }
        other => other,
    };
    Ran { ending, state_lock: LockTrace { machine, met, ..ran.state_lock }, plan: ran.plan.map(bounded_plan), ..ran }
}

fn bounded_plan(mut made: PlanMade) -> PlanMade {
    for words in [&mut made.part, &mut made.incomparable, &mut made.left.too_much] {
        *words = words.take().map(|words| cut(words, MAX_WORDS));
    }
    made.guards = made.guards.map(bounded_guards);
    made
}

fn bounded_guards(mut guards: Vec<TrippedGuard>) -> Vec<TrippedGuard> {
    guards.truncate(MAX_GUARDS);
    for guard in &mut guards {
        guard.findings.truncate(MAX_FINDINGS);
        guard.findings.iter_mut().for_each(|finding| *finding = cut(std::mem::take(finding), MAX_WORDS));
    }
    guards
}

fn cut(mut text: String, most: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::state::{LeftFiles, StateLock};

    /// Output of a command that met the lock `of-another`.
    const LOCKED: &str = "Error: Error acquiring the state lock\n\nLock Info:\n  ID:        of-another\n  Operation: OperationTypePlan\n";

    fn guards() -> Vec<TrippedGuard> {
        let findings = vec!["\u{e9}".repeat(5000); 20];
        let guard =
            TrippedGuard { name: "few".into(), findings, more: 0, of_code: true, who: String::new(), passed: None };
        vec![guard; 200]
    }

    fn told() -> Ran {
        let long = || Some("\u{e9}".repeat(5000));
        let left = LeftFiles { too_much: long(), ..LeftFiles::default() };
        let met = StateLock { id: "told".into(), operation: String::new(), who: String::new(), created: None };
        Ran {
            job: "1".into(),
            ending: Ending::Broken(StepProblem::NoPlanFile),
            output: String::new(),
            plan: Some(PlanMade {
                file: None,
                left,
                changes: None,
                incomparable: long(),
                part: long(),
                guards: Some(guards()),
            }),
            errored_state: None,
            state_lock: LockTrace { machine: "m".repeat(5000), killed: true, met: Some(met) },
            log_lines: 0,
            policies: None,
            verification: None,
            steps: Vec::new(),
            marks: Vec::new(),
        }
    }

    #[test]
    fn texts_of_a_job_are_cut() {
        let ran = bounded(told());
        let plan = ran.plan.unwrap();
        for words in [plan.part, plan.incomparable, plan.left.too_much] {
            assert_eq!(words.unwrap(), "\u{e9}".repeat(MAX_WORDS));
        }
        assert_eq!((ran.state_lock.machine.len(), ran.state_lock.killed), (MAX_MACHINE, true));
        for guards in [plan.guards.unwrap(), bounded_guards(guards())] {
            assert_eq!((guards.len(), guards[0].findings.len()), (MAX_GUARDS, MAX_FINDINGS));
            assert_eq!(guards[0].findings[0], "\u{e9}".repeat(MAX_WORDS));
        }
        let PlanMade { part, .. } = bounded_plan(PlanMade { part: Some("-target=a".into()), ..told().plan.unwrap() });
        assert_eq!(part.as_deref(), Some("-target=a"));
    }

    #[test]
    fn a_lock_that_a_job_met_is_that_of_its_output() {
        assert_eq!(bounded(told()).state_lock.met, None, "its own word does not count");
        let ran = bounded(Ran { output: LOCKED.into(), ..told() });
        assert_eq!(ran.state_lock.met.unwrap().id, "of-another");
        let ran = bounded(Ran { output: LOCKED.into(), ending: Ending::Done, ..told() });
        assert_eq!(ran.state_lock.met, None);
    }
}
