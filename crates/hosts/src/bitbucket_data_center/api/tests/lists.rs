//! Lists of pull requests and repositories, present names, and branches.

use super::*;
use tidelock_core::domain::RepoId;

#[tokio::test]
async fn open_pull_requests_are_listed_with_their_versions() {
    let broken = with(with(pull(), "/id", 6), "/title", "");
    let stage =
        answering(vec![("/pull-requests?state=OPEN&order=OLDEST&limit=100&start=0", json!([broken, pull()]))]).await;
    let open = stage.host.open_pulls(&repo()).await.unwrap();
    assert_eq!((open.len(), &open[0].pull.id, stage.requests().len()), (1, &id(), 1));
    assert_eq!(open[0].created, "2026-11-01T09:00:00.25Z".parse().unwrap());
    assert_eq!(open[0].version, PullVersion::new("2026-11-02T09:00:00.500000003Z"));
    let other =
        answering(vec![("/pull-requests?", json!([with(pull(), "/toRef/repository", repository("PRJ", "x"))]))]).await;
    assert!(matches!(other.host.open_pulls(&repo()).await, Err(HostError::Moved { .. })));
}

#[tokio::test]
async fn lists_go_on_where_the_host_says() {
    let stage = stage(|_, request| {
        let number = if request.contains("start=25") { 8 } else { 7 };
        let mut page = page(&[with(pull(), "/id", number)]);
        if number == 7 {
            (page["isLastPage"], page["nextPageStart"]) = (json!(false), json!(25));
        }
        ok(page)
    })
    .await;
    let numbers: Vec<u64> =
        stage.host.open_pulls(&repo()).await.unwrap().iter().map(|one| one.pull.id.number).collect();
    assert_eq!((numbers, stage.requests().len()), (vec![7, 8], 2));
}

#[tokio::test]
async fn an_endless_list_is_an_error() {
    let leading = async |next: fn(u64) -> Value| {
        let stage = stage(move |count, _| {
            let mut page = page(&[]);
            (page["isLastPage"], page["nextPageStart"]) = (json!(false), next(count as u64));
            ok(page)
        })
        .await;
        (stage.host.open_pulls(&repo()).await.unwrap_err(), stage.requests().len())
    };
    for next in [|_| Value::Null, |_| json!(0), |_| json!(-1)] as [fn(u64) -> Value; 3] {
        let (error, requests) = leading(next).await;
        assert!(error.to_string().contains("no next page") && requests == 1, "{error}");
    }
    let (error, requests) = leading(|count| json!(count + 1)).await;
    assert!(error.to_string().contains("more than 5000 entries"), "{error}");
    assert_eq!(requests, 200, "a page counts as 25 rows at least");
}

#[tokio::test]
async fn a_page_that_is_no_page_is_an_error() {
    for body in [Value::Null, json!([1]), json!("x"), json!(7), json!({}), json!({"values": {"a": 1}})] {
        let stage = stage(move |_, _| ok(body.clone())).await;
        let error = stage.host.open_pulls(&repo()).await.unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("no list of values"), "{error}");
    }
}

#[tokio::test]
async fn repositories_are_listed_as_the_token_reads_them() {
    let rows = json!([
        repository("PRJ", "infra"),
        with(repository("~ann", "notes"), "/archived", true),
        repository("A B", "x")
    ]);
    let stage = answering(vec![("/repos?archived=ALL&permission=REPO_READ", rows)]).await;
    let facts: Vec<_> = stage
        .host
        .repositories()
        .await
        .unwrap()
        .iter()
        .map(|one| (one.repo.full_name(), one.of_organization, one.archived))
        .collect();
    assert_eq!(facts, [("PRJ/infra".to_owned(), true, false), ("~ann/notes".to_owned(), false, true)]);
}

#[tokio::test]
async fn a_repository_is_found_by_its_id() {
    let moved = |answers: Vec<(&'static str, Value)>| {
        stage(move |_, request| match request == format!("GET {AT}") {
            true => refused(404, "Repository PRJ/infra does not exist."),
            false => usual(&answers, request),
        })
    };
    let name = async |stage: &Stage| {
        let found = stage.host.present_name(&repo(), "12").await.unwrap();
        found.map(|repo: RepoId| repo.full_name())
    };
    let same = answering(Vec::new()).await;
    assert_eq!((name(&same).await.as_deref(), same.requests().len()), (Some("PRJ/infra"), 1));
    let renamed = moved(vec![("/projects/PRJ/repos?", json!([repository("PRJ", "now")]))]).await;
    assert_eq!((name(&renamed).await.as_deref(), renamed.requests().len()), (Some("PRJ/now"), 2));
    let others = json!([with(repository("OPS", "infra"), "/id", 13), repository("OPS", "now")]);
    let moved_away = moved(vec![("/projects/PRJ/repos?", json!([])), ("/latest/repos?", others)]).await;
    assert_eq!(name(&moved_away).await.as_deref(), Some("OPS/now"));
    let gone = moved(vec![("/projects/PRJ/repos?", json!([])), ("/latest/repos?", json!([]))]).await;
    assert_eq!(name(&gone).await, None);
    let taken = answering(vec![
        ("/repos/infra", with(repository("PRJ", "infra"), "/id", 99)),
        ("/projects/PRJ/repos?", json!([repository("PRJ", "now")])),
    ])
    .await;
    assert_eq!(name(&taken).await.as_deref(), Some("PRJ/now"), "another repository has its name now");
}

#[tokio::test]
async fn a_redirect_or_an_error_of_a_renamed_person_does_not_end_the_search() {
    let search = async |owner: &'static str, status: u16, list: &'static str| {
        let stage = stage(move |_, request| match request {
            _ if request.contains(list) => ok(page(&[repository("PRJ", "now")])),
            _ if request.contains("/latest/repos?") => ok(page(&[])),
            _ if status == 301 => (StatusCode::MOVED_PERMANENTLY, [("location", "/elsewhere")]).into_response(),
            _ => refused(status, "no"),
        })
        .await;
        let near = RepoId { owner: owner.into(), ..repo() };
        stage.host.present_name(&near, "12").await.map(|found| found.map(|repo| repo.full_name()))
    };
    let found = |name: &str| Some(format!("PRJ/{name}"));
    assert_eq!(search("PRJ", 301, "/projects/PRJ/repos?").await.unwrap(), found("now"));
    assert_eq!(search("PRJ", 301, "/repos?archived=ALL&name=infra&").await.unwrap(), found("now"));
    assert_eq!(search("PRJ", 301, "/repos?archived=ALL&limit").await.unwrap(), found("now"));
    assert_eq!(search("PRJ", 301, "/nowhere").await.unwrap(), None);
    assert_eq!(search("~ann", 500, "/repos?archived=ALL&limit").await.unwrap(), found("now"));
    assert!(search("~ann", 500, "/nowhere").await.unwrap_err().is_transient(), "it may be there all the same");
    assert!(search("PRJ", 500, "/repos?archived=ALL&limit").await.unwrap_err().is_transient());
}

#[tokio::test]
async fn a_search_among_too_many_repositories_is_tried_again_later() {
    let stage = stage(|count, request| match request {
        _ if count == 0 => ok(pull()),
        _ if request.contains("/repos?") => {
            let start: u64 = request.rsplit('=').next().unwrap().parse().unwrap();
            let rows = vec![json!({"id": 1}); 1000];
            ok(with(with(page(&rows), "/isLastPage", false), "/nextPageStart", start + 1000))
        }
        _ => refused(404, "Repository PRJ/infra does not exist."),
    })
    .await;
    read_pull(&stage).await;
    let error = stage.host.create_comment(&id(), "done").await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("among the first 5000"), "{error}");
    assert_eq!(stage.count("/repos?"), 15, "five pages of each list");
}

#[tokio::test]
async fn a_commit_is_compared_with_a_branch() {
    let stage = stage(|_, request| match request {
        _ if request.contains(&format!("/commits?until={HEAD}&since=refs%2Fheads%2Frelease%2F1&limit=1")) => {
            ok(page(&[json!({"id": HEAD})]))
        }
        _ if request.contains(&format!("until={OLD}&since=refs%2Fheads%2Frelease%2F1")) => ok(page(&[])),
        _ => refused(404, "Commit does not exist"),
    })
    .await;
    let is_on = async |commit: &str, branch: &str| {
        stage.host.is_on_branch(&repo(), &CommitSha::parse(commit).unwrap(), branch).await.unwrap()
    };
    assert!(is_on(OLD, "release/1").await && !is_on(HEAD, "release/1").await);
    assert!(!is_on(OLD, "gone").await && !is_on(&"0".repeat(40), "release/1").await);
}

#[tokio::test]
async fn a_deleted_pull_request_is_told_from_a_hidden_repository() {
    assert!(!answering(Vec::new()).await.host.is_gone(&id()).await.unwrap(), "it is there");
    let deleted = stage(|_, request| match request == format!("GET {AT}") {
        true => ok(repository("PRJ", "infra")),
        false => refused(404, "gone"),
    })
    .await;
    assert!(deleted.host.is_gone(&id()).await.unwrap());
    let hidden = stage(|_, _| refused(404, "gone")).await;
    assert!(!hidden.host.is_gone(&id()).await.unwrap());
    let denied = stage(|_, _| refused(401, "no")).await;
    assert!(denied.host.is_gone(&id()).await.is_err());
}
