//! Disks after a loss of power, or full: truncated or zeroed files, interrupted moves, and no room for a second copy.

use super::adoption::{JOB, old_disk};
use super::buckets::fresh;
use super::*;
use crate::disk::{self, LocalDatabase};

type Harm = fn(&mut Vec<u8>);

/// Damage to a file by a loss of power.
const HARMS: [(&str, Harm); 6] = [
    ("zeroed", |bytes| bytes.fill(0)),
    ("cut to nothing", Vec::clear),
    ("cut in the first page", |bytes| bytes.truncate(50)),
    ("cut in the middle", |bytes| bytes.truncate(bytes.len() / 2)),
    ("its beginning zeroed", |bytes| bytes.iter_mut().take(4096).for_each(|byte| *byte = 0)),
    ("its end zeroed", |bytes| {
        let half = bytes.len() / 2;
        bytes.iter_mut().skip(half).for_each(|byte| *byte = 0);
    }),
];

/// Lists all files below a folder, relative to it.
fn files_below(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files_below(&entry.path()).iter().map(|below| format!("{name}/{below}"))),
            false => found.push(name),
        }
    }
    found.sort();
    found
}

/// Copies a disk at this moment, as SIGKILL would leave it.
fn image(dir: &Path) -> Arc<tempfile::TempDir> {
    let copy = empty_disk();
    for file in files_below(dir) {
        let to = copy.path().join(&file);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(dir.join(&file), to).unwrap();
    }
    copy
}

fn harm(file: &Path, how: Harm) {
    let mut bytes = std::fs::read(file).unwrap();
    how(&mut bytes);
    std::fs::write(file, bytes).unwrap();
}

/// Starts a server whose state has files in every folder, and a job that still writes its log.
async fn busy(bucket: &Arc<dyn Bucket>) -> Server {
    let server = Server::start(bucket).await;
    server.accept("a").await.unwrap();
    let plan = plan_with_file(&server, "one", 1, "net", b"a plan");
    server.file("left/one.tar.zst", b"left");
    server.file(&format!("errored/{JOB}.tfstate"), b"{\"serial\": 7}");
    let log = logs::Logs::new(server.dir.path()).create(&JOB.into()).unwrap();
    log.line("a line");
    let data_dir = server.dir.path().to_owned();
    let fill = move |tx: &Tx<'_>| -> Result<()> {
        tx.put_plan(&plan)?;
        tx.put_job(&job(JOB, JobState::Running))?;
        for file in ["left/one.tar.zst".to_owned(), format!("errored/{JOB}.tfstate")] {
            tx.keep_file(&KeptFile::read(&data_dir, &file)?.unwrap())?;
        }
        Ok(())
    };
    server.store.write(fill).await.unwrap();
    server.store.sync().await.unwrap();
    server
}

#[tokio::test]
async fn a_start_makes_the_state_new_whatever_file_of_it_is_cut_or_zeroed() {
    let bucket = fresh();
    let server = busy(&bucket).await;
    let (disk, state) = (image(server.dir.path()), server.digest());
    server.stop().await;
    let files = files_below(disk.path());
    for expected in ["tidelock.db", "tidelock.db-wal", "tidelock.db-shm", "tidelock.lock", "plans/one.tfplan"] {
        assert!(files.iter().any(|file| file == expected), "{expected} is not in {files:?}");
    }
    for file in &files {
        for (what, how) in HARMS {
            let disk = image(disk.path());
            harm(&disk.path().join(file), how);
            let server = Server::start_in(disk, &bucket).await;
            assert_eq!(server.digest(), state, "{file}, {what}");
            assert_files(server.dir.path());
            // Only an unreadable database was set aside, once.
            let disk = server.stop().await;
            assert!(!disk.path().join("before-vault.1").exists(), "{file}, {what}");
            let aside = disk.path().join("damaged");
            assert!(!aside.exists() || file == DATABASE, "{file}, {what}");
            harm(&disk.path().join(DATABASE), |bytes| bytes.fill(0));
            let server = Server::start_in(disk, &bucket).await;
            assert_eq!(server.digest(), state, "{file}, {what}, then zeroed");
            server.stop().await;
        }
    }
}

#[tokio::test]
async fn a_disk_that_no_vault_knew_is_set_aside_unopened_when_its_database_is_harmed() {
    let bucket = fresh();
    let server = Server::start(&bucket).await;
    server.accept("of the vault").await.unwrap();
    server.stop().await;
    for (what, how) in HARMS {
        let (dir, _) = old_disk().await;
        harm(&dir.path().join(DATABASE), how);
        let harmed = std::fs::read(dir.path().join(DATABASE)).unwrap();
        let server = Server::start_in(dir.clone(), &bucket).await;
        assert_eq!(identities(&server.store).await, ["of the vault"], "{what}");
        assert_files(dir.path());
        let asides = ["before-vault.1", "damaged"].map(|name| dir.path().join(name));
        let aside = asides.iter().find(|aside| aside.exists()).unwrap_or_else(|| panic!("{what}: nothing is aside"));
        assert_eq!(std::fs::read(aside.join(DATABASE)).unwrap(), harmed, "{what}");
        assert!(aside.join("plans/one.tfplan").exists() && aside.join(files::log_path(&JOB.into())).exists(), "{what}");
        server.stop().await;
    }
}

#[tokio::test]
async fn an_empty_vault_beside_a_database_that_cannot_be_read_stops_the_start() {
    let (dir, _) = old_disk().await;
    harm(&dir.path().join(DATABASE), |bytes| bytes.fill(0));
    let error = Server::try_start(dir.clone(), vault(fresh(), no_bases())).await.err().unwrap();
    assert!(format!("{error:#}").contains("it cannot be read: put a good copy in its place"), "{error:#}");
    assert!(dir.path().join("plans/one.tfplan").exists());
}

/// Returns a disk from before the vault whose last commits are in the write-ahead log alone.
async fn old_disk_with_a_log() -> Arc<tempfile::TempDir> {
    let (dir, store) = open();
    for folder in files::FOLDERS {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        std::fs::write(dir.path().join(folder).join("kept"), folder).unwrap();
    }
    store.write(|tx| tx.accept_delivery(&delivery("a"))).await.unwrap();
    let disk = image(dir.path());
    assert!(disk.path().join("tidelock.db-wal").metadata().unwrap().len() > 0);
    disk
}

#[tokio::test]
async fn a_crash_between_two_moves_of_what_is_set_aside_loses_nothing() {
    let bucket = fresh();
    let server = Server::start(&bucket).await;
    server.accept("of the vault").await.unwrap();
    server.stop().await;
    for moves in 0..=disk::parts().count() {
        let dir = old_disk_with_a_log().await;
        let aside = dir.path().join("before-vault.1");
        if moves > 0 {
            std::fs::create_dir(&aside).unwrap();
        }
        for part in disk::parts().take(moves) {
            std::fs::rename(dir.path().join(&part), aside.join(&part)).unwrap();
        }
        // A start creates the folders that it expects before it reads the state.
        for folder in files::FOLDERS {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        let server = Server::start_in(dir.clone(), &bucket).await;
        assert_eq!(identities(&server.store).await, ["of the vault"]);
        server.stop().await;
        for folder in files::FOLDERS {
            assert_eq!(std::fs::read_to_string(aside.join(folder).join("kept")).unwrap(), folder, "{moves} moves");
        }
        assert!(!dir.path().join("before-vault.2").exists(), "{moves} moves");
        assert_eq!(identities(&Store::open(&aside).unwrap()).await, ["a"], "{moves} moves");
    }
}

#[tokio::test]
async fn a_crash_between_two_moves_of_a_restore_is_made_good_by_the_next() {
    let bucket = fresh();
    let server = busy(&bucket).await;
    let (disk, state) = (image(server.dir.path()), server.digest());
    server.stop().await;
    for moves in 0..=disk::parts().count() {
        let dir = image(disk.path());
        let old = dir.path().join("restoring.1/old");
        std::fs::create_dir_all(&old).unwrap();
        for part in disk::parts().take(moves).filter(|part| part != "errored") {
            std::fs::rename(dir.path().join(&part), old.join(&part)).unwrap();
        }
        let server = Server::start_in(dir, &bucket).await;
        assert_eq!(server.digest(), state, "{moves} moves");
        assert_files(server.dir.path());
        server.stop().await;
    }
}

#[tokio::test]
async fn a_state_that_could_not_be_saved_and_that_no_row_names_stays_on_its_disk() {
    let bucket = fresh();
    let server = busy(&bucket).await;
    server.file("errored/unknown.tfstate", b"{\"serial\": 8}");
    server.file(&format!("errored/{JOB}.tfstate"), b"changed by somebody");
    let dir = server.die().await;
    for disk in [dir, image_without_database(&bucket).await] {
        std::fs::create_dir_all(disk.path().join("errored")).unwrap();
        std::fs::write(disk.path().join("errored/unknown.tfstate"), b"{\"serial\": 8}").unwrap();
        let server = Server::start_in(disk, &bucket).await;
        let read = |name: &str| std::fs::read_to_string(server.dir.path().join("errored").join(name)).unwrap();
        assert_eq!(read("unknown.tfstate"), "{\"serial\": 8}");
        assert_eq!(read(&format!("{JOB}.tfstate")), "{\"serial\": 7}", "a row names this one");
        server.die().await;
    }
}

/// Returns a disk with everything but a database.
async fn image_without_database(bucket: &Arc<dyn Bucket>) -> Arc<tempfile::TempDir> {
    let dir = Arc::new(restored(bucket, None).await);
    std::fs::remove_file(dir.path().join(DATABASE)).unwrap();
    dir
}

#[tokio::test]
async fn where_two_copies_have_no_room_the_old_one_goes_first_and_what_could_not_be_saved_stays() {
    let bucket = fresh();
    let server = busy(&bucket).await;
    let dir = server.die().await;
    assert_eq!(disk::inspect(dir.path()).unwrap(), LocalDatabase::Cache);
    disk::make_room_of(dir.path(), u64::MAX).unwrap();
    assert_eq!(disk::inspect(dir.path()).unwrap(), LocalDatabase::Cache, "there is room for both");
    disk::make_room_of(dir.path(), 1 << 20).unwrap();
    assert_eq!(files_below(dir.path()), [format!("errored/{JOB}.tfstate"), "tidelock.lock".to_owned()]);
    let server = Server::start_in(dir, &bucket).await;
    assert_eq!(identities(&server.store).await, ["a"]);
    assert_files(server.dir.path());
    server.stop().await;
}
