//! Tests of the commands on real buckets in directories: sound ones, and ones whose files were lost, cut, changed or exchanged.

use super::*;
use crate::domain::state::AuditEntry;
use crate::store::{KeptFile, digest};
use crate::vault::inbox::HandOverKey;
use crate::vault::leader::Leader;
use crate::vault::lease::{Identity, Timing};
use crate::vault::{Hash, Retention};
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;

use crate::store::Store;

/// Number of journal objects until a base is due.
const BASE_AFTER: u64 = 6;

fn vault(bucket: &Path) -> Vault {
    let identity = Identity {
        nonce: crate::execute::random_id(),
        url: "https://tide.example.com".into(),
        machine: "tide (process 7)".into(),
        version: "0.1.0".into(),
        fingerprint: "a-b-c".into(),
        force: false,
    };
    let bucket: Arc<dyn Bucket> = Arc::new(Directory::open(bucket).unwrap());
    Vault {
        identity,
        fingerprint: Default::default(),
        timing: Timing::default(),
        retention: Retention { base_after_objects: BASE_AFTER, ..Retention::default() },
        handover: HandOverKey::derive("secret"),
        ..Vault::reader(bucket)
    }
}

/// Starts a server up to its lead.
async fn start(bucket: &Path, data_dir: &Path) -> Result<(Store, Leader)> {
    let vault = vault(bucket);
    vault.bucket.check().await?;
    vault.bucket.announce(&vault.identity.nonce)?;
    let lease = vault.acquire().await?;
    let (leader, chain) = vault.lead(lease).await?.context("the lease went to another")?;
    Store::restore(data_dir, &chain).await?;
    let store = Store::lead(data_dir, leader.clone()).await?;
    Ok((store, leader))
}

async fn record_entry(store: &Store, text: &str) -> Result<()> {
    let at = "2026-01-02T03:04:05Z".parse()?;
    let text = text.to_owned();
    let (who, act, subject, result) = ("ada".into(), "apply".into(), text.clone(), "done".into());
    let entry = AuditEntry { at, who, act, subject, result, ..AuditEntry::default() };
    store.write(move |tx| tx.audit(&entry)).await
}

/// A bucket with a seal, changes, two bases, and kept files; with the digest of the database after each journal object.
struct Kept {
    dir: TempDir,
    digests: BTreeMap<u64, Hash>,
}

impl Kept {
    async fn new() -> Kept {
        let dir = TempDir::new().unwrap();
        let mut kept = Kept { dir, digests: BTreeMap::new() };
        let (store, leader) = start(&kept.bucket(), &kept.data()).await.unwrap();
        let data = kept.data();
        let wrote = |name: &str, content: Vec<u8>| {
            std::fs::create_dir_all(data.join("plans")).unwrap();
            std::fs::write(data.join(name), content).unwrap();
            KeptFile::read(&data, name).unwrap().unwrap()
        };
        let noise = |seed: u64| (0..300_000_u64).map(|at| ((at * at + seed * 77) >> 5) as u8).collect::<Vec<_>>();
        for round in 0..15 {
            record_entry(&store, &format!("round {round}")).await.unwrap();
            if round % 4 == 1 {
                let file = wrote(&format!("plans/{round}.tfplan"), noise(round));
                store.write(move |tx| tx.keep_file(&file)).await.unwrap();
            }
            kept.digests.insert(leader.position().seq, digest(&data.join("tidelock.db")).unwrap());
            store.write_base_if_due().await.unwrap();
        }
        store.close().await.unwrap();
        leader.release().await.unwrap();
        kept
    }

    fn bucket(&self) -> PathBuf {
        self.dir.path().join("bucket")
    }

    fn data(&self) -> PathBuf {
        let path = self.dir.path().join("data");
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// Returns the files of journal and bases, relative to the bucket.
    fn objects(&self) -> Vec<String> {
        let mut names = Vec::new();
        for folder in ["base", "journal"] {
            for entry in std::fs::read_dir(self.bucket().join(folder)).unwrap() {
                names.push(format!("{folder}/{}", entry.unwrap().file_name().into_string().unwrap()));
            }
        }
        names.sort();
        names
    }

    fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        self.objects()
            .into_iter()
            .map(|name| (name.clone(), std::fs::read(self.bucket().join(name)).unwrap()))
            .collect()
    }

    async fn vault(&self, line: &str) -> Result<Report> {
        let line = line.replace("TMP", &self.dir.path().display().to_string());
        let bucket = format!("--bucket=file://{}", self.bucket().display());
        let named = line.contains("--bucket");
        let words = line.split(' ').map(str::to_owned).chain((!named).then_some(bucket));
        dispatch(&command().try_get_matches_from(std::iter::once("tidelock vault".to_owned()).chain(words))?).await
    }

    /// Returns the printed text without the parts that differ from run to run.
    fn shown(&self, text: &str) -> String {
        let text = text.replace(&self.dir.path().display().to_string(), "/TMP");
        let text =
            regex::Regex::new(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ").unwrap().replace_all(&text, "TIME").into_owned();
        let text = regex::Regex::new(r" *(\d+\.\d [kM]B|\d+ B)").unwrap().replace_all(&text, " SIZE").into_owned();
        regex::Regex::new("[0-9a-f]{64}").unwrap().replace_all(&text, "HASH").into_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_shows_who_leads_and_what_is_kept() {
    let kept = Kept::new().await;
    let report = kept.vault("ls --limit=3").await.unwrap();
    insta::assert_snapshot!(kept.shown(&report.text), @r##"
    Bucket   file:///TMP/bucket
    Lease    free; epoch 1 was the last
    States   1 to 20  (for --at)
    Inbox    0 waiting

    Bases
      SEQ  KIND    TIME                        SIZE
        2  base    TIME SIZE
        9  base    TIME SIZE
       15  base    TIME SIZE

    Journal  20 objects, SIZE; the last 3
      SEQ  KIND    TIME                        SIZE
       18  commit  TIME SIZE
       19  commit  TIME SIZE
       20  commit  TIME SIZE
    "##);
    let (_store, _leader) = start(&kept.bucket(), &kept.data()).await.unwrap();
    let report = kept.vault("ls --limit=1").await.unwrap();
    assert!(
        report.text.contains("epoch 2: tide (process 7), https://tide.example.com, version 0.1.0"),
        "{}",
        report.text
    );
    let json: serde_json::Value = serde_json::from_str(&kept.vault("ls --json --limit=0").await.unwrap().text).unwrap();
    assert_eq!(json["journal"].as_array().unwrap().len(), 21);
    assert_eq!(json["journal"][20]["kind"], "seal");
    assert_eq!(json["restorable"], serde_json::json!([[1, 21]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_bucket_verifies_and_every_state_can_be_exported() {
    let kept = Kept::new().await;
    let before = kept.contents();
    let report = kept.vault("verify").await.unwrap();
    assert!(report.well, "{}", report.text);
    insta::assert_snapshot!(kept.shown(&report.text), @r##"
    ok  from base 15 to state 20: every hash is right ( SIZE)
    ok  from base 9 to state 14: every hash is right ( SIZE)
    ok  from base 2 to state 8: every hash is right ( SIZE)
    ok  from the beginning to state 1: every hash is right ( SIZE)
    ok  state 20 was restored
        journal   HASH
        database  HASH
    file:///TMP/bucket: all is well; states 1 to 20 can be restored
    "##);
    for (seq, expected) in &kept.digests {
        let report = kept.vault(&format!("verify --json --at={seq}")).await.unwrap();
        let json: serde_json::Value = serde_json::from_str(&report.text).unwrap();
        assert_eq!(json["restored"]["digest"], expected.to_string(), "{seq}: {}", report.text);
        let to = kept.dir.path().join(format!("out-{seq}"));
        kept.vault(&format!("export TMP/out-{seq} --at={seq}")).await.unwrap();
        assert_eq!(digest(&to.join("tidelock.db")).unwrap(), *expected);
    }
    let plan = |dir: &str| std::fs::read(kept.dir.path().join(dir).join("plans/1.tfplan")).ok();
    assert!(plan("data").is_some() && plan(&format!("out-{}", kept.digests.keys().last().unwrap())) == plan("data"));
    assert_eq!(kept.contents(), before, "reading changes nothing");
    // Commands refuse to overwrite files, and report a state that does not exist.
    for (line, expected) in [
        ("export TMP/data", "is not empty, and nothing in it is written over"),
        ("export TMP/x --at=99", "state 99 is not kept: kept are 1 to 20"),
        ("verify --at=99", "state 99 is not kept: kept are 1 to 20"),
        ("ls --bucket=file:///nonexistent/b", "cannot look at the bucket"),
        ("ls --bucket=s3://x", "is neither gs://NAME/PREFIX nor file:///DIRECTORY"),
    ] {
        let said = match kept.vault(line).await {
            Ok(report) => {
                assert!(!report.well, "{line}");
                report.text
            }
            Err(error) => format!("{error:#}"),
        };
        assert!(said.contains(expected), "{line}: {said}");
    }
    assert!(!kept.dir.path().join("x").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_state_becomes_the_first_of_an_empty_bucket() {
    let kept = Kept::new().await;
    let (seq, expected) = kept.digests.iter().nth(4).unwrap();
    kept.vault(&format!("export TMP/out --at={seq}")).await.unwrap();
    // Refuses to import into a bucket that is not empty.
    let error = format!("{:#}", kept.vault("import TMP/out").await.unwrap_err());
    assert!(error.contains("is not empty, and nothing in it is written over"), "{error}");
    assert!(
        format!("{:#}", kept.vault("import TMP/nothing --bucket=file://TMP/new").await.unwrap_err())
            .contains("no state in")
    );
    let report = kept.vault("import TMP/out --bucket=file://TMP/new").await.unwrap();
    insta::assert_snapshot!(kept.shown(&report.text), @r##"the state of /TMP/out is in file:///TMP/new: start the server with --bucket=file:///TMP/new"##);
    let new = kept.dir.path().join("new");
    let report = kept.vault("verify --json --bucket=file://TMP/new").await.unwrap();
    let json: serde_json::Value = serde_json::from_str(&report.text).unwrap();
    assert_eq!(
        (json["well"].as_bool(), json["restored"]["digest"].as_str()),
        (Some(true), Some(&*expected.to_string()))
    );
    // Any server continues with it, at once and on an empty disk.
    let disk = TempDir::new().unwrap();
    let (store, _leader) = start(&new, disk.path()).await.unwrap();
    let notes = store.read(|view| view.audit_log(100)).await.unwrap();
    assert_eq!(notes[0].subject, "round 4");
    record_entry(&store, "goes on").await.unwrap();
    let error = format!("{:#}", kept.vault("import TMP/out --bucket=file://TMP/new").await.unwrap_err());
    assert!(error.contains("is not empty"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_was_broken_off_can_be_repeated() {
    let kept = Kept::new().await;
    kept.vault("export TMP/out").await.unwrap();
    // Only the seal is written.
    let new = kept.dir.path().join("new");
    let mut first = vault(&new);
    first.identity.fingerprint = String::new();
    let lease = first.acquire().await.unwrap();
    let (leader, _) = first.lead(lease).await.unwrap().unwrap();
    leader.release().await.unwrap();
    kept.vault("import TMP/out --bucket=file://TMP/new").await.unwrap();
    assert!(kept.vault("verify --bucket=file://TMP/new").await.unwrap().well);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_in_which_nothing_was_recorded_is_not_imported() {
    let kept = Kept::new().await;
    let only_sealed = vault(&kept.dir.path().join("sealed"));
    let lease = only_sealed.acquire().await.unwrap();
    let (leader, _) = only_sealed.lead(lease).await.unwrap().unwrap();
    leader.release().await.unwrap();
    kept.vault("export TMP/out --bucket=file://TMP/sealed").await.unwrap();
    let error = kept.vault("import TMP/out --bucket=file://TMP/new").await.unwrap_err();
    insta::assert_snapshot!(kept.shown(&format!("{error:#}")), @"the state in /TMP/out is empty, nothing was ever recorded in it: start the server on an empty prefix or directory instead");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_to_verify_is_not_well() {
    let kept = Kept::new().await;
    std::fs::create_dir(kept.dir.path().join("empty")).unwrap();
    let report = kept.vault("verify --bucket=file://TMP/empty").await.unwrap();
    assert!(!report.well && report.text.contains("holds no state"), "{}", report.text);
    let report = kept.vault("ls --bucket=file://TMP/empty").await.unwrap();
    assert!(report.well && report.text.contains("nobody has led here yet"), "{}", report.text);
    assert_eq!(std::fs::read_dir(kept.dir.path().join("empty")).unwrap().count(), 0, "a look changes nothing");
}

/// One way to corrupt an object; returns false if it cannot be applied.
type Spoil = fn(&Kept, &str) -> bool;

const SPOILS: &[(&str, Spoil)] = &[
    ("missing", |kept, name| {
        // A missing last object cannot be detected: it might never have been written.
        let last = kept.objects().pop().unwrap() == name;
        !last && std::fs::remove_file(kept.bucket().join(name)).is_ok()
    }),
    ("empty", |kept, name| std::fs::write(kept.bucket().join(name), "").is_ok()),
    ("cut", |kept, name| {
        change(kept, name, |content| content.truncate(content.len() - 1));
        true
    }),
    ("cut in half", |kept, name| {
        change(kept, name, |content| content.truncate(content.len() / 2));
        true
    }),
    ("bit in the middle", |kept, name| {
        change(kept, name, |content| {
            let middle = content.len() / 2;
            content[middle] ^= 4;
        });
        true
    }),
    ("last bit", |kept, name| {
        change(kept, name, |content| *content.last_mut().unwrap() ^= 1);
        true
    }),
    ("zeros", |kept, name| {
        change(kept, name, |content| content.fill(0));
        true
    }),
    ("exchanged", |kept, name| {
        let other = kept.objects().into_iter().find(|other| other != name).unwrap();
        let (one, two) = (kept.bucket().join(name), kept.bucket().join(other));
        let (first, second) = (std::fs::read(&one).unwrap(), std::fs::read(&two).unwrap());
        std::fs::write(one, second).and_then(|()| std::fs::write(two, first)).is_ok()
    }),
];

fn change(kept: &Kept, name: &str, change: impl Fn(&mut Vec<u8>)) {
    let path = kept.bucket().join(name);
    let mut content = std::fs::read(&path).unwrap();
    change(&mut content);
    std::fs::write(path, content).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_spoilt_is_named_and_nothing_is_written_over() {
    let kept = Kept::new().await;
    let sound = kept.contents();
    let bases: Vec<String> = sound.keys().filter_map(|name| Some(name.strip_prefix("base/")?.to_owned())).collect();
    assert!(bases.len() >= 2, "{bases:?}");
    for name in sound.keys() {
        // No kept state needs the journal object of which a base is the state after.
        let spare = name.strip_prefix("journal/").is_some_and(|seq| bases.iter().any(|base| base == seq));
        for (how, spoil) in SPOILS {
            if spare || !spoil(&kept, name) {
                continue;
            }
            let spoilt = kept.contents();
            let report = kept.vault("verify").await.unwrap();
            // An object missing before the newest base may have been deleted because it was old; only fewer states can be restored.
            // Without a base, the journal before it still gives all of them.
            let newest_base = format!("journal/{}", bases.last().unwrap());
            let may_miss = *how == "missing" && (name.starts_with("base/") || *name < newest_base);
            assert_eq!(report.well, may_miss, "{how} {name}: {}", report.text);
            // Of two exchanged objects, the error names the first one that is read.
            let named = report.text.contains(name.as_str())
                || (*how == "exchanged" && report.text.contains("another object's file"));
            assert!(may_miss || named, "{how} {name}: {}", report.text);
            let all = report.text.contains("states 1 to 20 can be restored\n");
            assert!(!may_miss || all == name.starts_with("base/"), "{how} {name}: {}", report.text);
            started_or_named(&kept, name, how).await;
            let mut after = kept.contents();
            after.retain(|name, _| spoilt.contains_key(name));
            assert_eq!(after, spoilt, "{how} {name}");
            for name in kept.objects() {
                std::fs::remove_file(kept.bucket().join(name)).unwrap();
            }
            for (name, content) in &sound {
                std::fs::write(kept.bucket().join(name), content).unwrap();
            }
        }
    }
    assert!(kept.vault("verify").await.unwrap().well);
}

/// Checks that a start on a corrupt bucket names the object, or restores everything that was ever committed.
async fn started_or_named(kept: &Kept, name: &str, how: &str) {
    let disk = TempDir::new().unwrap();
    match start(&kept.bucket(), disk.path()).await {
        Err(error) => {
            let said = format!("{error:#}");
            assert!(said.contains(name), "{how} {name}: {said}");
        }
        Ok((store, leader)) => {
            let notes = store.read(|view| view.audit_log(100)).await.unwrap();
            assert_eq!((notes.len(), notes[0].subject.as_str()), (15, "round 14"), "{how} {name}");
            store.close().await.unwrap();
            leader.release().await.unwrap();
        }
    }
}
