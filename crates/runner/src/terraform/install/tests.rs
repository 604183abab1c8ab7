//! The choice of binaries, and the effect of release servers, honest or not, on this machine. Binaries are shell scripts; the release
//! server is local and has this test's own key.

use super::*;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use pgp::composed::{ArmorOptions, Deserializable, DetachedSignature, SignedSecretKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{SignatureConfig, SignatureType};
use pgp::ser::Serialize;
use pgp::types::{KeyDetails, Password};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

/// Made for this test with `gpg --quick-gen-key`; it signs nothing else.
const TEST_KEY: &str = "-----BEGIN PGP PRIVATE KEY BLOCK-----

lFgEawGONBYJKwYBBAHaRw8BAQdAiAgF/eYi5t7PkI1DfwwAbFuUhU6mCVYYRWyb
x3oIT8UAAP9vb7OQZRlvrjIAHpQ24HIenxg+n6DPu1hC+RDsvxW4lQ+ztBFUaWRl
bG9jayB0ZXN0IG9uZYiQBBMWCAA4FiEEFQzEHeugXHVeTnTYwtTFPciVWJsFAmsB
jjQCGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQwtTFPciVWJvZOwEA1iV7
TKL2ilMT4EifJW17SlfIz/ToWlw7DtU+z/+Eao8A/jnHf/lSVU9i5t6m/MDAFbZl
uW0LtRgJNd+YWMUb9qwN
=Fd0Y
-----END PGP PRIVATE KEY BLOCK-----
";

fn key() -> SignedSecretKey {
    SignedSecretKey::from_string(TEST_KEY).unwrap().0
}

fn sign(content: &[u8], hash: HashAlgorithm) -> Vec<u8> {
    let key = key();
    let config = SignatureConfig::v4(SignatureType::Binary, key.primary_key.algorithm(), hash);
    let signature = config.sign(&key.primary_key, &Password::empty(), content).unwrap();
    DetachedSignature::new(signature).to_bytes().unwrap()
}

fn script(title: &str, version: &str) -> String {
    format!("#!/bin/sh\necho '{title} v{version}'\n")
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Files by path, and the requested paths.
#[derive(Default)]
struct Server {
    files: Mutex<BTreeMap<String, Vec<u8>>>,
    asked: Mutex<Vec<String>>,
    /// Number of requests to answer with 500.
    broken: AtomicUsize,
}

impl Server {
    fn set(&self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.files.lock().unwrap().insert(path.to_owned(), bytes.into());
    }

    fn remove(&self, ending: &str) {
        self.files.lock().unwrap().retain(|path, _| !path.ends_with(ending));
    }

    fn change(&self, ending: &str, change: impl Fn(&mut Vec<u8>)) {
        let mut files = self.files.lock().unwrap();
        let mut matching = files.iter_mut().filter(|(path, _)| path.ends_with(ending)).peekable();
        assert!(matching.peek().is_some(), "no {ending}");
        matching.for_each(|(_, bytes)| change(bytes));
    }

    fn asked(&self, ending: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|path| path.ends_with(ending)).count()
    }

    /// Adds a release whose binary prints the version `says`.
    fn release(&self, which: Distribution, version: &str, says: &str) {
        let name = which.binary();
        let (folder, signature) = match which {
            Distribution::Terraform => (format!("/terraform/{version}"), "sig"),
            Distribution::OpenTofu => (format!("/v{version}"), "gpgsig"),
        };
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for (file, text) in [("LICENSE.txt", "none".to_owned()), (name, script(which.title(), says))] {
            zip.start_file(file, zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(text.as_bytes()).unwrap();
        }
        let zip = zip.finish().unwrap().into_inner();
        let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let file = format!("{name}_{version}_linux_{arch}.zip");
        let sums = format!("{}  other.zip\n{}  {file}\n", "0".repeat(64), hex::encode(Sha256::digest(&zip)));
        self.set(
            &format!("{folder}/{name}_{version}_SHA256SUMS.{signature}"),
            sign(sums.as_bytes(), HashAlgorithm::Sha512),
        );
        self.set(&format!("{folder}/{name}_{version}_SHA256SUMS"), sums);
        self.set(&format!("{folder}/{file}"), zip);
    }
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> (StatusCode, Vec<u8>) {
    let path = request.uri().path().to_owned();
    server.asked.lock().unwrap().push(path.clone());
    if server.broken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        return (StatusCode::INTERNAL_SERVER_ERROR, Vec::new());
    }
    match server.files.lock().unwrap().get(&path) {
        Some(bytes) => (StatusCode::OK, bytes.clone()),
        None => (StatusCode::NOT_FOUND, Vec::new()),
    }
}

struct World {
    temp: TempDir,
    server: Arc<Server>,
    url: String,
}

impl World {
    /// On `PATH`: `terraform` 1.11.4 and `terraform1.5.7`.
    async fn new() -> World {
        let server = Arc::new(Server::default());
        let app = axum::Router::new().fallback(answer).with_state(Arc::clone(&server));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let temp = tempfile::tempdir().unwrap();
        put(&temp.path().join("path/terraform"), &script("Terraform", "1.11.4"));
        put(&temp.path().join("path/terraform1.5.7"), &script("Terraform", "1.5.7"));
        World { temp, server, url }
    }

    fn settings(&self) -> InstallSettings {
        InstallSettings {
            data_dir: self.temp.path().join("data"),
            download: true,
            terraform_url: format!("{}/", self.url),
            opentofu_url: self.url.clone(),
            allow_unsigned: false,
            default_version: None,
            default_distribution: Distribution::Terraform,
            path: format!("/absent:{}", self.temp.path().join("path").display()),
            redactor: Redactor::default(),
            keys: Some(vec![key().to_public_key().to_armored_string(ArmorOptions::default()).unwrap()]),
        }
    }

    fn installer(&self) -> Installer {
        Installer::new(self.settings())
    }

    fn offline(&self) -> Installer {
        Installer::new(InstallSettings { download: false, ..self.settings() })
    }

    /// Returns an error's text, with the parts that differ between runs replaced.
    fn error_text(&self, error: &anyhow::Error) -> String {
        format!("{error:#}").replace(&self.temp.path().display().to_string(), "TEMP").replace(&self.url, "URL")
    }
}

fn version(text: &str) -> ToolRequest {
    ToolRequest { version: Some(text.into()), ..ToolRequest::default() }
}

fn required(texts: &[&str]) -> ToolRequest {
    ToolRequest { required: texts.iter().map(|text| (*text).to_owned()).collect(), ..ToolRequest::default() }
}

#[tokio::test]
async fn the_project_comes_first_then_its_constraint_then_the_default_then_path() {
    let world = World::new().await;
    let offline = world.offline();
    let both = ToolRequest { required: vec!["= 1.11.4".into()], ..version("1.5.7") };
    for (wanted, expected) in [
        (both, "terraform 1.5.7"),
        (version("v1.5.7"), "terraform 1.5.7"),
        (required(&["= 1.5.7"]), "terraform 1.5.7"),
        (required(&[">= 1.3", "< 1.9"]), "terraform 1.5.7"),
        (required(&["~> 1.3"]), "terraform 1.11.4"),
        (ToolRequest::default(), "terraform 1.11.4"),
    ] {
        assert_eq!(offline.resolve(&wanted).await.unwrap().to_string(), expected, "{wanted:?}");
    }
    let pinned = InstallSettings { default_version: Some("v1.5.7".into()), download: false, ..world.settings() };
    let tool = Installer::new(pinned).default_tool().await.unwrap();
    assert_eq!(tool.path, world.temp.path().join("path/terraform1.5.7"));
    assert_eq!(world.server.asked(""), 0);
}

#[tokio::test]
async fn what_is_missing_is_named_with_where_it_was_looked_for_and_what_to_do() {
    let world = World::new().await;
    let offline = world.offline();
    let mut words = String::new();
    for wanted in [
        version("1.6.0"),
        version("newest"),
        required(&[">= 2"]),
        version("= 1.5.7, < 1.5"),
        ToolRequest { distribution: Some(Distribution::OpenTofu), ..ToolRequest::default() },
    ] {
        words.push_str(&world.error_text(&offline.resolve(&wanted).await.unwrap_err()));
        words.push('\n');
    }
    insta::assert_snapshot!(words, @r#"
    Terraform 1.6.0 is not installed (looked for terraform1.6.0 and terraform on PATH (/absent:TEMP/path) and for TEMP/data/bin/terraform1.6.0), and downloads are off; install it on the server as terraform1.6.0, set --tf-download, or ask for another version
    terraform_version of the project: "newest" is not a version constraint: "newest" is not a version (like 1.11.4)
    no Terraform on this server fits the constraint ">= 2" (installed are 1.5.7, and the default does not fit); install one on the server as terraform<version>, set --tf-download, or change the constraint
    no Terraform on this server fits the constraint "= 1.5.7, < 1.5" (installed are 1.5.7, and the default does not fit); install one on the server as terraform<version>, set --tf-download, or change the constraint
    there is no tofu on the server's PATH (/absent:TEMP/path), and downloads are off; install it there, or give the project a `terraform_version` of OpenTofu that is installed
    "#);
}

#[tokio::test]
async fn a_version_is_downloaded_once_and_found_in_the_cache_afterwards() {
    let world = World::new().await;
    world.server.release(Distribution::Terraform, "1.6.0", "1.6.0");
    world.server.release(Distribution::OpenTofu, "1.6.0", "1.6.0");
    world.server.broken.store(1, Ordering::Relaxed); // one failed request is retried
    let installer = world.installer();
    let wanted = version("1.6.0");
    let tofu = ToolRequest { distribution: Some(Distribution::OpenTofu), ..wanted.clone() };
    let (a, b, c) = tokio::join!(installer.resolve(&wanted), installer.resolve(&wanted), installer.resolve(&tofu));
    let (a, b, c) = (a.unwrap(), b.unwrap(), c.unwrap());
    assert_eq!((&a, a.path.clone()), (&b, world.temp.path().join("data/bin/terraform1.6.0")));
    assert_eq!((c.to_string().as_str(), c.path), ("tofu 1.6.0", world.temp.path().join("data/bin/tofu1.6.0")));
    assert_eq!(world.server.asked("terraform_1.6.0_linux_amd64.zip") + world.server.asked("_linux_arm64.zip"), 1);
    assert_eq!(fs::metadata(&a.path).unwrap().permissions().mode() & 0o777, 0o755);

    assert_eq!(world.offline().resolve(&wanted).await.unwrap(), a);
    let names: Vec<String> = fs::read_dir(world.temp.path().join("data/bin"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), 2, "nothing unfinished is left: {names:?}");
}

#[tokio::test]
async fn a_constraint_takes_the_newest_release_that_fits() {
    let world = World::new().await;
    for version in ["1.9.0", "1.10.2", "2.0.0"] {
        world.server.release(Distribution::Terraform, version, version);
        world.server.release(Distribution::OpenTofu, version, version);
    }
    let names = ["1.9.0", "1.10.2", "1.11.0-beta1", "1.10.3+ent", "2.0.0", "odd"];
    let index: Vec<String> = names.iter().map(|name| format!("\"{name}\":{{\"builds\":[1]}}")).collect();
    world
        .server
        .set("/terraform/index.json", format!("{{\"name\":\"terraform\",\"versions\":{{{}}}}}", index.join(",")));
    let list: Vec<String> = names.iter().map(|name| format!("{{\"id\":\"{name}\",\"files\":[]}}")).collect();
    world.server.set("/api.json", format!("{{\"versions\":[{}]}}", list.join(",")));
    let installer = world.installer();
    assert_eq!(installer.resolve(&required(&["~> 1.9"])).await.unwrap().to_string(), "terraform 1.10.2");
    assert_eq!(installer.resolve(&required(&[">= 1.9, < 1.10"])).await.unwrap().to_string(), "terraform 1.9.0");
    let tofu = ToolRequest { distribution: Some(Distribution::OpenTofu), ..required(&["> 1.9.0"]) };
    assert_eq!(installer.resolve(&tofu).await.unwrap().to_string(), "tofu 2.0.0");
    assert_eq!(world.server.asked("/terraform/index.json"), 1, "one list serves all projects");
    let error = installer.resolve(&required(&["> 5"])).await.unwrap_err();
    insta::assert_snapshot!(world.error_text(&error), @r#"no release of Terraform at URL fits the constraint "> 5"; change it"#);
}

#[tokio::test]
async fn the_other_distribution_without_a_version_is_the_newest_that_there_is() {
    let world = World::new().await;
    let tofu = ToolRequest { distribution: Some(Distribution::OpenTofu), ..ToolRequest::default() };
    let error = world.error_text(&world.installer().resolve(&tofu).await.unwrap_err());
    assert!(error.contains("there is no tofu") && error.contains("no release can be listed"), "{error}");
    put(&world.temp.path().join("path/tofu1.8.0"), &script("OpenTofu", "1.8.0"));
    for installer in [world.installer(), world.offline()] {
        assert_eq!(installer.resolve(&tofu).await.unwrap().to_string(), "tofu 1.8.0", "the list is not there");
    }
    world.server.set("/api.json", r#"{"versions":[{"id":"1.9.0"},{"id":"1.10.2"},{"id":"1.11.0-beta1"}]}"#);
    world.server.release(Distribution::OpenTofu, "1.10.2", "1.10.2");
    assert_eq!(world.installer().resolve(&tofu).await.unwrap().to_string(), "tofu 1.10.2");
    put(&world.temp.path().join("path/tofu"), &script("OpenTofu", "1.7.0"));
    assert_eq!(world.installer().resolve(&tofu).await.unwrap().to_string(), "tofu 1.7.0", "PATH has a default");
    let settings = InstallSettings { default_version: Some("1.5.7".into()), ..world.settings() };
    assert_eq!(Installer::new(settings).resolve(&tofu).await.unwrap().to_string(), "tofu 1.7.0");
    // The default distribution has only the default that the operator gives it; the newest release is not used for it.
    std::fs::remove_file(world.temp.path().join("path/terraform")).unwrap();
    let error = world.error_text(&world.installer().resolve(&ToolRequest::default()).await.unwrap_err());
    assert!(error.contains("there is no terraform on the server's PATH"), "{error}");
}

#[tokio::test]
async fn without_the_list_of_releases_what_is_installed_serves() {
    let world = World::new().await;
    let installer = world.installer();
    assert_eq!(installer.resolve(&required(&["< 1.9"])).await.unwrap().to_string(), "terraform 1.5.7");
    let error = world.error_text(&installer.resolve(&required(&[">= 2"])).await.unwrap_err());
    assert!(error.ends_with("there is no list of versions at URL/terraform/index.json"), "{error}");
}

#[tokio::test]
async fn nothing_that_was_tampered_with_is_installed() {
    type Tamper = fn(&Server);
    let table: [(&str, Tamper, &str); 9] = [
        ("the zip", |s| s.change("64.zip", |b| b[40] ^= 1), "the download was cut or changed"),
        ("half a zip", |s| s.change("64.zip", |b| b.truncate(b.len() / 2)), "the download was cut or changed"),
        ("the list", |s| s.change("SUMS", |b| b[0] ^= 1), "the signature is not by a key that is trusted here"),
        (
            "the signature",
            |s| s.change(".sig", |b| *b.last_mut().unwrap() ^= 1),
            "nothing of this version is installed",
        ),
        ("no signature", |s| s.remove(".sig"), "set --tf-download-allow-unsigned"),
        ("an empty signature", |s| s.change(".sig", Vec::clear), "the signature is not by a key that is trusted here"),
        (
            "noise as signature",
            |s| s.change(".sig", |b| *b = b"<html>".to_vec()),
            "nothing of this version is installed",
        ),
        ("no such platform", |s| sums(s, |_| "00  x.zip\n".into()), "there is no release for this platform"),
        ("no zip", |s| s.remove("64.zip"), "is not there"),
    ];
    for (what, tamper, expected) in table {
        let world = World::new().await;
        world.server.release(Distribution::Terraform, "1.6.0", "1.6.0");
        tamper(&world.server);
        let error = world.error_text(&world.installer().resolve(&version("1.6.0")).await.unwrap_err());
        assert!(error.contains(expected), "{what}: {error}");
        let left = fs::read_dir(world.temp.path().join("data/bin")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{what}");
    }
}

/// Changes the list of checksums and signs it again, as a mistake of the vendor would.
fn sums(server: &Server, change: impl Fn(&str) -> String) {
    server.change("SUMS", |bytes| *bytes = change(&String::from_utf8_lossy(bytes)).into_bytes());
    let list = server.files.lock().unwrap().iter().find(|(path, _)| path.ends_with("SUMS")).unwrap().1.clone();
    server.change(".sig", |bytes| *bytes = sign(&list, HashAlgorithm::Sha256));
}

#[tokio::test]
async fn another_key_is_not_trusted_and_an_unsigned_mirror_needs_its_flag() {
    let world = World::new().await;
    world.server.release(Distribution::Terraform, "1.6.0", "1.6.0");
    let vendor = Installer::new(InstallSettings { keys: None, ..world.settings() });
    let error = world.error_text(&vendor.resolve(&version("1.6.0")).await.unwrap_err());
    assert!(error.contains("the signature is not by a key that is trusted here"), "{error}");

    let unsigned = Installer::new(InstallSettings { allow_unsigned: true, ..world.settings() });
    world.server.change(".sig", |bytes| *bytes.last_mut().unwrap() ^= 1);
    assert!(unsigned.resolve(&version("1.6.0")).await.is_err(), "a wrong signature is worse than none");
    world.server.remove(".sig");
    assert_eq!(unsigned.resolve(&version("1.6.0")).await.unwrap().to_string(), "terraform 1.6.0");
}

#[tokio::test]
async fn a_version_that_does_not_exist_and_one_that_lies_are_told() {
    let world = World::new().await;
    world.server.release(Distribution::Terraform, "1.6.0", "1.6.1");
    let installer = world.installer();
    let lies = world.error_text(&installer.resolve(&version("1.6.0")).await.unwrap_err());
    let missing = world.error_text(&installer.resolve(&version("7.0.0")).await.unwrap_err());
    insta::assert_snapshot!(format!("{lies}\n{missing}"), @r"
    what was downloaded as Terraform 1.6.0 says that it is 1.6.1
    Terraform 7.0.0 is not installed (looked for terraform7.0.0 and terraform on PATH (/absent:TEMP/path) and for TEMP/data/bin/terraform7.0.0), and URL has no such version; ask for one that exists
    ");
}

#[tokio::test]
async fn a_broken_binary_in_the_cache_is_downloaded_again() {
    let world = World::new().await;
    world.server.release(Distribution::Terraform, "1.6.0", "1.6.0");
    let cached = world.temp.path().join("data/bin/terraform1.6.0");
    put(&cached, "#!/bin/sh\nkill -9 $$\n");
    assert_eq!(world.installer().resolve(&version("1.6.0")).await.unwrap().path, cached);
    assert_eq!(fs::read_to_string(&cached).unwrap(), script("Terraform", "1.6.0"));
}

#[tokio::test]
async fn a_binary_is_asked_once_until_it_changes() {
    let world = World::new().await;
    let (binary, log) = (world.temp.path().join("path/terraform"), world.temp.path().join("log"));
    put(&binary, &format!("#!/bin/sh\necho x >> {}\necho 'Terraform v1.11.4'\n", log.display()));
    let installer = world.offline();
    for _ in 0..3 {
        installer.default_tool().await.unwrap();
    }
    assert_eq!(fs::read_to_string(&log).unwrap(), "x\n");
    put(&binary, &script("OpenTofu", "1.12.0-beta1"));
    assert_eq!(installer.default_tool().await.unwrap().version.to_string(), "1.12.0-beta1");
}

#[tokio::test]
async fn the_longest_unused_binary_goes_first_none_while_any_is_in_use_and_it_comes_again() {
    let world = World::new().await;
    let installer = world.installer();
    for (at, number) in [(3, "1.6.0"), (1, "1.6.1"), (2, "1.6.2")] {
        world.server.release(Distribution::Terraform, number, number);
        let tool = installer.resolve(&version(number)).await.unwrap();
        let used = fs::FileTimes::new().set_accessed(SystemTime::UNIX_EPOCH + Duration::from_secs(at));
        fs::File::open(&tool.path).unwrap().set_times(used).unwrap();
    }
    let using = installer.using().await;
    assert_eq!(installer.remove_idle().await.unwrap(), None);
    drop(using);
    let (oldest, bytes) = installer.remove_idle().await.unwrap().unwrap();
    assert!(oldest.ends_with("data/bin/terraform1.6.1") && bytes > 0, "{oldest} {bytes}");
    assert!(installer.remove_idle().await.unwrap().unwrap().0.ends_with("1.6.2"));
    assert_eq!(installer.resolve(&version("1.6.1")).await.unwrap().to_string(), "terraform 1.6.1");
    assert!(installer.remove_idle().await.unwrap().unwrap().0.ends_with("1.6.0"));
    assert!(installer.remove_idle().await.unwrap().unwrap().0.ends_with("1.6.1"));
    assert_eq!(installer.remove_idle().await.unwrap(), None);
}
