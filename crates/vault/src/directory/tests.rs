//! The directory bucket: the suite of all buckets, then tests of files alone: modes, damage, crashes, other processes.

use super::*;
use crate::bucket::conformance::{Fresh, Scale, conforms};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Child, Command, Stdio};
use std::time::{Instant, SystemTime};
use tempfile::TempDir;

/// Variable that names the bucket to the child that is killed.
const CHILD: &str = "TIDELOCK_TEST_CHILD_BUCKET";

async fn fresh() -> Fresh {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("bucket");
    let open = || Arc::new(Directory::open(&path).unwrap());
    Fresh { one: open(), two: open(), keep: Box::new(dir) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_does_all_that_a_bucket_has_to_do() {
    conforms(fresh, Scale::default()).await;
}

fn bytes(text: &'static str) -> Body {
    Body::Bytes(Bytes::from_static(text.as_bytes()))
}

async fn stored(bucket: &Directory, name: &str, content: &'static str) -> Generation {
    let Ok(Written::Stored(generation)) = bucket.put(name, 0, bytes(content), "commit").await else { panic!("{name}") };
    generation
}

fn bucket() -> (TempDir, PathBuf, Directory) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("bucket");
    let bucket = Directory::open(&path).unwrap();
    (dir, path, bucket)
}

/// Returns the error text for the operator, without the temporary directory.
fn error_text(error: BucketError, dir: &TempDir) -> String {
    error.to_string().replace(&dir.path().display().to_string(), "/TMP")
}

#[test]
fn an_address_names_a_directory_by_its_whole_path() {
    assert_eq!(parse_url("file:///var/lib/tidelock/bucket"), Ok("/var/lib/tidelock/bucket".into()));
    assert_eq!(parse_url("file:///var/lib/with space/"), Ok("/var/lib/with space".into()));
    for wrong in
        ["file://bucket", "file:///", "file://", "file:/a", "/a", "gs://a", "", "file://host/a", "file:///a\0b"]
    {
        assert!(parse_url(wrong).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn what_is_stored_is_for_this_user_alone() {
    let (_dir, path, bucket) = bucket();
    stored(&bucket, "journal/deep/1", "x").await;
    bucket.announce("n").unwrap();
    assert!(bucket.delete("journal/deep/0", 1).await.unwrap());
    let mode = |name: &str| path.join(name).metadata().unwrap().mode() & 0o777;
    for directory in ["", "journal", "journal/deep", OURS, ".tidelock/tmp", ".tidelock/alive"] {
        assert_eq!(mode(directory), 0o700, "{directory}");
    }
    for file in ["journal/deep/1", ".tidelock/lock", ".tidelock/alive/n"] {
        assert_eq!(mode(file), 0o600, "{file}");
    }
}

#[tokio::test]
async fn any_changed_byte_is_found_and_named() {
    let (_dir, path, bucket) = bucket();
    let generation = stored(&bucket, "journal/7", "content").await;
    let file = path.join("journal/7");
    let good = std::fs::read(&file).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        std::fs::write(&file, &bad).unwrap();
        let error = bucket.get("journal/7").await.unwrap_err().to_string();
        assert!(error.contains("journal/7"), "byte {at}: {error}");
        assert!(bucket.get_range("journal/7", generation, 0..9).await.is_err(), "byte {at} of all of it");
        if at < header::SIZE && at != 7 {
            let listed = bucket.list("", "").await.unwrap().remove(0);
            assert_eq!((listed.name.as_str(), listed.label.as_str()), ("journal/7", "damaged"), "byte {at}");
            assert!(bucket.get_range("journal/7", listed.generation, 0..1).await.is_err());
            assert!(bucket.put("journal/7", listed.generation, bytes("x"), "").await.is_err());
            assert!(bucket.delete("journal/7", listed.generation).await.is_err());
            let noticed = match bucket.inspect().await {
                Ok(warnings) => warnings.concat(),
                Err(error) => error.to_string(),
            };
            assert!(noticed.contains("journal/7"), "byte {at}: {noticed}");
        }
    }
    for length in 0..good.len() {
        std::fs::write(&file, &good[..length]).unwrap();
        let error = bucket.get("journal/7").await.unwrap_err().to_string();
        assert!(error.contains("journal/7"), "cut to {length}: {error}");
        assert_eq!(bucket.list("", "").await.unwrap()[0].label, "damaged", "cut to {length}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), good[..good.len() - 1], "nothing was written over");
    std::fs::write(&file, [&good[..], b"more"].concat()).unwrap();
    assert!(bucket.get("journal/7").await.is_err());
    std::fs::write(&file, &good).unwrap();
    assert!(bucket.get("journal/7").await.unwrap().is_some());
}

#[tokio::test]
async fn an_object_under_another_ones_name_is_damaged() {
    let (dir, path, bucket) = bucket();
    stored(&bucket, "journal/7", "seven").await;
    stored(&bucket, "journal/8", "eight").await;
    let (seven, eight, aside) = (path.join("journal/7"), path.join("journal/8"), dir.path().join("aside"));
    std::fs::rename(&seven, &aside).unwrap();
    std::fs::rename(&eight, &seven).unwrap();
    std::fs::rename(&aside, &eight).unwrap();
    insta::assert_snapshot!(error_text(bucket.get("journal/7").await.unwrap_err(), &dir), @"file:///TMP/bucket: read journal/7: the object is damaged: journal/7 does not fit the checksum in its header, or was another object's file. Put its file back from a copy of the directory, or go back to a state that does not need it: `tidelock vault ls`, then `tidelock vault export DIR --at SEQ`. Nothing was changed");
    assert!(bucket.get("journal/8").await.is_err());
}

#[tokio::test]
async fn a_later_format_is_not_called_damage() {
    let (dir, path, bucket) = bucket();
    stored(&bucket, "journal/7", "seven").await;
    let mut content = std::fs::read(path.join("journal/7")).unwrap();
    content[7] = b'2';
    std::fs::write(path.join("journal/7"), content).unwrap();
    insta::assert_snapshot!(error_text(bucket.get("journal/7").await.unwrap_err(), &dir), @"file:///TMP/bucket: read journal/7: journal/7 was written by another version of Tidelock: start that one, or a newer one");
}

#[tokio::test]
async fn a_directory_with_other_things_in_it_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("thesis.txt"), "mine").unwrap();
    let error = Directory::open(dir.path()).err().unwrap();
    insta::assert_snapshot!(error_text(error, &dir), @"file:///TMP: open: it has somebody else's objects, such as `thesis.txt`: choose an empty directory, or move that file away");
    assert!(Directory::existing(dir.path()).is_err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn things_of_others_beside_our_objects_are_named_and_left_alone() {
    for foreign in ["journal/.DS_Store", "notes.txt~", "journal/7 (copy)", "inbox/x", "inbox/handover/x"] {
        let (_dir, path, bucket) = bucket();
        stored(&bucket, "journal/7", "x").await;
        std::fs::create_dir_all(path.join("inbox/handover")).unwrap();
        // Longer than a header: a shorter file is reported as damaged.
        let mine = "mine".repeat(50);
        std::fs::write(path.join(foreign), &mine).unwrap();
        let warnings = bucket.inspect().await.unwrap().join("\n");
        assert!(warnings.contains(&format!("left alone: `{foreign}`")), "{warnings}");
        assert_eq!(bucket.list("journal/", "").await.unwrap().len(), 1, "it is no object");
        assert_eq!(std::fs::read_to_string(path.join(foreign)).unwrap(), mine);
    }
    let (_dir, path, bucket) = bucket();
    stored(&bucket, "journal/7", "x").await;
    symlink("7", path.join("journal/8")).unwrap();
    assert!(bucket.inspect().await.unwrap().join("\n").contains("left alone: `journal/8`"));
    // A file of another version does not hide the others.
    let later = std::fs::read(path.join("journal/7")).unwrap();
    std::fs::write(path.join("journal/9"), [&later[..7], b"2", &later[8..]].concat()).unwrap();
    let labels = bucket.list("journal/", "").await.unwrap().into_iter().map(|listed| (listed.name, listed.label));
    assert_eq!(labels.collect::<Vec<_>>()[1], ("journal/9".to_owned(), crate::bucket::DAMAGED.to_owned()));
}

#[tokio::test]
async fn what_cannot_be_a_bucket_is_refused_with_what_to_do() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let refused = |path: &str| error_text(Directory::open(&dir.path().join(path)).err().unwrap(), &dir);
    insta::assert_snapshot!(refused("file"), @"file:///TMP/file: open: this is a file, not a directory: name a directory");
    insta::assert_snapshot!(refused("not/mounted"), @"file:///TMP/not/mounted: open: /TMP/not is not there: mount the disk that it should be on, or `mkdir -p /TMP/not`");
    insta::assert_snapshot!(refused("file/below"), @"file:///TMP/file/below: open: /TMP/file/below: Not a directory (os error 20): a file is where a directory should be, or the other way round: move it away");
    insta::assert_snapshot!(error_text(Directory::existing(&dir.path().join("none")).err().unwrap(), &dir), @"file:///TMP/none: open: /TMP/none: No such file or directory (os error 2): it is not there (any more); mount its disk or put it back, then start the server again");
    assert!(!dir.path().join("none").exists());
}

#[tokio::test]
async fn a_bucket_that_goes_away_is_not_begun_anew() {
    let (dir, path, bucket) = bucket();
    let generation = stored(&bucket, "lock/a", "x").await;
    std::fs::rename(&path, dir.path().join("away")).unwrap();
    assert!(matches!(bucket.get("lock/a").await, Err(BucketError::Refused { .. })));
    assert!(matches!(bucket.list("journal/", "").await, Err(BucketError::Refused { .. })));
    assert!(matches!(bucket.put("lock/b", 0, bytes("x"), "").await, Err(BucketError::Refused { .. })));
    assert!(matches!(bucket.put("other/b", 0, bytes("x"), "").await, Err(BucketError::Refused { .. })));
    assert!(bucket.delete("lock/a", generation).await.is_err());
    assert!(!path.exists());
    std::fs::rename(dir.path().join("away"), &path).unwrap();
    assert!(bucket.get("lock/a").await.unwrap().is_some());
}

#[tokio::test]
async fn a_name_with_objects_below_it_is_no_object_and_says_so() {
    let (_dir, _path, bucket) = bucket();
    stored(&bucket, "journal/7", "x").await;
    assert_eq!(bucket.get("journal").await.unwrap(), None);
    assert_eq!(bucket.get("journal/7/8").await.unwrap(), None);
    for name in ["journal", "journal/7/8"] {
        let put = bucket.put(name, 0, bytes("x"), "").await;
        assert!(matches!(put, Err(BucketError::Refused { .. })), "{name}: never there, and yet refused? {put:?}");
    }
}

#[tokio::test]
async fn every_step_of_a_write_that_was_cut_off_leaves_the_old_state_or_the_new() {
    let (_dir, path, bucket) = bucket();
    stored(&bucket, "journal/7", "seven").await;
    let tmp = path.join(".tidelock/tmp");
    let whole = std::fs::read(path.join("journal/7")).unwrap();
    std::fs::write(tmp.join("empty"), "").unwrap();
    std::fs::write(tmp.join("half"), &whole[..100]).unwrap();
    std::fs::write(tmp.join("whole"), &whole).unwrap();
    std::fs::hard_link(path.join("journal/7"), tmp.join("linked")).unwrap();
    let old = SystemTime::now() - Duration::from_secs(60);
    for name in ["empty", "half", "whole", "linked"] {
        std::fs::File::options().write(true).open(tmp.join(name)).unwrap().set_modified(old).unwrap();
    }
    let written_now = bucket.shared.temporary().unwrap();
    std::fs::File::options().write(true).open(&written_now.path).unwrap().set_modified(old).unwrap();
    std::fs::write(tmp.join("young"), "").unwrap();
    let again = Directory::open(&path).unwrap();
    assert!(again.check().await.is_ok());
    let listed: Vec<_> = again.list("", "").await.unwrap().into_iter().map(|listed| listed.name).collect();
    assert_eq!(listed, ["journal/7"]);
    assert_eq!(again.get("journal/7").await.unwrap().unwrap().bytes, "seven");
    let mut left: Vec<_> = std::fs::read_dir(&tmp).unwrap().map(|entry| entry.unwrap().path()).collect();
    left.sort();
    let mut expected = [written_now.path.clone(), tmp.join("young")];
    expected.sort();
    assert_eq!(left, expected, "what a living process writes stays");
}

#[tokio::test]
async fn who_ended_is_known_to_be_gone_and_nobody_else() {
    let (_dir, path, bucket) = bucket();
    let other = Directory::open(&path).unwrap();
    assert!(!other.is_gone("ghost").await.unwrap(), "nobody knows of one that was never here");
    bucket.announce("a").unwrap();
    bucket.announce("a").unwrap();
    bucket.announce("b").unwrap();
    assert!(!other.is_gone("a").await.unwrap() && !bucket.is_gone("a").await.unwrap());
    drop(bucket);
    assert!(other.is_gone("a").await.unwrap() && other.is_gone("b").await.unwrap());
    assert!(other.is_gone("a").await.unwrap(), "a look changes nothing");
    // Files of another machine, or from before the start of this one.
    std::fs::write(path.join(".tidelock/alive/c"), "another").unwrap();
    std::fs::write(path.join(".tidelock/alive/d"), "").unwrap();
    assert!(!other.is_gone("c").await.unwrap() && !other.is_gone("d").await.unwrap());
    // Old files are removed, but never one of a live process.
    let old = SystemTime::now() - FORGOTTEN;
    other.announce("e").unwrap();
    for name in ["a", "e"] {
        let file = path.join(".tidelock/alive").join(name);
        std::fs::File::options().write(true).open(file).unwrap().set_modified(old).unwrap();
    }
    other.announce("f").unwrap();
    assert!(!path.join(".tidelock/alive/a").exists() && path.join(".tidelock/alive/e").exists());
}

const FORGOTTEN: Duration = Duration::from_secs(2 * 3600);

#[test]
fn faults_of_the_file_system_say_what_to_do() {
    let path = Path::new("/b/journal/7");
    for kind in
        [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::ReadOnlyFilesystem, ErrorKind::PermissionDenied]
    {
        assert!(
            matches!(FileError::at(path)(kind.into()), FileError::Refused(reason) if reason.contains("/b/journal/7: "))
        );
    }
    for kind in [ErrorKind::TimedOut, ErrorKind::StaleNetworkFileHandle, ErrorKind::Interrupted, ErrorKind::Other] {
        assert!(matches!(FileError::at(path)(kind.into()), FileError::Unavailable(_)));
    }
}

#[tokio::test]
async fn a_directory_that_others_may_write_to_is_warned_of() {
    let (dir, path, bucket) = bucket();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o770)).unwrap();
    let warnings = bucket.check().await.unwrap();
    assert_eq!(warnings.iter().filter(|warning| warning.contains("others may write")).count(), 1, "{warnings:?}");
    let _ = dir;
}

/// Child of the test below: prints each acknowledged write until it is killed.
#[test]
#[ignore = "run by the test below"]
fn child() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let bucket = Directory::open(Path::new(&path)).unwrap();
        bucket.announce("child").unwrap();
        let mut counter = bucket.get("lock/counter").await.unwrap().map_or(0, |object| object.generation);
        for round in 0.. {
            let body = || Body::Bytes(vec![b'a' + (round % 26) as u8; 20_000].into());
            let name = format!("journal/{}-{round:06}", std::process::id());
            let Ok(Written::Stored(generation)) = bucket.put(&name, 0, body(), "").await else { panic!("{name}") };
            println!("\nput {name} {generation}");
            let Ok(Written::Stored(next)) = bucket.put("lock/counter", counter, body(), "").await else {
                panic!("lock")
            };
            counter = next;
            println!("\nput lock/counter {counter}");
            if round % 3 == 0 {
                println!("\ndelete {name} 0");
                assert!(bucket.delete(&name, generation).await.unwrap());
            }
        }
    });
}

fn start_child(path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "directory::tests::child", "--ignored", "--nocapture"]);
    command.env(CHILD, path).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_is_killed_at_any_moment_leaves_whole_objects_and_all_that_it_acknowledged() {
    let (_dir, path, bucket) = bucket();
    let mut told: BTreeMap<String, Generation> = BTreeMap::new();
    for round in 0..12_u64 {
        let mut child = start_child(&path);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Killed after so many lines, and a little more.
        let wanted = 1 + round * 2;
        let mut seen = 0;
        let mut dead = false;
        while let Some(Ok(line)) = lines.next() {
            let words: Vec<&str> = line.split(' ').collect();
            let [kind @ ("put" | "delete"), name, generation] = words[..] else { continue };
            match kind {
                "put" => told.insert(name.to_owned(), generation.parse().unwrap()),
                _ => told.remove(name),
            };
            seen += 1;
            if seen >= wanted && !dead {
                assert!(!bucket.is_gone("child").await.unwrap());
                let until = Instant::now() + Duration::from_micros(round * 173);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                child.kill().unwrap();
                dead = true;
            }
        }
        child.wait().unwrap();
        assert!(dead, "the child ended by itself");
        assert!(bucket.is_gone("child").await.unwrap());
        // All objects are whole, and no acknowledged write is missing or replaced by an older one.
        bucket.check().await.unwrap();
        let listed: BTreeMap<String, Generation> =
            bucket.list("", "").await.unwrap().into_iter().map(|listed| (listed.name, listed.generation)).collect();
        for (name, generation) in &told {
            let there = listed.get(name);
            let newer = name == "lock/counter" && there.is_some();
            assert!(there == Some(generation) || newer, "{name}: {there:?}, acknowledged {generation}");
        }
        for name in listed.keys() {
            let object = bucket.get(name).await.unwrap().unwrap();
            assert!(object.bytes.len() == 20_000 && object.bytes.iter().all(|byte| *byte == object.bytes[0]));
        }
    }
}

/// `cargo test --release -p tidelock-vault directory::tests::figures -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn figures() {
    for together in [1, 8, 32] {
        let (_dir, _path, bucket) = bucket();
        let (total, body) = (4000, Bytes::from(vec![7; 3000]));
        let since = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..together {
            let (bucket, body) = (bucket.clone(), body.clone());
            tasks.spawn(async move {
                for number in 0..total / together {
                    let name = format!("journal/{task:04}-{number:08}");
                    assert!(bucket.put(&name, 0, Body::Bytes(body.clone()), "commit").await.is_ok());
                }
            });
        }
        tasks.join_all().await;
        let rate = f64::from(total) / since.elapsed().as_secs_f64();
        let since = Instant::now();
        let listed = bucket.list("", "").await.unwrap().len();
        println!("{together} at once: {rate:.0} creates/s; a list of {listed}: {:?}", since.elapsed());
    }
}
