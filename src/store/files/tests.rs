use super::*;

#[test]
fn only_files_in_folders_for_kept_files_are_kept() {
    for good in ["plans/a.tfplan", "logs/x.log", "left/id.tar.zst", "errored/job.tfstate", "left/a/b"] {
        assert!(check_path(good).is_ok(), "{good}");
    }
    let long = format!("plans/{}", "x".repeat(PATH_LIMIT));
    for bad in [
        "",
        "plans",
        "plans/",
        "plans/.",
        "plans/..",
        "plans/../tidelock.db",
        "plans//a",
        "plans/./a",
        "plans/a/",
        "/plans/a",
        "./plans/a",
        "../plans/a",
        "tidelock.db",
        "repos/a",
        "plans/a\0b",
        "plans\\a",
        "PLANS/a",
        &long,
    ] {
        assert!(check_path(bad).is_err(), "{bad:?}");
    }
    insta::assert_snapshot!(check_path("../x").unwrap_err(), @r#""../x" cannot be kept: only files in plans, logs, left, errored of the data directory are"#);
}

#[test]
fn a_link_a_folder_and_a_pipe_are_no_kept_files() {
    let dir = tempfile::tempdir().unwrap();
    let plans = dir.path().join("plans");
    std::fs::create_dir_all(plans.join("folder")).unwrap();
    std::fs::write(dir.path().join("secret"), "x").unwrap();
    std::os::unix::fs::symlink(dir.path().join("secret"), plans.join("link")).unwrap();
    let fifo = plans.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    for path in ["plans/folder", "plans/link", "plans/pipe"] {
        assert!(KeptFile::of(dir.path(), path).is_err(), "{path}");
    }
    assert_eq!(KeptFile::of(dir.path(), "plans/none").unwrap(), None);
    assert!(found(dir.path(), "plans").unwrap().is_empty());
}

#[test]
fn a_file_is_named_by_what_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("logs")).unwrap();
    std::fs::write(dir.path().join("logs/a.log"), "one\ntwo\n").unwrap();
    let whole = KeptFile::of(dir.path(), "logs/a.log").unwrap().unwrap();
    assert_eq!((whole.length, whole.sha256.as_str()), (8, Hash::of(b"one\ntwo\n").to_string().as_str()));
    let (part, content) = KeptFile::snapshot(dir.path(), "logs/a.log", 4).unwrap().unwrap();
    assert_eq!((part.length, &content[..], part.sha256), (4, &b"one\n"[..], Hash::of(b"one\n").to_string()));
    assert_eq!(found(dir.path(), "logs").unwrap(), ["logs/a.log"]);
}
