use crate::settings::table;
use crate::settings::tests::{invalid, loaded};

const IAP: &str =
    "--iap-audience=/projects/1/global/backendServices/2,/projects/1/locations/europe-west1/services/tide";

#[test]
fn by_default_nothing_of_it_is_on() {
    let access = loaded(&[], &[]).access;
    assert!(access.iap_audience.is_empty() && access.admins.is_empty() && access.webhook_allowlist.is_empty());
    assert!(access.trusted_proxy_hops == 0 && !access.events_only && access.iap_keys_url.is_none());
    assert_eq!(access.github_meta_url.as_deref(), Some("https://api.github.com/meta"));
}

#[test]
fn what_is_given_is_read() {
    let admins = "--admins=Ada@Example.com, @ops.example,sea.example";
    let env = [("TIDELOCK_TRUSTED_PROXY_HOPS", "2"), ("TIDELOCK_WEBHOOK_ALLOWLIST", "github,192.0.2.0/24")];
    let access = loaded(&[IAP, admins], &env).access;
    assert_eq!(access.iap_audience.len(), 2);
    assert_eq!(access.admins, ["ada@example.com", "@ops.example", "sea.example"]);
    assert_eq!(access.webhook_allowlist, ["github", "192.0.2.0/24"]);
    assert_eq!(access.trusted_proxy_hops, 2);
    for (host, meta) in [
        ("acme.ghe.com", Some("https://api.acme.ghe.com/meta")),
        ("git.example.com", None),
        ("http://127.0.0.1:4000", None),
    ] {
        let access = loaded(&[], &[("TIDELOCK_GH_HOSTNAME", host)]).access;
        assert_eq!(access.github_meta_url.as_deref(), meta, "{host}: where ranges are published");
    }
}

#[test]
fn what_would_leave_the_door_open_or_lock_everybody_out_stops_the_start() {
    let cases = [
        ("--admins=ada@example.com", "needs iap-audience"),
        ("--iap-audience=5678", "is not of the form /projects/"),
        ("--iap-audience=,", "names no audience"),
        ("--iap-keys-url=http://keys.example", "begins neither with https://"),
        ("--github-meta-url=http://169.254.169.254/", "begins neither with https://"),
        ("--trusted-proxy-hops=3", "is no number from 0 to 2"),
        ("--trusted-proxy-hops=-1", "is no number from 0 to 2"),
    ];
    for (flag, expected) in cases {
        let problem = invalid(&[flag], &[]);
        assert!(problem.contains(expected), "{flag}: {problem}");
    }
    for admins in ["--admins=ada", "--admins=,", "--admins=*@example.com", "--admins=a b@example.com"] {
        let problem = invalid(&[IAP, admins], &[]);
        assert!(problem.contains("is no list of emails and domains"), "{admins}: {problem}");
    }
}

#[test]
fn a_login_beside_iap_is_warned_of() {
    let settings = loaded(&[IAP, "--web-basic-auth", "--web-password=long-one", "--allow-unauthenticated-pages"], &[]);
    let warned =
        |name: &str| settings.warnings.iter().any(|line| line.contains(name) && line.contains("has no effect"));
    assert!(warned("--web-basic-auth") && warned("--allow-unauthenticated-pages"), "{:?}", settings.warnings);
}

#[test]
fn what_only_takes_deliveries_needs_no_token() {
    let access = loaded(&["--events-only"], &[("ATLANTIS_GH_TOKEN", "")]);
    assert!(access.access.events_only && access.hosts.github.unwrap().token.is_none());
    assert!(invalid(&[], &[("ATLANTIS_GH_TOKEN", "")]).contains("gh-token"));
    assert!(!loaded(&["--events-only", "--gh-checks"], &[("ATLANTIS_GH_TOKEN", "")]).hosts.github.unwrap().checks);
    assert!(invalid(&["--events-only"], &[("ATLANTIS_GH_WEBHOOK_SECRET", "")]).contains("gh-webhook-secret"));
}

#[test]
fn cloud_logging_is_for_cloud_run_and_where_a_project_is_named() {
    assert_eq!(loaded(&[], &[]).cloud_logging, None);
    assert_eq!(loaded(&[], &[("K_SERVICE", "tide")]).cloud_logging, Some(None));
    assert_eq!(loaded(&["--log-project=acme"], &[]).cloud_logging, Some(Some("acme".into())));
}

#[test]
fn every_setting_that_deployments_name_exists() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let variable = regex::Regex::new(r"\b(?:TIDELOCK|ATLANTIS)_([A-Z][A-Z0-9_]*)\b").unwrap();
    // Variables of scripts, not of the server.
    let others = ["DEPLOY_DIR", "PROVIDER_SCHEMA", "SHARED", "TOOLS"];
    let mut folders = vec![root.join("terraform"), root.join("kubernetes")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            for found in variable.captures_iter(&text).filter(|found| !others.contains(&&found[1])) {
                let name = found[1].to_lowercase().replace('_', "-");
                assert!(table::find(&name).is_some(), "{}: {}", path.display(), &found[0]);
                seen += 1;
            }
        }
    }
    assert!(seen > 10);
    let config = std::fs::read_to_string(root.join("kubernetes/base/tidelock.yaml")).unwrap();
    for line in config.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(':').next().unwrap();
        assert!(table::find(name).is_some(), "kubernetes/base/tidelock.yaml: {name}");
    }
}
