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
    py_compile.compile(str(where / "fake_tool.py"))
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
        flags = list(flags) + (["--gh-token-file", str(self.dir / "token")] if token and script == "deploy" else [])
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
        secrets = {TOKEN, "ya29.hush-access-token", "hush-operator-token", "hush-client-secret", *(v for vs in self.cloud().get("secrets", {}).values() for v in vs)}
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
           "about 94 USD a month", "it takes 20 to 90", "Left to do:\n   - add the webhook", "Done: https://tidelock.example.com")
    settings = p.settings()
    assert settings["secret_versions"] == {"gh_token": "1", "gh_webhook_secret": "1"} and settings["project_number"] == "123456789012"
    assert "apply_requirements: [approved, mergeable]" in settings["repo_config"] and settings["webhook_sources"] == ["github"]
    assert p.cloud()["secrets"]["tidelock-gh-token"] == [TOKEN]
    assert re.fullmatch("[0-9a-f]{64}", p.cloud()["secrets"]["tidelock-gh-webhook-secret"][0])
    doctor = [c["argv"] for c in p.calls if c["tool"] == "tidelock" and "--help" not in c["argv"]]
    assert doctor == [["doctor", "--from-outside", "--expect-iap", "--bucket=gs://acme-infra-tidelock-state/tidelock",
                       "--atlantis-url=https://tidelock.example.com", "--events-url=https://tidelock.example.com/events",
                       "--gh-user=acme-bot", "--gh-hostname=github.com", "--repo-allowlist=github.com/acme/*"]], doctor
    adds = [c for c in p.calls if "versions" in c["argv"] and "add" in c["argv"]]
    assert all(c["stdin"] for c in adds)


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
    cloud = {k: sorted(map(str, v)) if isinstance(v, list) else v for k, v in p.cloud().items() if k not in ("secrets", "applied", "half", "imported")}
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
    p = Place().run(*FLAGS, broken="binauthz").says("Binary Authorization is demanded, and the project's policy admits every image")
    assert p.settings()["binary_authorization"] is True
    Place().run(*FLAGS, broken="attested", code=1).says("admits attested images only", "admissionWhitelistPatterns")

def a_failed_apply_goes_on_from_there():
    p = Place().run(*FLAGS, broken="apply", code=1).says("terraform apply failed", "run this again")
    p.run(*FLAGS)
    assert p.changes() == ["terraform apply " + p.changes()[0].split()[-1]], p.changes()


def a_metric_that_is_not_known_yet_is_waited_for():
    p = Place().run(*FLAGS, broken="new-metric").says("not known everywhere yet", "Done:")
    assert sum(c.startswith("terraform apply") for c in p.changes()) == 2, p.changes()


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
    Place().run(*flags, RELEASED_IMAGE="ghcr.io/acme/tidelock:1", code=1).says("has no digest", "scripts/set-released-image")


def before_a_release_the_image_is_built_and_it_says_why():
    flags = [f for f in FLAGS if f != "--build"]
    p = Place().run(*flags, RELEASED_IMAGE="").says("there is no released image yet: it will be built from this checkout", "some 15 for the image")
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
        "build": ("Cloud Build made no image", "gcloud builds list"),
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
    tests = [f for n, f in globals().items() if callable(f) and getattr(f, "__module__", "") == "__main__" and n not in ("main", "Place", "fake_tools", "whole")]
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
