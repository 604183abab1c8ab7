//! A private repository over HTTP: the token reaches the server, and nothing else.

use super::*;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode, header};
use base64::Engine;
use secrecy::ExposeSecret;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::AsyncWriteExt;

const TOKEN: &str = "ghs_averysecrettoken0123456789";

/// `git http-backend` behind basic auth.
struct Private {
    root: PathBuf,
    /// Requests that carried the token.
    authorized: AtomicUsize,
    /// Number of other git processes that were examined while a request was served.
    looked_at: AtomicUsize,
}

impl Private {
    async fn serve(root: &Path) -> (Arc<Private>, String) {
        let state = Arc::new(Private {
            root: root.to_owned(),
            authorized: AtomicUsize::new(0),
            looked_at: AtomicUsize::new(0),
        });
        let app = axum::Router::new().fallback(answer).with_state(Arc::clone(&state));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/source", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (state, url)
    }

    /// Checks that no command line or environment here has the token.
    fn look_around(&self) {
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.bytes().all(|b| b.is_ascii_digit()) || name == std::process::id().to_string() {
                continue;
            }
            let file = |what: &str| {
                String::from_utf8_lossy(&fs::read(entry.path().join(what)).unwrap_or_default()).into_owned()
            };
            let (line, environ) = (file("cmdline"), file("environ"));
            assert!(!line.contains(TOKEN) && !environ.contains(TOKEN), "{line}");
            if line.contains("git") && environ.contains("GIT_CONFIG_COUNT") {
                self.looked_at.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

async fn answer(State(state): State<Arc<Private>>, request: Request) -> Response<Body> {
    state.look_around();
    let expected = format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(format!("x-access-token:{TOKEN}")));
    if request.headers().get(header::AUTHORIZATION).is_none_or(|value| *value != *expected) {
        let refused = Response::builder().status(StatusCode::UNAUTHORIZED).header("WWW-Authenticate", "Basic realm=x");
        return refused.body(Body::empty()).unwrap();
    }
    state.authorized.fetch_add(1, Ordering::Relaxed);
    let (parts, body) = request.into_parts();
    let text = |name: &str| parts.headers.get(name).map_or("", |v| v.to_str().unwrap()).to_owned();
    let mut backend = tokio::process::Command::new("git");
    backend.arg("http-backend").env("GIT_PROJECT_ROOT", &state.root).env("GIT_HTTP_EXPORT_ALL", "1");
    backend.env("REQUEST_METHOD", parts.method.as_str()).env("PATH_INFO", parts.uri.path());
    backend.env("QUERY_STRING", parts.uri.query().unwrap_or("")).env("CONTENT_TYPE", text("content-type"));
    backend.env("GIT_PROTOCOL", text("git-protocol")).env("HTTP_CONTENT_ENCODING", text("content-encoding"));
    let mut child = backend.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let body = axum::body::to_bytes(body, 10 << 20).await.unwrap();
    child.stdin.take().unwrap().write_all(&body).await.unwrap();
    let out = child.wait_with_output().await.unwrap().stdout;
    let end = out.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let mut response = Response::builder();
    for line in String::from_utf8_lossy(&out[..end]).lines() {
        let (name, value) = line.split_once(": ").unwrap();
        response = if name == "Status" { response.status(&value[..3]) } else { response.header(name, value) };
    }
    response.body(Body::from(out[end + 4..].to_vec())).unwrap()
}

fn credentials(token: &str) -> Credentials {
    Credentials { username: "x-access-token".into(), password: SecretString::from(token) }
}

/// Returns true if any file below contains the token.
fn holds_token(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().flatten().any(|entry| {
        if entry.file_type().unwrap().is_dir() {
            holds_token(&entry.path())
        } else {
            fs::read(entry.path()).unwrap_or_default().windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes())
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_repository_is_fetched_with_its_blobs_and_the_token_stays_out_of_sight() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a.tf", "a\n")]).await;
    let (server, url) = Private::serve(world.source.parent().unwrap()).await;
    world.pull.clone_url = url.replace("http://", "http://someone:else@");
    let credentials = credentials(TOKEN);

    let fetched = world.checkouts.fetch(&world.pull, Some(&credentials)).await.unwrap();
    let after_fetch = server.authorized.load(Ordering::Relaxed);
    let tree = world.checkouts.tree(&world.pull, "default", &fetched, None, Some(&credentials)).await.unwrap();
    assert_eq!(read(&tree, "a.tf"), "a\n");
    assert!(after_fetch > 0 && server.authorized.load(Ordering::Relaxed) > after_fetch, "blobs came with the checkout");
    assert!(server.looked_at.load(Ordering::Relaxed) > 0, "git was seen at work");
    assert!(!holds_token(&world.checkouts.data_dir));

    // Changes of a push come with the fetch.
    let long: String = (0..3000).map(|n| format!("{n}\n")).collect();
    world.commit("topic", &[("README", &format!("{long}more\n"))]).await;
    let fetched = world.checkouts.fetch(&world.pull, Some(&credentials)).await.unwrap();
    let tree = world.checkouts.tree(&world.pull, "default", &fetched, None, None).await.unwrap();
    assert_eq!(read(&tree, "README"), format!("{long}more\n"));

    // A small repository needs one round trip only.
    world.pull.repo_size_kib = Some(10);
    fs::remove_dir_all(&world.checkouts.data_dir).unwrap();
    fs::create_dir(&world.checkouts.data_dir).unwrap();
    let fetched = world.checkouts.fetch(&world.pull, Some(&credentials)).await.unwrap();
    let after_fetch = server.authorized.load(Ordering::Relaxed);
    world.checkouts.tree(&world.pull, "default", &fetched, None, None).await.unwrap();
    assert_eq!(server.authorized.load(Ordering::Relaxed), after_fetch);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_fetched_where_the_old_contents_never_were() {
    let mut world = World::new(Strategy::Branch).await;
    world.checkouts.sparse = true;
    let long: String = (0..3000).map(|n| format!("{n}\n")).collect();
    world.commit("topic", &[("far/big.txt", &long), ("near/a.tf", "a\n")]).await;
    world.pull.clone_url = Private::serve(world.source.parent().unwrap()).await.1;
    let (credentials, near, far) = (credentials(TOKEN), ["near".to_owned()], ["far".to_owned()]);
    let fetched = world.checkouts.fetch(&world.pull, Some(&credentials)).await.unwrap();
    world.checkouts.tree(&world.pull, "default", &fetched, Some(&near), Some(&credentials)).await.unwrap();

    // The host may send a delta to a file that the mirror has never had.
    git(&world.source, &["repack", "-adqf"]).await;
    world.commit("topic", &[("far/big.txt", &format!("{long}more\n"))]).await;
    let fetched = world.checkouts.fetch(&world.pull, Some(&credentials)).await.unwrap();
    let tree = world.checkouts.tree(&world.pull, "default", &fetched, Some(&far), Some(&credentials)).await.unwrap();
    assert_eq!(read(&tree, "far/big.txt"), format!("{long}more\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_refused_is_explained_and_not_shown() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a.tf", "a\n")]).await;
    world.pull.clone_url = Private::serve(world.source.parent().unwrap()).await.1;
    let wrong = credentials("ghs_thisoneisnotright");
    for given in [Some(&wrong), None] {
        let error = world.checkouts.fetch(&world.pull, given).await.unwrap_err().to_string();
        assert!(error.contains("did not accept the server's token"), "{error}");
        assert!(!error.contains(wrong.password.expose_secret()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_the_base_repository_lacks_is_fetched_from_its_own() {
    let mut world = World::new(Strategy::Merge).await;
    let long: String = (0..3000).map(|n| format!("{n}\n")).collect();
    world.commit("main", &[("big.txt", &long)]).await;
    let root = world.source.parent().unwrap().to_owned();
    git(&root, &["clone", "-q", "source", "fork"]).await;
    let fork = root.join("fork");
    git(&fork, &["checkout", "-q", "-b", "theirs"]).await;
    fs::write(fork.join("big.txt"), format!("{long}more\n")).unwrap();
    fs::write(fork.join("new.tf"), "new\n").unwrap();
    git(&fork, &["add", "-A"]).await;
    git(&fork, &["commit", "-q", "-m", "theirs"]).await;
    git(&fork, &["repack", "-adqf"]).await;
    world.commit("main", &[("README", "later\n")]).await;
    let (server, url) = Private::serve(&root).await;
    world.pull.fork = true;
    world.pull.head.branch = "theirs".into();
    world.pull.head.commit = CommitSha::parse(&git(&fork, &["rev-parse", "HEAD"]).await).unwrap();
    world.pull.head.clone_url = Some(url.replace("/source", "/fork"));
    world.pull.clone_url = url;
    let credentials = credentials(TOKEN);
    let fetched = world.checkouts.fetch(&world.pull, Some(&credentials)).await.unwrap();
    let tree = world.checkouts.tree(&world.pull, "default", &fetched, None, Some(&credentials)).await.unwrap();
    assert_eq!((read(&tree, "big.txt"), read(&tree, "new.tf")), (format!("{long}more\n"), "new\n".to_owned()));
    assert_eq!(read(&tree, "README"), "later\n", "it is merged into the base");
    let changed = world.checkouts.modified_files(&world.pull, &fetched).await.unwrap();
    assert_eq!(changed, ["big.txt", "new.tf"]);
    assert!(!holds_token(&world.checkouts.data_dir));

    // The credentials are for the host of the base repository only.
    let used = server.authorized.load(Ordering::Relaxed);
    let elsewhere = Private::serve(&root).await;
    world.pull.head.clone_url = Some(elsewhere.1.replace("/source", "/fork"));
    let error = world.checkouts.fetch(&world.pull, Some(&credentials)).await.unwrap_err().to_string();
    assert!(error.contains("is on another host than"), "{error}");
    assert!(server.authorized.load(Ordering::Relaxed) > used && elsewhere.0.authorized.load(Ordering::Relaxed) == 0);
    world.pull.head.commit = "1".repeat(40).as_str().into();
    world.pull.head.clone_url = Some(world.pull.clone_url.replace("/source", "/fork"));
    let error = world.checkouts.fetch(&world.pull, Some(&credentials)).await.unwrap_err();
    assert!(matches!(error, CheckoutError::MissingCommit(_)), "{error}");
}
