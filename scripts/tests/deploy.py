#!/usr/bin/env python3
"""scripts/deploy and scripts/destroy against a small cloud (fake/tool on PATH): what they change, what they leave, what they say."""
import concurrent.futures
import json
import os
import pathlib
import pty
import py_compile
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import upload

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE.parent
TOKEN = "hush-token-0123456789"
FLAGS = ["--project", "acme-infra", "--region", "europe-west1", "--domain", "tidelock.example.com", "--gh-user", "acme-bot",
         "--repo-allowlist", "github.com/acme/*", "--iap-member", "group:platform@example.com", "--yes", "--build"]
TEMP = pathlib.Path(tempfile.mkdtemp(prefix="tidelock-deploy-test."))
LONG = 900  # seconds; a limit against a hang, on a machine that others load
RESULTS = {"passed": 0, "failed": 0}


def fake_tools():
    """gcloud, terraform and curl in a directory, compiled, with this very interpreter and without its site packages: they are called often."""
    where = TEMP / "bin"
    where.mkdir()
    shutil.copy(HERE / "fake" / "tool", where / "fake_tool.py")
    shutil.copy(HERE / "upload.py", where)
    shutil.copy(HERE / "fake" / "not_ready.py", where)
    for module in ("fake_tool.py", "upload.py", "not_ready.py"):
        py_compile.compile(str(where / module))
    for name in ("gcloud", "terraform", "curl", "tidelock", "gh"):
        (where / name).write_text(f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {str(where)!r})\nimport fake_tool\n")
        (where / name).chmod(0o755)
    return where


FAKES = fake_tools()


class Place:
    """A directory with a cloud, a log and what scripts/deploy keeps."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(dir=TEMP))
        (self.dir / "token").write_text(TOKEN + "\n")
        self.said = ""

    def env(self, broken=""):
        path = f"{FAKES}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "FAKE_DIR": str(self.dir), "FAKE_BREAK": broken, "POLL_SECONDS": "0", "TIDELOCK_BIN": str(FAKES / "tidelock"),
                "TIDELOCK_DEPLOY_DIR": str(self.dir / "kept")}

    def run(self, *flags, broken="", script="deploy", code=0, token=True, **more):
        flags = list(flags) + (["--gh-token-file", str(self.dir / "token")] if token and str(script).endswith("deploy") else [])
        before = len(self.log())
        done = subprocess.run([SCRIPTS / script, *flags], env={**self.env(broken), **more}, cwd=self.dir, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=LONG, start_new_session=True)
        self.said = done.stdout + done.stderr
        self.calls = self.log()[before:]
        assert done.returncode == code, f"code {done.returncode}, wanted {code}:\n{self.said}"
        self.no_secret_anywhere()
        return self

    def log(self):
        file = self.dir / "log"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def cloud(self):
        file = self.dir / "cloud.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def settings(self):
        return json.loads((self.dir / "kept/acme-infra-tidelock/settings.auto.tfvars.json").read_text())

    def changes(self):
        return [" ".join([c["tool"], *(a for a in c["argv"] if not a.startswith("-"))]) for c in self.calls if c["changes"]]

    def says(self, *texts):
        for text in texts:
            assert text in self.said, f"does not say {text!r}:\n{self.said}"
        return self

    def no_secret_anywhere(self):
        secrets = {TOKEN, "ya29.hush-access-token", "hush-operator-token", "hush-client-secret", "hush-azure-token", "hush-azure-token-2", "hush-gitlab-token", "hush-gitea-token", "hush-bitbucket-token", "hush-data-center-token", *(v for vs in self.cloud().get("secrets", {}).values() for v in vs)}
        kept = [p.read_text(errors="replace") for p in (self.dir / "kept").rglob("*") if p.is_file()]
        for secret in secrets:
            assert secret not in self.said, f"a secret was printed:\n{self.said}"
            assert secret not in (self.dir / "log").read_text() if (self.dir / "log").exists() else True, "a secret was an argument"
            assert not any(secret in text for text in kept), "a secret was written to a file"


def a_full_run_makes_everything_in_order():
    p = Place().run(*FLAGS)
    want = ["gcloud services enable", "gcloud storage buckets create", "gcloud storage buckets update", "gcloud secrets create",
            "gcloud secrets versions add", "gcloud secrets create", "gcloud secrets versions add", "gcloud storage buckets create",
            "gcloud artifacts repositories create", "gcloud iam service-accounts create", "gcloud storage buckets add-iam-policy-binding",
            "gcloud artifacts repositories add-iam-policy-binding", "gcloud projects add-iam-policy-binding",
            "gcloud iam service-accounts add-iam-policy-binding", "gcloud builds submit", "terraform apply"]
    got = p.changes()
    assert len(got) == len(want) and all(g.startswith(w) for g, w in zip(got, want)), got
    p.says("the token is acme-bot's", "Apply complete!", "make this record at your DNS provider: tidelock.example.com. A 203.0.113.7",
           "revision tidelock-00001-abc is ready", "asks who you are (302)", "refuses what is not signed", "payload URL   https://tidelock.example.com/events",
           "about 93 USD a month", "it takes 20 to 90", "Left to do:\n   - add the webhook", "Done: https://tidelock.example.com")
    settings = p.settings()
    assert settings["secret_versions"] == {"gh_token": "1", "gh_webhook_secret": "1"} and settings["project_number"] == "123456789012"
    assert settings["github"] == {"user": "acme-bot", "hostname": "github.com"} and settings["github_app"] is None
    assert all(line in settings["repo_config"] for line in ("apply_requirements: [approved, mergeable]", "repo_locks: {mode: strict}")) and settings["webhook_sources"] == ["github"]
    assert p.cloud()["secrets"]["tidelock-gh-token"] == [TOKEN]
    assert re.fullmatch("[0-9a-f]{64}", p.cloud()["secrets"]["tidelock-gh-webhook-secret"][0])
    doctor = [c["argv"] for c in p.calls if c["tool"] == "tidelock" and "--help" not in c["argv"]]
    assert doctor == [["doctor", "--from-outside", "--expect-iap", "--bucket=gs://acme-infra-tidelock-state/tidelock",
                       "--atlantis-url=https://tidelock.example.com", "--events-url=https://tidelock.example.com/events",
                       "--gh-user=acme-bot", "--gh-hostname=github.com", "--repo-allowlist=github.com/acme/*"]], doctor
    adds = [c for c in p.calls if "versions" in c["argv"] and "add" in c["argv"]]
    assert all(c["stdin"] for c in adds)


def the_first_rules_are_strict_wherever_somebody_begins():
    root = SCRIPTS.parent
    for file in ("scripts/lib/repos.yaml", "kubernetes/base/repos.yaml", "charts/tidelock/values.yaml", "terraform/examples/complete/repos.yaml", "README.md"):
        text = (root / file).read_text()
        rules = re.search(r"(?m)^ *repos:\n *- id: /\.\*/\n *repo_locks: \{mode: strict\}\n *apply_requirements: \[approved", text)
        assert rules and "repo_locks: {mode: on_plan}" in text and "Atlantis" in text, file


def a_second_run_changes_nothing():
    p = Place().run(*FLAGS)
    p.run(*FLAGS)
    assert p.changes() == [], p.changes()
    p.says("all are on", "is kept", "is built already", "nothing to change")


def a_dry_run_changes_nothing_and_shows_what_would():
    p = Place().run(*FLAGS, "--dry-run")
    assert p.changes() == [] and p.cloud() == {}, p.changes()
    p.says("would run: gcloud services enable", "would run: gcloud storage buckets create gs://acme-infra-tidelock-tfstate",
           "would run: gcloud secrets versions add tidelock-gh-token --project=acme-infra --data-file=-", "would run: gcloud builds submit",
           "would run: terraform init, plan", "Nothing was changed.")


def a_dry_run_after_a_run_has_nothing_to_show_but_the_plan():
    p = Place().run(*FLAGS)
    p.run(*FLAGS, "--dry-run")
    assert p.changes() == []
    assert p.said.count("would run") == 1, p.said


def an_interrupted_run_is_resumed_without_flags():
    p = Place()
    running = subprocess.Popen([SCRIPTS / "deploy", *FLAGS, "--gh-token-file", str(p.dir / "token")], env=p.env("slow-build"), cwd=p.dir,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    limit = time.monotonic() + LONG
    while not (p.dir / "building").exists():
        assert running.poll() is None and time.monotonic() < limit, "the build never began"
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)
    running.communicate(timeout=LONG)
    assert running.returncode != 0
    secrets = p.cloud()["secrets"]
    p.run("--yes", token=False).says("Going on with the choices in", "Done: https://tidelock.example.com")
    assert [c.split()[1] for c in p.changes()] == ["builds", "apply"], p.changes()
    assert p.cloud()["secrets"] == secrets, "a secret was made anew"


def whole(p):
    """What a run has made, but for what differs from run to run."""
    cloud = {k: sorted(map(str, v)) if isinstance(v, list) else v for k, v in p.cloud().items() if k not in ("secrets", "applied", "half", "imported", "asked", "forced")}
    return {**cloud, "secrets": {k: len(v) for k, v in p.cloud()["secrets"].items()}, "applied": p.cloud()["applied"] is not None}


def interrupted_after_every_step_it_comes_to_the_same_end():
    """The machine goes out after the first thing that was changed, after the next one, and so on; the last run finds little to do."""
    flags = [*FLAGS, "--register-webhook", "acme"]
    p, wanted, stops = Place(), whole(Place().run(*flags)), 0
    while True:
        (p.dir / "stop").unlink(missing_ok=True)
        before = len(p.log())
        running = subprocess.run([SCRIPTS / "deploy", *flags, "--gh-token-file", str(p.dir / "token")], env={**p.env(), "FAKE_STOP_AFTER": "1"}, cwd=p.dir,
                                 stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG, start_new_session=True)
        p.said = running.stdout + running.stderr
        p.no_secret_anywhere()
        if running.returncode == 0:
            break
        assert running.returncode == -signal.SIGKILL, f"after {stops} interruptions:\n{p.said}"
        assert any(c["changes"] for c in p.log()[before:]), "it did not go on"
        stops += 1
        assert stops < 40, p.said
    assert stops >= 17, f"only {stops} steps were interrupted"
    assert whole(p) == wanted, f"{whole(p)}\n{wanted}"


def a_half_made_apply_is_taken_up():
    p = Place().run(*FLAGS)
    (p.dir / "stop").write_text("1")
    interrupted = subprocess.run([SCRIPTS / "deploy", *FLAGS, "--no-cloud-armor"], env={**p.env(), "FAKE_STOP_AFTER": "1"}, cwd=p.dir, stdin=subprocess.DEVNULL,
                                 capture_output=True, start_new_session=True)
    assert interrupted.returncode == -signal.SIGKILL and p.cloud()["lock"] and p.cloud()["orphans"]
    p.run(*FLAGS).says("a run of ours left its lock; taking it away", "service_account.leader is there already and is taken up",
                       "never started: it is made anew", "Done:")
    # The lock of somebody else stays.
    cloud = p.cloud()
    (p.dir / "cloud.json").write_text(json.dumps({**cloud, "lock": "bob@elsewhere"}))
    p.run(*FLAGS, code=1).says("Terraform's state is locked by bob@elsewhere", "force-unlock 1700000000000")


def a_service_that_never_started_is_made_anew():
    for protected in ("", ",protect"):
        p = Place().run(*FLAGS, broken="never-starts" + protected, code=1).says("is not ready and cannot serve traffic", "run this again")
        p.run(*FLAGS).says("never started: it is made anew", "Done:")
        replaced = (p.dir / "kept/acme-infra-tidelock/replaced").read_text()
        assert ("-replace=module.tidelock.google_cloud_run_v2_service.leader" in replaced) == bool(protected), replaced


def a_person_is_asked_who_sees_the_pages():
    p, (person, terminal) = Place(), pty.openpty()
    os.write(person, b"\ny\n")  # the account that is logged in; and yes, apply
    flags = [f for f in FLAGS if f not in ("--yes", "--iap-member", "group:platform@example.com")]
    done = subprocess.run([SCRIPTS / "deploy", *flags, "--gh-token-file", str(p.dir / "token")], env=p.env(), cwd=p.dir, stdin=terminal,
                          capture_output=True, text=True, timeout=LONG)
    os.close(person)
    os.close(terminal)
    assert done.returncode == 0, done.stdout + done.stderr
    assert p.settings()["iap_members"] == ["user:alice@example.com"]


def two_runs_at_once_are_refused():
    p = Place().run(*FLAGS)
    other = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()", "scripts/deploy"], stdin=subprocess.PIPE)
    (p.dir / "kept/acme-infra-tidelock/running").write_text(str(other.pid))
    p.run(*FLAGS, code=1).says(f"runs already, as process {other.pid}")
    other.communicate()
    p.run(*FLAGS)


def github_enterprise_needs_its_addresses():
    host = ["--gh-hostname", "github.acme.example"]
    Place().run(*FLAGS, *host, code=1).says("--webhook-source is missing", "198.51.100.7/32")
    Place().run(*FLAGS, *host, "--webhook-source", "everybody", code=1).says("--webhook-source everybody is no range")
    p = Place().run(*FLAGS, *host, "--webhook-source", "198.51.100.7/32,2001:db8::/32", "--register-webhook", "acme").says("added to acme", "Done:")
    assert p.settings()["webhook_sources"] == ["198.51.100.7/32", "2001:db8::/32"] and p.settings()["github"]["hostname"] == "github.acme.example"
    asked = {c["argv"][-1].split("/user")[0] for c in p.calls if c["tool"] == "curl" and c["argv"][-1].endswith("/user")}
    assert asked == {"https://github.acme.example/api/v3"}, asked
    assert ["auth", "token", "--hostname", "github.acme.example"] in [c["argv"] for c in p.calls if c["tool"] == "gh"]
    p.run("--yes", token=False).says("Done:")
    assert p.changes() == [], p.changes()


NO_ACCOUNT = [f for f in FLAGS if f not in ("--gh-user", "acme-bot")]


def app_key(place):
    """A private key for the App, and the public half where the cloud looks."""
    key = place.dir / "app.pem"
    subprocess.run(["openssl", "genrsa", "-traditional", "-out", key, "2048"], check=True, capture_output=True)
    subprocess.run(["openssl", "rsa", "-in", key, "-pubout", "-out", place.dir / "app.pub"], check=True, capture_output=True)
    return key


def a_github_app_is_deployed_with_its_key():
    p = Place()
    key = app_key(p)
    app = [*NO_ACCOUNT, "--gh-app-id", "123456"]
    p.run(*app, token=False, code=1).says("there is no private key in Secret Manager (tidelock-gh-app-key)", "--gh-app-key-file")
    (p.dir / "webhook").write_text("hush-webhook-of-the-app\n")
    p.run(*app, "--gh-app-key-file", str(key), "--gh-webhook-secret-file", str(p.dir / "webhook"), token=False)
    p.says("the key is that of the App acme-tidelock", "webhook URL   https://tidelock.example.com/events", "install the App", "Done:")
    secrets = p.cloud()["secrets"]
    assert secrets["tidelock-gh-app-key"] == [key.read_text()] and secrets["tidelock-gh-webhook-secret"] == ["hush-webhook-of-the-app"] and "tidelock-gh-token" not in secrets
    settings = p.settings()
    assert settings["github"] is None and settings["github_app"] == {"id": 123456, "slug": "acme-tidelock", "hostname": "github.com"} and settings["azuredevops"] is None
    assert settings["secret_versions"] == {"gh_app_key": "1", "gh_webhook_secret": "1"} and settings["webhook_sources"] == ["github"]
    doctor = next(c["argv"] for c in p.calls if c["tool"] == "tidelock" and "--help" not in c["argv"])
    assert "--gh-app-id=123456" in doctor and not any("gh-user" in a for a in doctor), doctor
    p.run("--yes", token=False).says("Done:")
    assert p.changes() == [], p.changes()
    p.run("--yes", token=False, TIDELOCK_BIN="/nonexistent")
    job = next(c["argv"] for c in p.calls if c["argv"][:3] == ["run", "jobs", "deploy"])
    assert any("TIDELOCK_GH_APP_KEY=tidelock-gh-app-key:1" in a for a in job), job
    # Another App's key, a key that is none, one that was cut, an account beside the App, and the account instead.
    p.run("--yes", "--gh-app-id", "7", "--gh-app-key-file", str(key), token=False, code=1).says("github.com does not take the key for the App 7")
    p.run("--yes", "--gh-app-id", "123456", "--gh-app-key-file", str(p.dir / "webhook"), token=False, code=1).says("is no private key in PEM")
    (p.dir / "cut.pem").write_text(key.read_text()[:400])
    p.run("--yes", "--gh-app-id", "123456", "--gh-app-key-file", str(p.dir / "cut.pem"), token=False, code=1).says("github.com does not take the key for the App 123456")
    p.run("--yes", "--gh-app-id", "123456", "--gh-user", "acme-bot", token=False, code=1).says("--gh-user and --gh-app-id are both given")
    p.run("--yes", "--gh-app-id", "123456", "--register-webhook", "acme", token=False, code=1).says("an App has its own webhook")
    p.run(*FLAGS).says("the token is acme-bot's", "Done:")
    assert p.settings()["github_app"] is None and p.settings()["github"] == {"user": "acme-bot", "hostname": "github.com"}


def azure_devops_is_deployed_alone_and_beside_github():
    p = Place()
    (p.dir / "pat").write_text("hush-azure-token\n")
    azure = ["--azuredevops-user", "tidelock@acme.example", "--azuredevops-token-file", str(p.dir / "pat")]
    alone = ["dev.azure.com/acme/*" if f == "github.com/acme/*" else f for f in NO_ACCOUNT]
    p.run(*alone, *azure, token=False).says("the token is tidelock@acme.example's", "service hooks", "basic authentication", "Done:")
    secrets = p.cloud()["secrets"]
    assert secrets["tidelock-azuredevops-token"] == ["hush-azure-token"] and re.fullmatch("[0-9a-f]{64}", secrets["tidelock-azuredevops-webhook-password"][0]) and len(secrets) == 2
    settings = p.settings()
    assert settings["azuredevops"] == {"user": "tidelock@acme.example", "webhook_user": "tidelock", "hostname": "dev.azure.com"} and settings["github"] is None
    assert settings["webhook_sources"] == ["azuredevops"] and settings["secret_versions"] == {"azuredevops_token": "1", "azuredevops_webhook_password": "1"}
    p.run("--yes", token=False)
    assert p.changes() == [], p.changes()
    p.run("--yes", "--gh-user", "acme-bot", "--repo-allowlist", "github.com/acme/*,dev.azure.com/acme/*").says("the token is acme-bot's", "payload URL", "service hooks", "Done:")
    settings = p.settings()
    assert settings["webhook_sources"] == ["github", "azuredevops"] and sorted(settings["secret_versions"]) == ["azuredevops_token", "azuredevops_webhook_password", "gh_token", "gh_webhook_secret"]
    p.run("--project", "acme-infra", "--yes", "--delete-state", "--delete-secrets", script="destroy")
    assert p.cloud()["secrets"] == {}, p.cloud()["secrets"]
    (p.dir / "pat").write_text("hush-other\n")
    Place().run(*alone, *azure, token=False, code=1).says("dev.azure.com does not take the token")
    (p.dir / "pat").write_text("hush-azure-token\n")
    Place().run(*alone, *azure[2:], "--azuredevops-user", "bob@acme.example", token=False, code=1).says("the token is tidelock@acme.example's, not bob@acme.example's")
    server = ["--azuredevops-hostname", "tfs.acme.example/tfs", "--repo-allowlist", "tfs.acme.example/tfs/DefaultCollection/*"]
    Place().run(*alone, *azure, *server, token=False, code=1).says("--webhook-source is missing", "not those of tfs.acme.example/tfs")
    Place().run(*alone, *azure, *server, "--webhook-source", "198.51.100.0/24", token=False).says("Done:")
    Place().run(*alone, *azure, "--repo-allowlist", "dev.azure.com/*", token=False, code=1).says("lets anybody run code")


def gitlab_is_deployed_alone():
    p = Place()
    (p.dir / "pat").write_text("hush-gitlab-token\n")
    gitlab = ["--gitlab-user", "acme-bot", "--gitlab-token-file", str(p.dir / "pat")]
    alone = ["gitlab.com/acme/*" if f == "github.com/acme/*" else f for f in NO_ACCOUNT]
    p.run(*alone, *gitlab, token=False).says("the token is acme-bot's", "webhook of each project or group of GitLab", "Done:")
    secrets, settings = p.cloud()["secrets"], p.settings()
    assert secrets["tidelock-gitlab-token"] == ["hush-gitlab-token"] and re.fullmatch("[0-9a-f]{64}", secrets["tidelock-gitlab-webhook-secret"][0]) and len(secrets) == 2
    assert settings["gitlab"] == {"user": "acme-bot", "hostname": "gitlab.com"} and settings["github"] is None and settings["azuredevops"] is None
    assert settings["webhook_sources"] == ["gitlab"] and settings["secret_versions"] == {"gitlab_token": "1", "gitlab_webhook_secret": "1"}
    p.run("--yes", token=False)
    assert p.changes() == [], p.changes()
    Place().run(*alone, *gitlab[2:], "--gitlab-user", "bob", token=False, code=1).says("the token is acme-bot's, not bob's")
    own = ["--gitlab-hostname", "git.acme.example/gitlab", "--repo-allowlist", "git.acme.example/acme/*"]
    Place().run(*alone, *gitlab, *own, token=False, code=1).says("--webhook-source is missing", "not those of git.acme.example/gitlab")
    Place().run(*alone, *gitlab, "--repo-allowlist", "gitlab.com/*", token=False, code=1).says("lets anybody run code")


def gitea_is_deployed_alone():
    p = Place()
    (p.dir / "pat").write_text("hush-gitea-token\n")
    gitea = ["--gitea-user", "acme-bot", "--gitea-token-file", str(p.dir / "pat"), "--gitea-base-url", "https://git.acme.example/gitea"]
    alone = ["git.acme.example/acme/*" if f == "github.com/acme/*" else f for f in NO_ACCOUNT]
    source = ["--webhook-source", "198.51.100.7/32"]
    p.run(*alone, *gitea, *source, token=False).says("the token is acme-bot's", "webhook of each repository or organization of Gitea", "Done:")
    secrets, settings = p.cloud()["secrets"], p.settings()
    assert secrets["tidelock-gitea-token"] == ["hush-gitea-token"] and re.fullmatch("[0-9a-f]{64}", secrets["tidelock-gitea-webhook-secret"][0]) and len(secrets) == 2
    assert settings["gitea"] == {"user": "acme-bot", "base_url": "https://git.acme.example/gitea"} and settings["github"] is None and settings["gitlab"] is None
    assert settings["webhook_sources"] == ["198.51.100.7/32"] and settings["secret_versions"] == {"gitea_token": "1", "gitea_webhook_secret": "1"}
    p.run("--yes", token=False)
    assert p.changes() == [], p.changes()
    Place().run(*alone, *gitea, *source, "--gitea-user", "bob", token=False, code=1).says("the token is acme-bot's, not bob's")
    Place().run(*alone, *gitea, token=False, code=1).says("--webhook-source is missing", "not those of https://git.acme.example/gitea")
    Place().run(*alone, *gitea, *source, "--gitea-base-url", "git.acme.example", token=False, code=1).says("is no address of an instance")
    Place().run(*alone, *gitea, *source, "--repo-allowlist", "codeberg.org/*", token=False, code=1).says("lets anybody run code")


def bitbucket_is_deployed_alone():
    p = Place()
    (p.dir / "pat").write_text("hush-bitbucket-token\n")
    bitbucket = ["--bitbucket-user", "bot@acme.example", "--bitbucket-token-file", str(p.dir / "pat")]
    alone = ["bitbucket.org/acme/*" if f == "github.com/acme/*" else f for f in NO_ACCOUNT]
    p.run(*alone, *bitbucket, token=False).says("the token is that of bot@acme.example", "712020:", "webhook of each repository of Bitbucket", "Done:")
    secrets, settings = p.cloud()["secrets"], p.settings()
    assert secrets["tidelock-bitbucket-token"] == ["hush-bitbucket-token"] and re.fullmatch("[0-9a-f]{64}", secrets["tidelock-bitbucket-webhook-secret"][0]) and len(secrets) == 2
    assert settings["bitbucket"] == {"user": "bot@acme.example"} and settings["github"] is None and settings["gitea"] is None
    assert settings["webhook_sources"] == ["bitbucket"] and settings["secret_versions"] == {"bitbucket_token": "1", "bitbucket_webhook_secret": "1"}
    p.run("--yes", token=False)
    assert p.changes() == [], p.changes()
    Place().run(*alone, *bitbucket[2:], "--bitbucket-user", "bob@acme.example", token=False, code=1).says("bitbucket.org does not take the token")
    Place().run(*alone, *bitbucket[2:], "--bitbucket-user", "acme-bot", token=False, code=1).says("is no e-mail address")
    Place().run(*alone, *bitbucket, "--repo-allowlist", "bitbucket.org/*", token=False, code=1).says("lets anybody run code")
    Place().run(*alone, *bitbucket[2:], "--bitbucket-user", "x-token-auth", token=False).says("the access token of Bitbucket is not looked at", "Done:")


def bitbucket_data_center_is_deployed_alone():
    p = Place()
    (p.dir / "pat").write_text("hush-data-center-token\n")
    token = ["--bitbucket-data-center-token-file", str(p.dir / "pat")]
    server = ["--bitbucket-data-center-user", "acme-bot", "--bitbucket-data-center-base-url", "https://git.acme.example/bitbucket"]
    alone = ["git.acme.example/INFRA/*" if f == "github.com/acme/*" else f for f in NO_ACCOUNT]
    source = ["--webhook-source", "198.51.100.7/32"]
    p.run(*alone, *server, *token, *source, token=False).says("the token is acme-bot's", "webhook of each repository or project of Bitbucket Data Center", "Done:")
    secrets, settings = p.cloud()["secrets"], p.settings()
    assert secrets["tidelock-bitbucket-data-center-token"] == ["hush-data-center-token"] and len(secrets) == 2
    assert re.fullmatch("[0-9a-f]{64}", secrets["tidelock-bitbucket-data-center-webhook-secret"][0])
    assert settings["bitbucket_data_center"] == {"user": "acme-bot", "base_url": "https://git.acme.example/bitbucket"} and settings["bitbucket"] is None
    assert settings["webhook_sources"] == ["198.51.100.7/32"]
    assert settings["secret_versions"] == {"bitbucket_data_center_token": "1", "bitbucket_data_center_webhook_secret": "1"}
    p.run("--yes", token=False)
    assert p.changes() == [], p.changes()
    Place().run(*alone, *server, *token, *source, "--bitbucket-data-center-user", "bob", token=False, code=1).says("the token is acme-bot's, not bob's")
    Place().run(*alone, *server, *token, token=False, code=1).says("--webhook-source is missing", "not those of https://git.acme.example/bitbucket")
    Place().run(*alone, *server[:2], *token, *source, token=False, code=1).says("is no address of Bitbucket Data Center")
    Place().run(*alone, *server, *token, *source, "--bitbucket-data-center-user", "x-token-auth", token=False).says("https://git.acme.example/bitbucket takes the token", "Done:")
    (p.dir / "pat").write_text("hush-other-token\n")
    Place().run(*alone, *server, *token, *source, token=False, code=1).says("https://git.acme.example/bitbucket does not take the token")


def without_an_organization_an_oauth_client_is_needed():
    p = Place().run(*FLAGS, broken="no-organization", code=1)
    p.says("belongs to no organization", "nobody would see the pages", "--iap-client-id", "CLIENT_ID:handleRedirect")
    assert not any(c.startswith(("terraform", "gcloud storage")) for c in p.changes()), p.changes()
    (p.dir / "client").write_text("hush-client-secret\n")
    client = ["--iap-client-id", "123.apps.googleusercontent.com"]
    p.run(*FLAGS, *client, broken="no-organization", code=1).says("the OAuth client's secret is not in Secret Manager")
    p.run(*FLAGS, *client, "--iap-client-secret-file", str(p.dir / "client"), broken="no-organization").says("with your OAuth client", "Done:")
    assert p.cloud()["secrets"]["tidelock-iap-client-secret"] == ["hush-client-secret"]
    p.run(*FLAGS, broken="no-organization").says("Done:")
    assert p.changes() == [], p.changes()


def everything_else_of_the_module_comes_by_tfvars():
    p = Place()
    (p.dir / "more.tfvars").write_text("cpu = 2\nmemory_gib = 8\n")
    (p.dir / "rules.yaml").write_text("repos: [{id: /acme/}]\n")
    p.run(*FLAGS, "--tfvars", "more.tfvars", "--repo-config", "rules.yaml", "--admin", "alice@example.com", "--admin", "bob@example.com")
    kept = p.dir / "kept/acme-infra-tidelock"
    assert (kept / "zz-tfvars.auto.tfvars").read_text() == "cpu = 2\nmemory_gib = 8\n"
    assert p.settings()["repo_config"] == "repos: [{id: /acme/}]" and p.settings()["admins"] == ["alice@example.com", "bob@example.com"]
    (kept / "mine.tf").write_text("# mine\n")
    p.run(*FLAGS)
    assert p.changes() == [] and (kept / "mine.tf").read_text() == "# mine\n" and (kept / "zz-tfvars.auto.tfvars").exists()
    with (kept / "main.tf").open("a") as f:
        f.write("# mine, too\n")
    p.run(*FLAGS, code=1).says("main.tf was changed by hand, and would be overwritten", "files of your own beside it")
    assert (kept / "main.tf").read_text().endswith("# mine, too\n")
    Place().run(*FLAGS, "--tfvars", "nowhere.tfvars", code=1).says("nowhere.tfvars is not there")


def the_builder_has_three_rights_and_no_more():
    p = Place().run(*FLAGS)
    account = "serviceAccount:tidelock-build@acme-infra.iam.gserviceaccount.com"
    assert sorted(g for g in p.cloud()["grants"] if g.endswith(account)) == [
        f"acme-infra roles/logging.logWriter {account}", f"gs://acme-infra-tidelock-build roles/storage.objectViewer {account}",
        f"tidelock-build roles/artifactregistry.writer {account}"], p.cloud()["grants"]
    p = Place().run(*FLAGS, broken="build-region").says("Cloud Build refuses europe-west1; trying its global pool", "Done:")
    assert sum("builds submit" in c for c in p.changes()) == 2


def clone(to, *left_out):
    """The tracked files as they are here, and what lies beside them on an operator's machine."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=SCRIPTS.parent, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in (n for n in names if n and n not in left_out and (SCRIPTS.parent / n).exists()):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SCRIPTS.parent / name, to / name)
    return to


def cloud_build_gets_the_files_that_it_builds_and_no_others():
    ignored = subprocess.run(["git", "ls-files", "-ci", "--exclude-standard"], cwd=SCRIPTS.parent, capture_output=True, text=True, check=True).stdout
    assert ignored == "", f"tracked, and ignored:\n{ignored}"
    source = clone(TEMP / "source")
    beside = ["token", "terraform.tfstate", ".tidelock-deploy/a/settings.auto.tfvars.json", "scripts/.env", "docs/private.md", "target/x", "sandbox/.terraform/x"]
    for name in beside:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("private")
    sent = upload.uploaded(source)
    assert upload.missing(source, sent) == [] and not set(sent) & set(beside), (upload.missing(source, sent), set(sent) & set(beside))
    # All that Docker would take of a clone is uploaded.
    everything = [str(f.relative_to(source)) for f in source.rglob("*") if f.is_file() and str(f.relative_to(source)) not in beside]
    context = (source / ".dockerignore").read_text()
    assert upload.context(everything, context) <= set(sent), upload.context(everything, context) - set(sent)
    if shutil.which("cargo"):
        part = TEMP / "part"
        for name in upload.context(sent, context):
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, part / name)
        subprocess.run(["cargo", "metadata", "--no-deps", "--locked", "--offline", "--format-version=1"], cwd=part, check=True, capture_output=True)
    # Without the file, .gitignore decides: this is how it was noticed.
    (source / ".gcloudignore").unlink()
    (source / ".gitignore").write_text("*.tfstate*\n")
    assert upload.missing(source, upload.uploaded(source)) == [f"sandbox/state/{n}.tfstate" for n in ("app", "dns", "network")]
    # And the cloud looks.
    p = Place().run(*FLAGS)
    assert "sandbox/state/app.tfstate" in p.cloud()["uploaded"] and "README.md" not in p.cloud()["uploaded"]


def a_new_projects_compute_answers_before_its_quotas_are_asked():
    p = Place().run(*FLAGS, broken="slow-compute,armor-quota", code=1).says("Compute Engine is not ready yet", "no quota for Cloud Armor rules")
    assert not any(c.startswith(("gcloud storage", "gcloud builds", "terraform")) for c in p.changes()), "something slow went before"
    Place().run(*FLAGS, broken="compute-never", code=1).says("Compute Engine does not answer", "If you enabled this API recently")
    Place().run(*FLAGS, broken="compute-rights", code=1).says("Compute Engine does not answer", "Required 'compute.projects.get' permission")


def a_failed_build_is_not_built_twice_and_its_log_is_shown():
    p = Place().run(*FLAGS, broken="build", code=1).says("could not compile `tidelock`", "the build 0a1b-2c3d failed", "--region=europe-west1")
    assert sum("builds submit" in c for c in p.changes()) == 1, p.changes()
    # Where the region is refused, the one that was built in is named.
    p.run(*FLAGS, broken="build,build-region", code=1).says("trying its global pool", "could not compile", "--region=global")
    assert sum("builds submit" in c for c in p.changes()) == 2, p.changes()
    p.run(*FLAGS).says("Done:")


def the_certificate_need_not_be_waited_for():
    p = Place().run(*FLAGS, "--wait", "0", "--register-webhook", "acme", broken="certificate,doctor")
    p.says("not there yet (PROVISIONING), and not waited for", "added to acme", "FAULT    webhook", "Left to do:", "make this record at your DNS provider",
           "run scripts/deploy again", "Done:")


def the_doctor_runs_where_there_is_no_tidelock():
    p = Place().run(*FLAGS, TIDELOCK_BIN="/nonexistent").says("the image runs it, as the job tidelock-doctor", "0 faults, said the job", "Done:")
    job = next(c["argv"] for c in p.calls if c["argv"][:3] == ["run", "jobs", "deploy"])
    assert "--service-account=tidelock-server@acme-infra.iam.gserviceaccount.com" in job and any(a.startswith("--args=^|^doctor|--from-outside|") for a in job), job
    p.run(*FLAGS, broken="doctor", TIDELOCK_BIN="/nonexistent").says("FAULT    webhook", "mend what the doctor found")


def binary_authorization_is_met_before_the_service_is():
    p = Place().run(*FLAGS, broken="policy:run.allowedBinaryAuthorizationPolicies=allowed default").says("Binary Authorization is demanded, and the project's policy admits every image")
    assert p.settings()["binary_authorization"] is True
    Place().run(*FLAGS, broken="attested,policy:run.allowedBinaryAuthorizationPolicies=allowed default", code=1).says("admits attested images only", "admissionWhitelistPatterns")


def organization_policies_are_met_before_anything_is_made():
    without = [f for f in FLAGS if f not in ("--domain", "tidelock.example.com")] + ["--entry", "no_load_balancer"]
    refused = [
        (FLAGS, "run.managed.requireInvokerIam=enforced", "demands an identity of everybody who calls a Cloud Run service", "enforce: false"),
        (without, "run.managed.requireInvokerIam=enforced", "demands an identity of everybody who calls a Cloud Run service", "enforce: false"),
        (FLAGS, "run.allowedIngress=allowed internal", "ingress internal-and-cloud-load-balancing", "allowedValues"),
        (without, "run.allowedIngress=allowed internal internal-and-cloud-load-balancing", "ingress all", "--entry load_balancer"),
        (FLAGS, "gcp.resourceLocations=allowed in:us-locations", "allows no resources in europe-west1", "another --region"),
        (FLAGS, "gcp.resourceLocations=denied in:eu-locations", "allows no resources in europe-west1", "another --region"),
        (FLAGS, "gcp.restrictNonCmekServices=denied storage.googleapis.com run.googleapis.com", "demands a key of your own for run.googleapis.com storage.googleapis.com", "kms_key"),
        (FLAGS, "compute.restrictLoadBalancerCreationForTypes=allowed in:INTERNAL", "allows no global external Application Load Balancer", "--entry no_load_balancer"),
        (FLAGS, "compute.disableGlobalLoadBalancing=enforced", "allows no global external Application Load Balancer", "--entry no_load_balancer"),
    ]
    def one(case):
        flags, policy, fault, mend = case
        p = Place().run(*flags, broken="policy:" + policy, code=1).says("FAULT: ", fault, "mend:  ", mend, policy.split("=")[0])
        assert all("services enable" in c for c in p.changes()), f"{policy}: {p.changes()}"

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one, refused))
    # What the policies allow, and those that do not concern this entry.
    Place().run(*without, broken="policy:compute.restrictLoadBalancerCreationForTypes=allowed in:INTERNAL").says("Done:")
    Place().run(*FLAGS, broken="policy:compute.restrictLoadBalancerCreationForTypes=allowed GLOBAL_EXTERNAL_MANAGED_HTTP_HTTPS,policy:run.allowedIngress=allowed internal-and-cloud-load-balancing").says("Done:")
    p = Place().run(*FLAGS, broken="policy:gcp.resourceLocations=allowed in:eu-locations").says("secrets are kept in europe-west1", "Done:")
    created = [c["argv"] for c in p.calls if c["argv"][:2] == ["secrets", "create"]]
    assert created and all("--replication-policy=user-managed" in c and "--locations=europe-west1" in c for c in created), created
    Place().run(*FLAGS, broken="policy:gcp.resourceLocations=allowed in:sovereign-locations global").says("whether europe-west1 is among", "Done:")
    Place().run(*FLAGS, broken="policy:iam.allowedPolicyMemberDomains=allowed C0abc").says("members of C0abc only", "Done:")
    Place().run(*FLAGS, broken="policies-unreadable").says("not known", "roles/orgpolicy.policyViewer", "Done:")


def every_quota_of_cloud_armor_is_asked():
    p = Place()
    (p.dir / "more.tfvars").write_text('pages_sources = [\n  "203.0.113.0/24",\n  "2001:db8::/32",\n]\n')
    Place().run(*FLAGS, broken="quota:SECURITY_POLICY_RULES=2").says("Done:")  # GitHub's ranges are one rule, and the last denies
    Place().run(*FLAGS, broken="quota:SECURITY_POLICY_RULES=1", code=1).says("no quota for Cloud Armor", "SECURITY_POLICY_RULES", "--no-cloud-armor")
    Place().run(*FLAGS, broken="quota:SECURITY_POLICIES=0", code=1).says("no quota for Cloud Armor", "SECURITY_POLICIES")
    Place().run(*FLAGS, broken="quota:SECURITY_POLICY_CEVAL_RULES=0").says("Done:")
    p.run(*FLAGS, "--tfvars", "more.tfvars", broken="quota:SECURITY_POLICY_CEVAL_RULES=0", code=1).says("SECURITY_POLICY_CEVAL_RULES", "pages_sources")
    p.run(*FLAGS, "--tfvars", "more.tfvars", broken="quota:SECURITY_POLICY_RULES=4", code=1).says("SECURITY_POLICY_RULES")
    p.run(*FLAGS, "--tfvars", "more.tfvars", broken="quota:SECURITY_POLICY_RULES=5").says("Done:")


def a_failed_apply_goes_on_from_there():
    p = Place().run(*FLAGS, broken="apply", code=1).says("terraform apply failed", "run this again")
    p.run(*FLAGS)
    assert p.changes() == ["terraform apply " + p.changes()[0].split()[-1]], p.changes()


def a_metric_that_is_not_known_yet_is_waited_for():
    p = Place().run(*FLAGS, broken="new-metric").says("not known everywhere yet", "Done:")
    assert sum(c.startswith("terraform apply") for c in p.changes()) == 2, p.changes()


def a_new_project_is_waited_for_at_every_step():
    """Each call that changes or reads something is refused with each of Google's texts for its step, twice over, before it is taken."""
    p = Place().run(*FLAGS, broken="not-ready", TIDELOCK_BIN="/nonexistent").says("not known everywhere yet, trying again", "Done:")
    refused = json.loads((p.dir / "refused").read_text())
    for step in ("secrets create", "secrets versions", "artifacts repositories", "iam service-accounts", "add-iam-policy-binding", "builds submit", "run jobs", "terraform apply", "terraform plan"):
        assert any(step in r for r in refused), f"{step} was never refused: {refused}"
    assert whole(p)["secrets"] == {"tidelock-gh-token": 1, "tidelock-gh-webhook-secret": 1}, "a secret was made twice"
    p.run(*FLAGS)
    assert p.changes() == [], p.changes()
    # There is a limit, the text is shown, and the same command goes on.
    for step in ("secrets create", "add-iam-policy-binding", "builds submit", "terraform apply"):
        p = Place().run(*FLAGS, broken="never-ready", FAKE_NEVER=step, code=1).says("FAULT: ", "mend:  ", "run this again")
        assert any(words in p.said for words in ("has not been used in project", "does not exist", "could not resolve source", "to act as")), p.said
        p.run(*FLAGS).says("Done:")


def each_text_of_the_fake_is_known_to_the_script():
    sys.path.insert(0, str(HERE / "fake"))
    import not_ready
    patterns = [line for line in (SCRIPTS / "lib/not-ready.txt").read_text().splitlines() if not line.startswith("#")]
    for text, source in not_ready.ALL:
        assert source and any(re.search(pattern, text) for pattern in patterns), text
    for pattern in patterns:
        assert pattern == "SERVICE_DISABLED" or any(re.search(pattern, text) for text, _ in not_ready.ALL), f"no text and no source for {pattern}"


SEEDS = int(os.environ.get("TIDELOCK_DEPLOY_SEEDS", "4"))


def variant(p, seed):
    """Flags of the seed's deployment: entry, certificate, host and image."""
    flags = [f for f in NO_ACCOUNT if f != "--build"] + ["--wait", "3"]
    flags += [["--build"], ["--image", "ghcr.io/acme/tidelock@sha256:" + "a" * 64]][seed % 2]
    if seed % 4 == 1:
        flags += ["--certificate", "dns_authorized"]
    if seed % 4 == 3:
        flags = [f for f in flags if f not in ("--domain", "tidelock.example.com")] + ["--entry", "no_load_balancer"]
    if seed % 3 == 0:
        flags += ["--gh-user", "acme-bot", "--gh-token-file", str(p.dir / "token"), "--register-webhook", "acme"]
    elif seed % 3 == 1:
        flags += ["--gh-app-id", "123456", "--gh-app-key-file", str(app_key(p))]
    if seed % 3 != 0:
        (p.dir / "pat").write_text("hush-azure-token\n")
        flags += ["--azuredevops-user", "tidelock@acme.example", "--azuredevops-token-file", str(p.dir / "pat"), "--repo-allowlist", "github.com/acme/*,dev.azure.com/acme/*"]
    return flags


def a_bad_day(seed):
    undisturbed = Place()
    undisturbed.run(*variant(undisturbed, seed), token=False)
    p = Place()
    flags, runs, asked = variant(p, seed), 0, False
    while True:
        runs += 1
        assert runs < 30, f"seed {seed}: it comes to no end\n{p.said}"
        done = subprocess.run([SCRIPTS / "deploy", *flags], env={**p.env(), "FAKE_SEED": str(seed)}, cwd=p.dir, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=LONG, start_new_session=True)
        p.said = done.stdout + done.stderr
        p.no_secret_anywhere()
        if done.returncode == 0:
            break
        if done.returncode in (-signal.SIGKILL, -signal.SIGINT, 128 + signal.SIGINT):
            continue
        # The one thing that it may ask for.
        faults = re.findall(r"FAULT: (.*)", p.said)
        assert not asked and len(faults) == 1 and faults[0].startswith("the certificate is not there yet") and "make this record at your DNS provider" in p.said, \
            f"seed {seed}, run {runs}, code {done.returncode}:\n{p.said}"
        asked = True
        (p.dir / "dns").touch()
    assert "Done:" in p.said
    assert whole(p) == whole(undisturbed), f"seed {seed}:\n{whole(p)}\n{whole(undisturbed)}"
    p.run(*flags, token=False)
    assert p.changes() == [], f"seed {seed}: {p.changes()}"
    return runs


def on_bad_days_the_same_command_finishes_and_asks_for_dns_only():
    """Delays, documented refusals and interruptions at random, at every step; TIDELOCK_DEPLOY_SEEDS says how many days (20 before a release)."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(a_bad_day, range(SEEDS)))
    assert SEEDS < 3 or max(runs) > 3, f"nothing was interrupted: {runs}"


def what_cannot_be_read_is_not_made_anew():
    p = Place().run(*FLAGS)
    p.run(*FLAGS, broken="unreadable", code=1).says("cannot be read", "Permission 'secretmanager.versions.list' denied", "run this again")
    assert p.changes() == [] and len(p.cloud()["secrets"]["tidelock-gh-webhook-secret"]) == 1, p.changes()


def another_image_changes_only_what_runs():
    p = Place().run(*FLAGS)
    p.run(*[f for f in FLAGS if f != "--build"], "--image", "ghcr.io/example/tidelock:0.2.0")
    assert [c.split()[1] for c in p.changes()] == ["apply"], p.changes()
    settings = p.settings()
    assert settings["registry"] == {"kind": "pull_through"} and settings["image"] == "ghcr.io/example/tidelock:0.2.0"


def the_released_image_is_taken_and_nothing_is_built():
    flags = [f for f in FLAGS if f != "--build"]
    released = ["ghcr.io/acme/tidelock@sha256:" + c * 64 for c in "ab"]
    p = Place().run(*flags, RELEASED_IMAGE=released[0])
    assert not any("build" in c for c in p.changes()) and "cloudbuild" not in " ".join(p.changes()), p.changes()
    settings = p.settings()
    assert settings["image"] == released[0] and settings["registry"] == {"kind": "pull_through"}, settings
    p.run(*flags, RELEASED_IMAGE=released[1])  # it is not remembered: the next release is a rollout
    assert [c.split()[1] for c in p.changes()] == ["apply"] and p.settings()["image"] == released[1], p.changes()
    p.run(*flags, "--build", RELEASED_IMAGE=released[1])
    assert any("builds submit" in c for c in p.changes()), p.changes()
    Place().run(*flags, RELEASED_IMAGE="ghcr.io/acme/tidelock:1", code=1).says("has no digest", "a release's archive as it was published")


def in_a_checkout_the_image_is_built_and_it_says_why():
    flags = [f for f in FLAGS if f != "--build"]
    p = Place().run(*flags, RELEASED_IMAGE="ghcr.io/example/tidelock@sha256:" + "0" * 64).says("this checkout is of no release: the image will be built from it", "some 15 for the image")
    assert any("builds submit" in c for c in p.changes()), p.changes()
    p.run(*flags, RELEASED_IMAGE="ghcr.io/acme/tidelock@sha256:" + "c" * 64)  # nor is that remembered
    assert [c.split()[1] for c in p.changes()] == ["apply"], p.changes()


def a_new_token_becomes_a_new_version():
    p = Place().run(*FLAGS)
    (p.dir / "token").write_text("hush-token-new")
    p.run(*FLAGS)
    assert p.cloud()["secrets"]["tidelock-gh-token"] == [TOKEN, "hush-token-new"]
    assert len(p.cloud()["secrets"]["tidelock-gh-webhook-secret"]) == 1
    assert p.settings()["secret_versions"] == {"gh_token": "2", "gh_webhook_secret": "1"}, "the new token is no rollout"
    assert p.changes()[-1].startswith("terraform apply")


def a_new_webhook_secret_is_taken_beside_the_one_before_until_that_is_disabled():
    p = Place().run(*FLAGS)
    cloud = p.cloud()
    cloud["secrets"]["tidelock-gh-webhook-secret"].append("hush-webhook-new")
    (p.dir / "cloud.json").write_text(json.dumps(cloud))
    p.run(*FLAGS).says("versions 2 and 1 of tidelock-gh-webhook-secret are both taken", "give the webhook version 2",
                       "gcloud secrets versions disable 1 --secret=tidelock-gh-webhook-secret --project=acme-infra, then scripts/deploy again")
    assert p.settings()["secret_versions"] == {"gh_token": "1", "gh_webhook_secret": "2", "gh_previous_webhook_secret": "1"}
    assert p.changes()[-1].startswith("terraform apply")
    (p.dir / "cloud.json").write_text(json.dumps({**p.cloud(), "disabled": {"tidelock-gh-webhook-secret": [1]}}))
    p.run(*FLAGS)
    assert p.settings()["secret_versions"] == {"gh_token": "1", "gh_webhook_secret": "2"} and "both taken" not in p.said


def without_a_load_balancer_iap_gets_its_agent():
    flags = [f for f in FLAGS if f not in ("--domain", "tidelock.example.com")]
    p = Place().run(*flags, "--entry", "no_load_balancer", broken="armor-quota")
    p.says("payload URL   https://tidelock-inbox-123456789012.europe-west1.run.app/events")
    assert any("identity create" in c for c in p.changes()), p.changes()
    p.run(*flags, "--entry", "no_load_balancer", broken="armor-quota")
    assert p.changes() == [], p.changes()


def a_zone_makes_records_and_certificate():
    p = Place().run(*FLAGS, "--dns-zone", "example-com").says("tidelock.example.com is in zone example-com", "active")
    settings = p.settings()
    assert settings["certificate"] == {"kind": "dns_authorized"} and settings["dns_zone"] == {"name": "example-com"}
    assert "make this record" not in p.said


def without_cloud_dns_the_certificate_needs_one_record():
    flags = [*FLAGS, "--certificate", "dns_authorized"]
    record = "_acme-challenge.tidelock.example.com. CNAME x.authorize.certificatemanager.goog."
    p = Place().run(*flags, "--wait", "1", broken="no-cname", code=1)
    p.says(f"make this record at your DNS provider: {record}", "DNS only, not proxied", "the certificate is not there yet (PROVISIONING)", "check the record above", "it only waits")
    assert "203.0.113.7" not in p.said, "the domain is to be pointed here before there is a certificate"
    settings = p.settings()
    assert settings["certificate"] == {"kind": "dns_authorized"} and settings["dns_zone"] is None and "certificatemanager.googleapis.com" in p.cloud()["apis"]
    p.run("--yes", token=False).says("active", "tidelock.example.com points at 203.0.113.7", "0 faults", "Done:")
    assert p.changes() == [], p.changes()
    p.run(*flags, "--wait", "0", broken="no-cname").says(f"Left to do:\n   - make this record at your DNS provider: {record}")
    Place().run(*FLAGS, "--certificate", "own", code=1).says("--certificate own is not known", "--tfvars")


def an_existing_host_name_moves_without_an_hour_without_certificate():
    """docs/day-two.md: Atlantis goes on to answer at the name until the address is changed, and the webhook stays as it is."""
    flags = [*FLAGS, "--certificate", "dns_authorized"]
    p = Place()
    (p.dir / "webhook").write_text("hush-secret-of-atlantis\n")
    flags += ["--gh-webhook-secret-file", str(p.dir / "webhook")]
    p.run(*flags, "--wait", "1", broken="old-address,no-cname", code=1).says("not there yet (PROVISIONING)")
    # The new way in is looked at by its address, as at the name Atlantis still answers (with 200, which would be an open page).
    p.run(*flags, broken="old-address").says("active", "asks who you are (302)", "refuses what is not signed", "does not point at 203.0.113.7 yet",
                                             "everything is ready: point tidelock.example.com at 203.0.113.7", "Done:")
    assert not any(c["tool"] == "tidelock" for c in p.calls), "the doctor looked at Atlantis"
    assert p.cloud()["secrets"]["tidelock-gh-webhook-secret"] == ["hush-secret-of-atlantis"]
    p.run(*flags).says("tidelock.example.com points at 203.0.113.7", "0 faults", "Done:")
    assert p.changes() == [], p.changes()


def it_goes_back_to_another_image_and_forward_again():
    flags = [f for f in FLAGS if f != "--build"]
    old, new = ("ghcr.io/acme/tidelock@sha256:" + c * 64 for c in "ab")
    p = Place().run(*flags, RELEASED_IMAGE=old)
    p.run(*flags, RELEASED_IMAGE=new)  # the upgrade
    assert [c.split()[1] for c in p.changes()] == ["apply"] and p.settings()["image"] == new
    p.run("--yes", "--image", old, token=False, RELEASED_IMAGE=new)
    assert [c.split()[1] for c in p.changes()] == ["apply"] and p.settings()["image"] == old
    p.run("--yes", token=False, RELEASED_IMAGE=new).says("it stays what --image named", "--image release")
    assert p.changes() == [] and p.settings()["image"] == old, p.changes()
    p.run("--yes", "--image", "release", token=False, RELEASED_IMAGE=new)
    assert [c.split()[1] for c in p.changes()] == ["apply"] and p.settings()["image"] == new
    p.run("--yes", token=False, RELEASED_IMAGE=new)
    assert p.changes() == [] and "it stays" not in p.said


def add_version(place, secret, value):
    cloud = place.cloud()
    cloud["secrets"][secret].append(value)
    (place.dir / "cloud.json").write_text(json.dumps(cloud))


def every_secret_is_rotated_by_the_same_command():
    p = Place()
    key = app_key(p)
    for name, value in (("pat", "hush-azure-token"), ("client", "hush-client-secret")):
        (p.dir / name).write_text(value + "\n")
    flags = [*NO_ACCOUNT, "--gh-app-id", "123456", "--azuredevops-user", "tidelock@acme.example", "--iap-client-id", "123.apps.googleusercontent.com"]
    given = ["--gh-app-key-file", str(key), "--azuredevops-token-file", str(p.dir / "pat"), "--iap-client-secret-file", str(p.dir / "client")]
    p.run(*flags, *given, token=False)
    p.run(*flags, *given, token=False)
    assert p.changes() == [] and all(len(v) == 1 for v in p.cloud()["secrets"].values()), p.changes()
    key = app_key(p)
    (p.dir / "pat").write_text("hush-azure-token-2\n")
    (p.dir / "client").write_text("hush-client-secret-2\n")
    p.run(*flags, *given, token=False)
    assert p.settings()["secret_versions"] == {"gh_app_key": "2", "gh_webhook_secret": "1", "azuredevops_token": "2", "azuredevops_webhook_password": "1"}
    assert len(p.cloud()["secrets"]["tidelock-iap-client-secret"]) == 2 and p.changes()[-1].startswith("terraform apply")
    # What the host sends with: both versions, until the old one is disabled.
    for secret in ("tidelock-gh-webhook-secret", "tidelock-azuredevops-webhook-password"):
        add_version(p, secret, "hush-webhook-new-of-" + secret)
    p.run("--yes", token=False).says("give the webhook version 2 of tidelock-gh-webhook-secret", "give each service hook version 2 of tidelock-azuredevops-webhook-password")
    versions = p.settings()["secret_versions"]
    assert versions["gh_previous_webhook_secret"] == versions["azuredevops_previous_webhook_password"] == "1" and versions["azuredevops_webhook_password"] == "2", versions
    (p.dir / "cloud.json").write_text(json.dumps({**p.cloud(), "disabled": {"tidelock-gh-webhook-secret": [1], "tidelock-azuredevops-webhook-password": [1]}}))
    p.run("--yes", token=False)
    assert not any("previous" in k for k in p.settings()["secret_versions"]) and "both taken" not in p.said
    # A new version that was disabled again: the one before it serves.
    (p.dir / "cloud.json").write_text(json.dumps({**p.cloud(), "disabled": {**p.cloud()["disabled"], "tidelock-azuredevops-token": [2]}}))
    p.run("--yes", token=False)
    assert p.settings()["secret_versions"]["azuredevops_token"] == "1", p.settings()["secret_versions"]


def several_servers_share_a_project_and_a_load_balancer():
    p = Place()
    def flags(name):
        return [f"{name}.example.com" if f == "tidelock.example.com" else f for f in FLAGS] + ["--entry", "existing_load_balancer", "--name", name]
    p.run(*flags("tidelock")).says("Done:")
    p.run(*flags("payments"), broken="unhealthy").says("your load balancer does not lead here yet", "for the host payments.example.com: the path /events (exactly",
                                                       "projects/acme-infra/global/backendServices/payments-events", "backendServices/payments-pages")
    kept = {n: json.loads((p.dir / f"kept/acme-infra-{n}/settings.auto.tfvars.json").read_text()) for n in ("tidelock", "payments")}
    assert {n: (s["name"], s["entry"], s["domain"]) for n, s in kept.items()} == {n: (n, "existing_load_balancer", f"{n}.example.com") for n in kept}
    cloud = p.cloud()
    assert {"gs://acme-infra-tidelock-state", "gs://acme-infra-payments-state"} <= set(cloud["buckets"])
    assert {f"{n}-{s}" for n in kept for s in ("gh-token", "gh-webhook-secret")} == set(cloud["secrets"])
    p.run("--project", "acme-infra", "--name", "payments", "--yes").says("asks who you are (302)", "Done:")
    before = p.cloud()
    p.run("--project", "acme-infra", "--name", "payments", "--yes", "--delete-state", "--delete-secrets", script="destroy")
    after = p.cloud()
    assert not [b for b in after["buckets"] if "payments" in b] and not [s for s in after["secrets"] if "payments" in s], after
    for key in ("applied", "resources", "imported"):
        assert after[key] == before[key], f"the other server lost its {key}"
    assert [b for b in before["buckets"] if "tidelock" in b] == [b for b in after["buckets"] if "tidelock" in b]
    p.run(*flags("tidelock"))
    assert p.changes() == [], p.changes()


def a_webhook_is_added_once():
    p = Place().run(*FLAGS, "--register-webhook", "acme").says("added to acme")
    p.run(*FLAGS, "--register-webhook", "acme").says("acme has it already")
    assert p.changes() == [] and p.cloud()["hooks"] == ["https://tidelock.example.com/events"]


def each_fault_is_named_with_its_mend():
    cases = {
        "login": ("gcloud is not logged in", "gcloud auth login"),
        "credentials": ("Terraform has no credentials", "gcloud auth application-default login"),
        "project": ("project acme-infra is not there", "gcloud projects list"),
        "billing": ("has no billing account", "gcloud billing projects link acme-infra"),
        "services": ("APIs cannot be listed", "gcloud services enable serviceusage.googleapis.com"),
        "old-terraform": ("terraform 1.5.7 is too old", "update it to 1.11"),
        "armor-quota": ("no quota for Cloud Armor rules", "--no-cloud-armor, or --entry no_load_balancer"),
        "map-quota": ("quota URL_MAPS is used up", "iam-admin/quotas"),
        "backend-quota": ("quota GLOBAL_EXTERNAL_MANAGED_BACKEND_SERVICES is used up", "iam-admin/quotas"),
        "rights": ("alice@example.com may not: run.services.create", "roles/owner of acme-infra"),
        "dns-caa": ("a CAA record forbids Google's certificate for tidelock.example.com", "pki.goog"),
        "other-user": ("the token is someone-else's", "--gh-user someone-else"),
        "init": ("terraform init failed", "see above"),
        "plan": ("terraform plan failed", "mend what it says above"),
        "revision": ("has no revision that is ready", "gcloud run services logs read tidelock"),
        "open-pages": ("is open to everybody", "--ingress=internal"),
        "unhealthy": ("answers 502, not IAP's redirect", "run this again"),
        "open-events": ("takes a delivery without a signature", "TIDELOCK_GH_WEBHOOK_SECRET"),
        "caa": ("a CAA record forbids", "pki.goog"),
    }
    def one(case):
        broken, (fault, mend) = case
        Place().run(*FLAGS, broken=broken, code=1).says("FAULT: ", fault, "mend:  ", mend)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one, cases.items()))
    Place().run(*FLAGS, "--wait", "1", broken="certificate", code=1).says("the certificate is not there yet (PROVISIONING)", "run this again: it only waits")
    Place().run(*FLAGS, "--dns-zone", "example-com", broken="private-zone", code=1).says("zone example-com is private")
    Place().run(*FLAGS, "--register-webhook", "acme", broken="gh", code=1).says("nobody may add the webhook to acme", "gh auth login --hostname github.com -s admin:org_hook")
    Place().run(*FLAGS, "--register-webhook", "acme", broken="hook-rights", code=1).says("webhooks of acme cannot be listed", "admin:org_hook")
    Place().run(*FLAGS, "--register-webhook", "acme", broken="doctor", code=1).says("FAULT    webhook", "the doctor found something", "run this again")
    # Without that, the webhook is added by hand afterwards.
    Place().run(*FLAGS, broken="doctor").says("FAULT    webhook", "When the webhook is there", "Done:")
    Place().run(*FLAGS, "--dns-zone", "other-org", code=1).says("is not in zone other-org", "another --dns-zone")
    Place().run(*FLAGS, "--dns-zone", "nowhere", code=1).says("there is no zone nowhere", "gcloud dns managed-zones list")
    Place().run(*FLAGS, token=False, code=1).says("there is no token in Secret Manager", "--gh-token-file")


def wrong_flags_are_refused_together():
    p = Place().run("--yes", token=False, code=1)
    p.says("--project is missing", "--region is missing", "--gh-user is missing", "--repo-allowlist is missing", "5 fault(s)")
    Place().run(*FLAGS, "--repo-allowlist", "github.com/*", code=1).says("lets anybody run code")
    Place().run(*FLAGS, "--domain", "https://x.example.com/", code=1).says("is no host name")
    Place().run(*FLAGS, "--entry", "tunnel", code=1).says("--entry tunnel is not known")
    Place().run(*FLAGS, "--frobnicate", "1", code=2).says("there is no flag --frobnicate")
    assert p.changes() == []


def without_armor_a_lack_of_quota_does_not_matter():
    Place().run(*FLAGS, "--no-cloud-armor", broken="armor-quota").says("Done:")


def nobody_answers_for_a_person():
    Place().run(*[f for f in FLAGS if f != "--yes"], code=1).says("nobody is there to answer: Apply this?", "--yes")


def destroy_keeps_the_state_and_deploy_takes_it_up():
    p = Place().run(*FLAGS)
    p.run("--project", "acme-infra", "--yes", script="destroy").says("the bucket with the server's state is kept")
    got = p.changes()
    assert [c.split()[1] for c in got] == ["state", "destroy", "artifacts", "storage", "projects", "iam"], got
    assert "gs://acme-infra-tidelock-state" in p.cloud()["buckets"] and p.cloud()["secrets"]["tidelock-gh-token"]
    p.run("--project", "acme-infra", "--yes", script="destroy")
    assert p.changes() == [], p.changes()
    p.run(*FLAGS).says("is there already and is taken up", "Done:")


def destroy_interrupted_after_every_step_comes_to_the_same_end():
    for more in ([], ["--delete-state", "--delete-secrets"]):
        flags, wanted = ["--project", "acme-infra", "--yes", *more], Place().run(*FLAGS)
        wanted.run(*flags, script="destroy")
        p, stops = Place().run(*FLAGS), 0
        while True:
            (p.dir / "stop").unlink(missing_ok=True)
            done = subprocess.run([SCRIPTS / "destroy", *flags], env={**p.env(), "FAKE_STOP_AFTER": "1"}, cwd=p.dir, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=LONG, start_new_session=True)
            p.said = done.stdout + done.stderr
            if done.returncode == 0:
                break
            assert done.returncode == -signal.SIGKILL and stops < 20, f"after {stops} interruptions:\n{p.said}"
            stops += 1
        assert stops >= 5 and whole(p) == whole(wanted), f"{stops}: {p.said}\n{whole(p)}\n{whole(wanted)}"
        if not more:
            p.run(*FLAGS).says("is there already and is taken up", "Done:")
    # What cannot be read is not taken for gone.
    p = Place().run(*FLAGS)
    p.run("--project", "acme-infra", "--yes", script="destroy", broken="never-ready", FAKE_NEVER="artifacts repositories", code=1).says("cannot be read", "run this again")
    p.run("--project", "acme-infra", "--yes", script="destroy").says("Done.")


def jobs_run_in_cloud_run_jobs_with_the_accounts_that_are_named():
    p = Place().run(*FLAGS, "--executor", "cloud_run", "--plan-account", "reader@acme-infra.iam.gserviceaccount.com")
    assert p.settings()["executors"] == {"plans": {"service_account": "reader@acme-infra.iam.gserviceaccount.com"}, "applies": {"service_account": None}}
    rules = p.settings()["repo_config"]
    assert rules.endswith("""    executor: [{plan: plans, apply: applies}]
executors:
  plans: {kind: cloud_run, job: projects/acme-infra/locations/europe-west1/jobs/tidelock-plans}
  applies: {kind: cloud_run, job: projects/acme-infra/locations/europe-west1/jobs/tidelock-applies}"""), rules
    p.run(*FLAGS)
    assert p.changes() == [] and p.settings()["repo_config"] == rules, "the choice is remembered"
    Place().run(*FLAGS, "--apply-account", "a@acme-infra.iam.gserviceaccount.com", code=1).says("need an executor")
    Place().run(*FLAGS, "--executor", "nomad", code=1).says("--executor nomad is not known")
    assert Place().run(*FLAGS).settings()["executors"] == {}


def a_server_that_sleeps_is_asked_for_and_taken_back():
    p = Place().run(*FLAGS, "--sleeps").says("about 26 USD a month without any work", "Done:")
    assert p.settings()["always_on"] is False and {"cloudtasks.googleapis.com", "cloudscheduler.googleapis.com"} <= set(p.cloud()["apis"]), p.cloud()["apis"]
    p.run(*FLAGS)
    assert p.changes() == [] and p.settings()["always_on"] is False, "the choice is remembered"
    p.run(*FLAGS, "--always-on").says("about 93 USD a month by")
    assert p.settings()["always_on"] is True
    p = Place().run(*FLAGS)
    assert p.settings()["always_on"] is True and not {"cloudtasks.googleapis.com", "cloudscheduler.googleapis.com"} & set(p.cloud()["apis"])
    Place().run(*FLAGS, "--sleeps", "--entry", "no_load_balancer", code=1).says("a server that sleeps needs a load balancer")
    Place().run(*FLAGS, "--sleeps", "--entry", "existing_load_balancer", "--no-cloud-armor").says("about 1 USD a month without any work")


def destroy_deletes_what_it_is_told_to():
    p = Place().run(*FLAGS)
    p.run("--project", "acme-infra", "--yes", "--delete-state", "--delete-secrets", script="destroy").says("DELETED, with all locks")
    assert p.cloud()["buckets"] == [] and p.cloud()["secrets"] == {}, p.cloud()


def destroy_can_be_looked_at_first():
    p = Place().run(*FLAGS)
    before = p.cloud()
    p.run("--project", "acme-infra", "--dry-run", "--delete-state", script="destroy").says("would run: tf destroy", "Nothing was changed.")
    assert p.changes() == [] and p.cloud() == before
    p.run("--project", "acme-infra", script="destroy", code=1).says("nobody is there to answer")
    Place().run("--project", "acme-infra", script="destroy", code=1).says("nothing is known of tidelock in acme-infra")


def main():
    wanted = sys.argv[1:]
    # In the background of a script SIGINT is ignored, and what we start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tests = [f for n, f in globals().items() if callable(f) and getattr(f, "__module__", "") == "__main__" and n not in ("main", "Place", "fake_tools", "whole", "clone", "app_key", "add_version", "variant", "a_bad_day")]
    def one(test):
        try:
            test()
            RESULTS["passed"] += 1
        except Exception as problem:  # noqa: BLE001
            RESULTS["failed"] += 1
            print(f"FAILED {test.__name__}: {type(problem).__name__}: {problem}")

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one, [t for t in tests if not wanted or t.__name__ in wanted]))
    shutil.rmtree(TEMP, ignore_errors=True)
    print(f"deploy: {RESULTS['passed']} passed, {RESULTS['failed']} failed")
    sys.exit(1 if RESULTS["failed"] else 0)


if __name__ == "__main__":
    main()
