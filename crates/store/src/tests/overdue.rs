//! Notes that a pull request holds projects for long.

use super::*;

#[tokio::test]
async fn a_hold_is_noted_once_and_its_lock_keeps_the_note() {
    let lock = |dir: &str, since| project_lock(repo("github.com", "infra"), project(dir), 1, since);
    let (_dir, store) = open();
    let noted = store.write(move |tx| {
        tx.lock_project(&lock("net", 10))?;
        tx.lock_project(&lock("db", 20))?;
        let pull = pull_id(1);
        let counts = [9, 10, 10].map(|until| tx.note_overdue(&pull, at(until), at(30)).map(|holds| holds.len()));
        let counts = counts.into_iter().collect::<Result<Vec<_>>>()?;
        Ok((counts, tx.untold_holds()?, tx.locks_of(&pull)?))
    });
    let (counts, left, locks) = noted.await.unwrap();
    assert_eq!(counts, [0, 1, 0]);
    assert_eq!(left.iter().map(|held| held.project.dir.as_str()).collect::<Vec<_>>(), ["db"]);
    assert_eq!(locks.iter().map(|lock| lock.holder.overdue).collect::<Vec<_>>(), [Some(at(30)), None]);
}
