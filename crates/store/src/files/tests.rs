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
        assert!(KeptFile::read(dir.path(), path).is_err(), "{path}");
    }
    assert_eq!(KeptFile::read(dir.path(), "plans/none").unwrap(), None);
    assert!(found(dir.path(), "plans").unwrap().is_empty());
}

#[test]
fn a_file_is_named_by_what_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("logs")).unwrap();
    std::fs::write(dir.path().join("logs/a.log"), "one\ntwo\n").unwrap();
    let whole = KeptFile::read(dir.path(), "logs/a.log").unwrap().unwrap();
    assert_eq!((whole.length, whole.sha256.as_str()), (8, Hash::of(b"one\ntwo\n").to_string().as_str()));
    assert_eq!(found(dir.path(), "logs").unwrap(), ["logs/a.log"]);
}

#[test]
fn pieces_are_named_in_the_order_of_their_log_and_joined_in_it() {
    let (dir, job) = (tempfile::tempdir().unwrap(), JobId::from_bits(7));
    let log = log_path(&job);
    std::fs::create_dir(dir.path().join("logs")).unwrap();
    let text: String = (0..5_000).map(|number| format!("{number}\n")).collect();
    std::fs::write(dir.path().join(&log), &text).unwrap();
    let (mut kept, mut from) = (Vec::new(), 0);
    while let Some(piece) = pieces::read_piece(dir.path(), &job, from, (from + 9_999).min(20_000)).unwrap() {
        assert_eq!(pieces::piece_of(&piece.file.path), Some((log.as_str(), from)));
        let path = dir.path().join(&piece.file.path);
        pieces::copy_piece(&dir.path().join(&log), from, piece.file.length, &path).unwrap();
        assert_eq!(KeptFile::read(dir.path(), &piece.file.path).unwrap().unwrap().sha256, piece.file.sha256);
        from += piece.file.length;
        kept.push(piece.file);
    }
    assert_eq!((kept.len(), from), (3, 20_000));
    assert!(kept.is_sorted_by_key(|file| &file.path));
    std::fs::remove_file(dir.path().join(&log)).unwrap();
    pieces::join(dir.path(), &kept).unwrap();
    assert_eq!(found(dir.path(), "logs").unwrap(), [log.as_str()], "nothing is left of the pieces");
    assert_eq!(std::fs::read_to_string(dir.path().join(&log)).unwrap(), text[..20_000]);

    for other in
        ["plans/x.log.000000000000", "logs/x.log", "logs/x.log.1", "logs/x.log.00000000000x", "logs/x.000000000000"]
    {
        assert_eq!(pieces::piece_of(other), None, "{other}");
    }
}
