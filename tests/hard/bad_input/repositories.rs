//! Bad contents of pull requests: configuration, code, directories, names.

use crate::place::{CODE, Place, answer, marker};
use tidelock_forge::OpenOptions;

/// Returns a repo config that expands to 9^9 entries.
fn exploding_aliases() -> String {
    let mut text = "version: 3\na: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (name, of) in ["b", "c", "d", "e", "f", "g", "h", "i"].iter().zip(["a", "b", "c", "d", "e", "f", "g", "h"]) {
        let many = vec![format!("*{of}"); 9].join(",");
        text.push_str(&format!("{name}: &{name} [{many}]\n"));
    }
    text + "projects: *i\n"
}

#[tokio::test]
async fn a_repo_config_that_cannot_be_used_is_told_with_its_place() {
    let place = Place::new(&[]).await;
    let exploding = exploding_aliases();
    let nested = format!("version: 3\nprojects: {}", "[".repeat(50_000));
    let long = format!("version: 3\n# {}\n", "x".repeat(2 << 20));
    let configs: [(&str, &str, &str); 11] = [
        ("an unknown key", "version: 3\nprojects:\n- dir: a\n  autoplam: {}\n", "autoplam"),
        ("a tab", "version: 3\nprojects:\n\t- dir: a\n", "atlantis.yaml:3:"),
        ("wrong types", "version: 3\nprojects:\n- dir: [a, b]\n", "atlantis.yaml:3:"),
        ("a word for a list", "version: 3\nprojects: all\n", "atlantis.yaml:2:"),
        ("no version", "projects:\n- dir: a\n", "version"),
        ("another version", "version: 7\n", "version"),
        ("exploding aliases", &exploding, "atlantis.yaml"),
        ("deep nesting", &nested, "atlantis.yaml"),
        ("too long", &long, "atlantis.yaml"),
        ("an unknown workflow", "version: 3\nprojects:\n- dir: a\n  workflow: nope\n", "`workflow`"),
        ("two documents", "version: 3\n---\nversion: 3\n", "atlantis.yaml"),
    ];
    for (what, config, told) in configs {
        let pull = place.open(what, &[("a/main.tf", Some(CODE)), ("atlantis.yaml", Some(config))]).await;
        let comment = answer(&pull, 0).await;
        assert!(comment.body.contains("atlantis.yaml"), "{what}: {}", comment.body);
        assert!(comment.body.contains(told), "{what}: {}", comment.body);
        assert!(comment.body.len() < 4000, "{what}: {} bytes", comment.body.len());
        let facts = marker(&comment.body);
        assert_eq!(facts["results"][0]["reason"], "config", "{what}: {facts}");
        pull.wait_for_status("atlantis/plan", |status| status.state == "failure", crate::place::LIMIT).await.unwrap();
        pull.close().unwrap();
    }
    place.still_works().await;
    place.stop().await;
}

#[tokio::test]
async fn directories_that_leave_the_checkout_are_refused() {
    let place = Place::new(&[]).await;
    let outside = place.dir().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("main.tf"), CODE).unwrap();
    std::fs::write(outside.join("stub.sh"), "touch ran-outside\n").unwrap();
    let absolute = outside.to_string_lossy().into_owned();
    for dir in ["..", "../../../../outside", "a/../../..", &absolute] {
        // An absolute path is taken from the repository's root, as in Atlantis; there is no such directory.
        let config = format!("version: 3\nprojects:\n- dir: {dir}\n  name: out\n");
        let pull = place.open(dir, &[("a/main.tf", Some(CODE)), ("atlantis.yaml", Some(&config))]).await;
        let mut told = 0;
        if dir != absolute {
            let facts = marker(&answer(&pull, 0).await.body);
            assert_eq!(facts["results"][0]["reason"], "config", "{dir}: {facts}");
            told = 1;
        }
        for (at, target) in ["-p out".to_owned(), format!("-d {dir}")].iter().enumerate() {
            pull.comment("alice", &format!("atlantis plan {target}")).unwrap();
            let comment = answer(&pull, told + at).await;
            assert!(!comment.body.contains("1 to add"), "{dir}: {}", comment.body);
            let words = ["does not exist", "cannot contain", "leads out of the repository"];
            assert!(words.iter().any(|words| comment.body.contains(words)), "{dir}: {}", comment.body);
        }
        pull.close().unwrap();
    }
    assert!(!outside.join("ran-outside").exists());
    place.still_works().await;
    place.stop().await;
}

/// Pushes a branch with these symbolic links, which the forge's own commits cannot make.
async fn push_links(place: &Place, branch: &str, links: &[(&str, &str)]) {
    let dir = place.dir().join(format!("clone-{branch}"));
    let git = async |args: &[&str]| {
        let mut command = tokio::process::Command::new("git");
        command.args(["-c", "user.name=alice", "-c", "user.email=alice@example.com"]).args(args);
        let output = command.current_dir(if dir.exists() { &dir } else { place.dir() }).output().await.unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    git(&["clone", "-q", &place.repo.clone_url_for("alice").unwrap(), &dir.to_string_lossy()]).await;
    git(&["checkout", "-q", "-b", branch]).await;
    for (path, target) in links {
        std::os::unix::fs::symlink(target, dir.join(path)).unwrap();
    }
    git(&["add", "-A"]).await;
    git(&["commit", "-q", "-m", "Links"]).await;
    git(&["push", "-q", "origin", branch]).await;
}

#[tokio::test]
async fn links_out_of_the_checkout_are_not_followed() {
    let place = Place::new(&[]).await;
    let outside = place.dir().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("main.tf"), CODE).unwrap();
    std::fs::write(outside.join("stub.sh"), "touch ran-outside\n").unwrap();
    let secret = place.dir().join("secret.yaml");
    std::fs::write(&secret, "hunter2: correct-horse\n").unwrap();
    let (outside, secret) = (outside.to_string_lossy().into_owned(), secret.to_string_lossy().into_owned());

    push_links(&place, "dir-link", &[("link", &outside), ("loop", "loop"), ("up", "../../../..")]).await;
    let options = OpenOptions::default;
    let config = "version: 3\nprojects:\n- {dir: link, name: link}\n- {dir: loop, name: loop}\n- {dir: up, name: up}\n";
    let changes = [("atlantis.yaml", Some(config)), ("a/main.tf", Some(CODE))];
    let pull = place.repo.open_pull("dir-link", "alice", "Links", &changes, options()).await.unwrap();
    for (at, target) in ["-p link", "-p loop", "-p up", "-d link", "-d link/."].iter().enumerate() {
        pull.comment("alice", &format!("atlantis plan {target}")).unwrap();
        let comment = answer(&pull, at).await;
        assert!(!comment.body.contains("1 to add"), "{target}: {}", comment.body);
        let words = ["cannot be used", "does not exist", "leads through a link out of the repository"];
        assert!(words.iter().any(|words| comment.body.contains(words)), "{target}: {}", comment.body);
    }
    assert!(!std::path::Path::new(&outside).join("ran-outside").exists());
    pull.close().unwrap();

    // A repo config that is a link does not show the file that it leads to.
    push_links(&place, "config-link", &[("atlantis.yaml", &secret)]).await;
    let changes = [("a/main.tf", Some(CODE))];
    let pull = place.repo.open_pull("config-link", "alice", "Links", &changes, options()).await.unwrap();
    let comment = answer(&pull, 0).await;
    assert!(!comment.body.contains("hunter2") && !comment.body.contains("correct-horse"), "{}", comment.body);
    place.still_works().await;
    place.stop().await;
}

#[tokio::test]
async fn names_of_workspaces_reach_no_shell_and_no_path() {
    let place = Place::new(&[]).await;
    let pull = place.open("Workspaces", &[("a/main.tf", Some(CODE))]).await;
    answer(&pull, 0).await;
    let trap = place.writable().join("trap");
    let names = [
        "a;touch$IFS@",
        "$(touch @)",
        "`touch @`",
        "a|touch @",
        "../../x",
        "-help",
        "a'b\"c;touch @",
        "a&touch @",
        "~root",
        "a>@",
    ];
    for (at, name) in names.iter().enumerate() {
        let name = name.replace('@', &trap.to_string_lossy());
        let quoted = shlex::try_quote(&name).unwrap();
        pull.comment("alice", &format!("atlantis plan -d a -w {quoted}")).unwrap();
        let comment = answer(&pull, at + 1).await;
        marker(&comment.body);
        assert!(!trap.exists(), "{name} ran");
    }
    place.still_works().await;
    place.stop().await;
}

#[tokio::test]
async fn branches_may_be_named_as_git_allows() {
    let config = r#"{"repos":[{"id":"/.*/","workflow":"tell"}],"workflows":{"tell":{"plan":{"steps":[
        {"run":"printf 'branch=[%s]\\n' \"$HEAD_BRANCH_NAME\""},"init","plan"]}}}}"#;
    let place = Place::new(&[&format!("--repo-config-json={config}"), "--checkout-strategy=merge"]).await;
    let trap = place.writable().join("trap").to_string_lossy().replace('/', "_");
    // git allows no space in a branch, but everything else that a shell would act on.
    let branches = [
        "quo\"te'd".to_owned(),
        format!("$(touch${{IFS}}{trap})"),
        format!("`touch\u{a0}{trap}`;|&"),
        "<!--&@team</script>".to_owned(),
        "{{x}}%2e%2e#?".replace('?', ""),
        "-upload-pack=x".trim_start_matches('-').to_owned() + "/--output=x",
        "\u{e4}\u{1f600}".to_owned(),
    ];
    for (at, branch) in branches.iter().enumerate() {
        let dir = format!("d{at}");
        let file = format!("{dir}/main.tf");
        let changes = [(file.as_str(), Some(CODE))];
        let pull = place.repo.open_pull(branch, "alice", branch, &changes, OpenOptions::default()).await.unwrap();
        let comment = answer(&pull, 0).await;
        assert!(comment.body.contains("1 to add"), "{branch}: {}", comment.body);
        assert!(comment.body.contains(&format!("branch=[{branch}]")), "{branch}: {}", comment.body);
        assert_eq!(marker(&comment.body)["results"][0]["outcome"], "success");
    }
    place.still_works().await;
    place.stop().await;
}

#[tokio::test]
async fn code_that_does_not_parse_is_terraforms_error_in_the_comment() {
    let place = Place::with_terraform(&[]).await;
    let broken = "resource \"terraform_data\" \"a\" {\n  input = \n";
    let binary = "\u{0}\u{1}\u{fffd}{{{{";
    for (what, text) in [("unclosed", broken), ("not text", binary)] {
        let pull = place.open(what, &[("a/main.tf", Some(text))]).await;
        let comment = answer(&pull, 0).await;
        assert!(comment.body.contains("terraform init: exit status 1"), "{what}: {}", comment.body);
        assert!(comment.body.contains("main.tf"), "{what}: {}", comment.body);
        let facts = marker(&comment.body);
        assert_eq!(facts["results"][0]["outcome"], "error", "{facts}");
        pull.close().unwrap();
    }
    place.still_works().await;
    place.stop().await;
}

#[tokio::test]
async fn a_repository_without_terraform_is_left_in_peace_until_asked() {
    let place = Place::new(&[]).await;
    let pull = place.open("Words", &[("docs/notes.md", Some("Notes\n"))]).await;
    pull.wait_for_status("atlantis/plan", |status| status.state == "success", crate::place::LIMIT).await.unwrap();
    assert!(pull.bot_comments().unwrap().is_empty());
    pull.comment("alice", "atlantis plan").unwrap();
    let comment = answer(&pull, 0).await;
    assert!(comment.body.contains("changes no project"), "{}", comment.body);
    pull.comment("alice", "atlantis apply").unwrap();
    answer(&pull, 1).await;
    place.still_works().await;
    place.stop().await;
}
