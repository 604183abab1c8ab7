#!/usr/bin/env python3
"""The Terraform module applied to a small cloud (scripts/schema-provider): first runs in an empty project, runs that fail and are repeated,
everything turned on and off again, every example planned. The cloud refuses what the real one refuses, each refusal with its source.

usage: terraform.py MODULE MIRROR [TEST…]     MODULE: a copy of terraform/; MIRROR: directory of providers for `terraform init -plugin-dir`
TIDELOCK_PROVIDER_SCHEMA names the schemas."""
import base64
import concurrent.futures
import hashlib
import hmac
import ipaddress
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
import deploy  # noqa: E402

MODULE, MIRROR = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
TEMP = pathlib.Path(tempfile.mkdtemp(prefix="tidelock-module-test."))
LONG = 900  # seconds; a limit against a hang, on a machine that others load
AGENT = "service-123456789012@gcp-sa-iap.iam.gserviceaccount.com"
BASE = {"project_id": "acme-infra", "region": "europe-west1", "domain": "tidelock.example.com", "image": "ghcr.io/example/tidelock:0.1.0",
        "github": {"user": "acme-bot"}, "repo_allowlist": ["github.com/acme/*"], "iap_members": ["group:platform@example.com"]}
KEY = {"name": "projects/acme-infra/locations/europe-west1/keyRings/tidelock/cryptoKeys/tidelock"}
AGENTS = {"artifactregistry": "service-123456789012@serverless-robot-prod.iam.gserviceaccount.com"}
INITIALIZED, INIT = set(), threading.Lock()


class Place:
    """A root module, the state of one deployment of it, and the cloud that this is in: an empty project with the two secrets."""

    def __init__(self, root=".", files=None, apis=("serviceusage", "secretmanager"), agents=()):
        self.dir = pathlib.Path(tempfile.mkdtemp(dir=TEMP))
        self.root = MODULE / root
        if files is not None:
            self.root = self.dir / "root"
            self.root.mkdir()
            for name, text in files.items():
                (self.root / name).write_text(text)
        cloud = self.dir / "cloud"
        cloud.mkdir()
        (cloud / "apis").write_text("".join(f"{a}.googleapis.com\n" for a in apis))
        (cloud / "agents").write_text("".join(a + "\n" for a in agents))
        (cloud / "secret_versions").write_text("platform-gh-webhook-secret 1\npayments-gh-webhook-secret 1\n"
                                               "tidelock-gh-token 3\ntidelock-gh-webhook-secret 1\ntidelock-gh-app-key 1\n"
                                               "tidelock-azuredevops-token 1\ntidelock-azuredevops-webhook-password 1\n"
                                               "tidelock-gitlab-token 1\ntidelock-gitlab-webhook-secret 1\n"
                                               "tidelock-gitea-token 1\ntidelock-gitea-webhook-secret 1\n"
                                               "tidelock-bitbucket-token 1\ntidelock-bitbucket-webhook-secret 1\n"
                                               "tidelock-bitbucket-data-center-token 1\ntidelock-bitbucket-data-center-webhook-secret 1\n")
        with INIT:  # the roots are shared: one init each
            if self.root not in INITIALIZED:
                self.terraform("init", "-backend=false", f"-plugin-dir={MIRROR}")
                INITIALIZED.add(self.root)

    def terraform(self, *arguments, codes=(0,)):
        env = {**os.environ, "TIDELOCK_FAKE_CLOUD": str(self.dir / "cloud"), "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1", "GOGC": "800"}
        done = subprocess.run(["terraform", f"-chdir={self.root}", arguments[0], "-input=false" if arguments[0] != "show" else "-no-color",
                               "-no-color", *arguments[1:]], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG)
        self.said = done.stdout + done.stderr
        assert done.returncode in codes, f"terraform {' '.join(arguments)} ended with {done.returncode}:\n{self.said[-6000:]}"
        return self

    def with_settings(self, settings):
        (self.dir / "settings.tfvars.json").write_text(json.dumps(settings))
        return [f"-state={self.dir}/state", f"-var-file={self.dir}/settings.tfvars.json"]

    def apply(self, settings, codes=(0,)):
        return self.terraform("apply", "-auto-approve", "-parallelism=30", *self.with_settings(settings), codes=codes)

    def settled(self, settings):
        """A second plan has nothing to do."""
        return self.terraform("plan", "-detailed-exitcode", *self.with_settings(settings))

    def destroy(self, settings, codes=(0,)):
        return self.terraform("destroy", "-auto-approve", *self.with_settings(settings), codes=codes)

    def says(self, *texts):
        flat = " ".join(self.said.replace("│", " ").split())
        for text in texts:
            assert text in flat, f"does not say {text!r}:\n{self.said[-6000:]}"
        return self

    def state(self):
        return json.loads((self.dir / "state").read_text())["resources"]

    def attributes(self, kind, name):
        return next(r["instances"][0]["attributes"] for r in self.state() if r["type"] == kind and r["name"] == name)

    def env(self, service="leader"):
        return {e["name"]: e for e in self.attributes("google_cloud_run_v2_service", service)["template"][0]["containers"][0]["env"]}


def no_balancer(**more):
    return {**{k: v for k, v in BASE.items() if k != "domain"}, "entry": "no_load_balancer", **more}


def the_first_apply_makes_everything_in_an_empty_project_and_destroy_takes_it_away():
    settings = {**BASE, "monitoring": {"emails": ["ops@example.com"]}, "bucket": {"force_destroy": True}}
    p = Place().apply(settings).settled(settings)
    on = (p.dir / "cloud/apis").read_text().split()
    assert on.index("cloudresourcemanager.googleapis.com") == 2, f"something was switched on before Resource Manager: {on}"
    assert p.env()["TIDELOCK_GH_TOKEN"]["value_source"][0]["secret_key_ref"][0]["version"] == "3", p.env()["TIDELOCK_GH_TOKEN"]
    p.destroy(settings)
    kept = [json.loads(f.read_text())["type"] for f in (p.dir / "cloud/objects").iterdir()]
    assert set(kept) <= {"google_project_service"}, kept


def the_first_apply_without_a_load_balancer_too():
    settings = no_balancer(iap_oauth_client={"client_id": "id", "client_secret": "hush"})
    p = Place(agents=[AGENT]).apply(settings).settled(settings)
    assert p.attributes("google_iap_web_cloud_run_service_iam_member", "pages")["project"] == "123456789012"
    Place().apply(no_balancer(), codes=(1,)).says(f"Service account {AGENT} does not exist")


def a_service_that_never_started_is_replaced_by_the_next_apply():
    broken = {**BASE, "image": "ghcr.io/example/tidelock:missing"}
    p = Place().apply(broken, codes=(1,)).says("is not ready and cannot serve traffic")
    p.apply(broken, codes=(1,)).says("is not ready and cannot serve traffic")
    p.apply(BASE).settled(BASE)
    Place().apply({**broken, "bucket": {"force_destroy": True}}, codes=(1,)).destroy({**broken, "bucket": {"force_destroy": True}})
    # What protection would do: this is why it is off.
    p = Place().apply({**broken, "deletion_protection": True}, codes=(1,))
    p.apply({**BASE, "deletion_protection": True}, codes=(1,)).says("cannot destroy service without setting deletion_protection=false")


def without_an_image_the_released_one_is_taken_and_in_a_checkout_the_plan_is_refused():
    copy = TEMP / "released"
    shutil.copytree(MODULE, copy, ignore=shutil.ignore_patterns(".terraform*", "examples"))
    settings = {k: v for k, v in BASE.items() if k != "image"}
    (copy / "released-image.txt").write_text("ghcr.io/example/tidelock@sha256:" + "0" * 64 + "\n")
    p = Place(root=copy)
    p.terraform("plan", *p.with_settings(settings), codes=(1,)).says("This copy of the module is of no release", "Set image")
    assert "Cloud Run cannot pull" not in p.said, p.said
    (copy / "released-image.txt").write_text("ghcr.io/acme/tidelock@sha256:" + "a" * 64 + "\n")
    p.apply(settings)
    image = p.attributes("google_cloud_run_v2_service", "leader")["template"][0]["containers"][0]["image"]
    assert image == "europe-west1-docker.pkg.dev/acme-infra/tidelock-images/acme/tidelock@sha256:" + "a" * 64, image


def everything_at_the_edge_can_be_turned_off_and_on_again():
    p, settings = Place(), {**BASE, "monitoring": {"emails": ["ops@example.com", "more@example.com"]}}
    zone = {"dns_zone": {"name": "example-com"}}
    steps = [
        ("from the start", {}),
        ("known networks only", {"pages_sources": ["203.0.113.0/24"]}),
        ("from anywhere again", {"pages_sources": []}),
        ("without Cloud Armor", {"enable_cloud_armor": False}),
        ("with it again, and known networks", {"enable_cloud_armor": True, "pages_sources": ["203.0.113.0/24"]}),
        ("a certificate map", {"certificate": {"kind": "dns_authorized"}, **zone}),
        ("the map for another domain", {"domain": "other.example.com"}),
        ("a certificate of one's own", {"certificate": {"kind": "existing", "ssl_certificates": ["projects/acme-infra/global/sslCertificates/own"]}}),
        ("Google's certificate", {"certificate": {"kind": "managed"}, "pages_sources": []}),
        ("another domain, one address fewer to write to", {"domain": "tidelock.example.com", "monitoring": {"emails": ["ops@example.com"]}}),
        ("another region", {"region": "europe-west4"}),
        ("a load balancer of one's own", {"entry": "existing_load_balancer"}),
        ("and back, with IPv6", {"entry": "load_balancer", "ipv6": True}),
        ("without alerts and IPv6", {"monitoring": {"enabled": False}, "ipv6": False}),
    ]
    for name, change in steps:
        settings = {**settings, **change}
        try:
            p.apply(settings)
        except AssertionError as problem:
            raise AssertionError(f"{name}: {problem}") from None
        if name == "another region":
            p.says("stays in europe-west1, not europe-west4")
            assert p.attributes("google_storage_bucket", "state")["location"] == "europe-west1", "the state was left behind"
    p.settled(settings)
    uptime = [r for r in p.state() if r["type"] == "google_monitoring_uptime_check_config" and r["instances"]]
    assert uptime == []


def events_need_no_quota_of_advanced_rules():
    """SECURITY_POLICY_CEVAL_RULES is 0 in new projects: a rule with an expression before /events would deny only what the last one denies."""
    p = Place().apply({**BASE, "pages_sources": ["203.0.113.0/24"]})
    rules = {name: p.attributes("google_compute_security_policy", name)["rule"] for name in ("events", "pages")}
    advanced = {name: [r["priority"] for r in each if r["match"][0].get("expr")] for name, each in rules.items()}
    assert advanced == {"events": [], "pages": [500]}, advanced
    assert [r["action"] for r in sorted(rules["events"], key=lambda r: r["priority"])] == ["throttle", "deny(403)"], rules["events"]


def a_certificate_before_the_domain_points_here_needs_one_record():
    settings = {**BASE, "certificate": {"kind": "dns_authorized"}}
    p = Place().apply(settings).settled(settings)
    assert not [r for r in p.state() if r["type"] == "google_dns_record_set" and r["instances"]]
    outputs = json.loads((p.dir / "state").read_text())["outputs"]
    assert outputs["certificate_record"]["value"] is not None and outputs["dns_records"]["value"] == ["tidelock.example.com. A 203.0.113.7"], outputs
    zone = {**settings, "dns_zone": {"name": "example-com"}}
    p.apply(zone).settled(zone)
    assert json.loads((p.dir / "state").read_text())["outputs"].get("certificate_record", {}).get("value") is None


def the_load_balancer_can_come_and_go():
    p = Place(agents=[AGENT]).apply(no_balancer())
    p.apply(BASE).apply(no_balancer()).settled(no_balancer())


def sleep_can_be_turned_on_and_off():
    p, asleep = Place().apply(BASE), {**BASE, "always_on": False}
    queues = []
    for _ in range(2):
        p.apply(asleep).settled(asleep)
        queues.append(p.env()["TIDELOCK_WAKE_QUEUE"]["value"].rpartition("/")[2])
        assert p.attributes("google_cloud_tasks_queue", "wake")["name"] == queues[-1]
        p.apply(BASE).settled(BASE)
        assert not [r for r in p.state() if r["name"] == "wake" and r["instances"]] and "TIDELOCK_WAKE_QUEUE" not in p.env()
    assert (p.dir / "cloud/deleted_queues").read_text().split() == queues and len(set(queues)) == 2, queues
    p.terraform("plan", *p.with_settings({k: v for k, v in asleep.items() if k != "domain"} | {"entry": "no_load_balancer"}), codes=(1,)).says("always_on = false needs a load balancer")
    settings = {**asleep, "bucket": {"force_destroy": True}}
    Place().apply(settings).destroy(settings)


def a_new_secret_is_a_rollout():
    p = Place().apply(BASE)
    with (p.dir / "cloud/secret_versions").open("a") as f:
        f.write("tidelock-gh-token 4\n")
    p.terraform("plan", "-detailed-exitcode", *p.with_settings(BASE), codes=(2,)).says("0 to add, 1 to change, 0 to destroy")
    p.apply(BASE)
    assert p.env()["TIDELOCK_GH_TOKEN"]["value_source"][0]["secret_key_ref"][0]["version"] == "4"
    made = {**BASE, "create_secrets": True, "secret_values_version": 1, "secrets": {"gh_token": "own-token", "gh_webhook_secret": "own-secret"}}
    p.apply(made).settled(made)
    p.apply({**made, "secret_values_version": 2})
    assert p.env()["TIDELOCK_GH_TOKEN"]["value_source"][0]["secret_key_ref"][0]["version"] == "2"


def with_a_key_the_service_agents_have_to_exist():
    p = Place().apply({**BASE, "kms_key": KEY}, codes=(1,)).says("gcp-sa-artifactregistry.iam.gserviceaccount.com does not exist")
    p.apply({**BASE, "kms_key": KEY, "service_agents": AGENTS}).apply(BASE).settled(BASE)


def an_ephemeral_disk_is_asked_for_as_a_preview_within_the_quota():
    p = Place().apply({**BASE, "scratch": {"medium": "DISK", "size_gib": 9}})
    p.apply({**BASE, "scratch": {"medium": "DISK", "size_gib": 20}}, codes=(1,)).says("Quota exceeded for ephemeral disk")
    p.apply(BASE)
    assert p.attributes("google_cloud_run_v2_service", "leader")["launch_stage"] == "GA"


def with_known_networks_only_cloud_armors_answer_is_no_alarm():
    def codes(settings):
        p = Place().apply(settings)
        return [c["status_value"] for c in p.attributes("google_monitoring_uptime_check_config", "way_in")["http_check"][0]["accepted_response_status_codes"]]
    assert 403 not in codes(BASE) and 403 in codes({**BASE, "pages_sources": ["203.0.113.0/24"]})


def nothing_is_read_while_planning_where_the_number_is_given():
    settings = {**BASE, "project_number": "123456789012", "secret_versions": {"gh_token": "3", "gh_webhook_secret": "1"}, "enable_apis": False}
    p = Place(apis=())
    p.terraform("plan", *p.with_settings(settings)).says("0 to change, 0 to destroy")
    p.terraform("plan", *p.with_settings({**settings, "project_number": None}), codes=(1,)).says("cloudresourcemanager.googleapis.com has not been used")


def every_example_is_planned_and_applied():
    variables = {"minimal": {"project_id": "acme-infra"}, "several-servers": {"project_id": "acme-infra"}, "compute-engine": {"project_id": "acme-infra"}, "no-load-balancer": {"project_id": "acme-infra"},
                 "existing-load-balancer": {"project_id": "acme-infra", "default_service": "projects/acme-infra/global/backendServices/web"},
                 "complete": {"project_id": "acme-infra", "github_secrets": {"gh_token": "hush-token", "gh_webhook_secret": "hush-secret"}}}
    assert set(variables) == {d.name for d in (MODULE / "examples").iterdir()}, "an example is not tried"
    for name, settings in variables.items():
        override = MODULE / "examples" / name / "test_override.tf"
        override.write_text('terraform {\n  backend "local" {}\n}\n')  # complete's state is in a bucket
        p = Place(f"examples/{name}", agents=[AGENT] if name == "no-load-balancer" else [])
        p.terraform("init", "-reconfigure", f"-plugin-dir={MIRROR}")
        p.apply(settings)
        assert "hush" not in (p.dir / "state").read_text(), "a secret is in the state"


def what_scripts_deploy_writes_is_applied_and_destroyed():
    """The script itself runs against its own small cloud (deploy.py); what it wrote is then given to the real Terraform."""
    for flags, agents in ((deploy.FLAGS, []), ([f for f in deploy.FLAGS if f not in ("--domain", "tidelock.example.com")] + ["--entry", "no_load_balancer"], [AGENT])):
        written = deploy.Place()
        (written.dir / "more.tfvars").write_text("cpu = 2\nmemory_gib = 8\nbucket = { noncurrent_days = 30 }\ndeletion_protection = true\n")
        written.run(*flags, "--tfvars", "more.tfvars", "--admin", "alice@example.com", "--alert-email", "ops@example.com")
        kept = written.dir / "kept/acme-infra-tidelock"
        (kept / "backend_override.tf").write_text('terraform {\n  backend "local" {}\n}\n')
        p = Place(files={f.name: f.read_text().replace(str(deploy.SCRIPTS.parent / "terraform"), str(MODULE)) for f in kept.iterdir() if ".tf" in f.name}, agents=agents)
        p.terraform("init", "-reconfigure", f"-plugin-dir={MIRROR}")
        p.apply({}).settled({})
        leader = p.attributes("google_cloud_run_v2_service", "leader")
        assert leader["template"][0]["containers"][0]["resources"][0]["limits"]["cpu"] == "2" and leader["deletion_protection"]
        assert json.loads(p.env()["TIDELOCK_REPO_CONFIG_JSON"]["value"])["repos"][0]["apply_requirements"] == ["approved", "mergeable"]
        assert p.env()["TIDELOCK_ADMINS"]["value"] == "alice@example.com"
        settings = p.with_settings({})
        off = ["-var=deletion_protection=false", "-var=force_destroy=true"]
        p.terraform("apply", "-auto-approve", *off, "-target=module.tidelock.google_cloud_run_v2_service.leader",
                    *(["-target=module.tidelock.google_cloud_run_v2_service.inbox"] if agents else []), "-target=module.tidelock.google_storage_bucket.state", *settings)
        p.terraform("destroy", "-auto-approve", *off, *settings)


APP = {"id": 123456, "slug": "acme-tidelock"}
AZURE = {"user": "tidelock@acme.example"}
HOSTS = {
    "github": {"github": {"user": "acme-bot"}},
    "github_app": {"github": None, "github_app": APP},
    "azuredevops": {"github": None, "azuredevops": AZURE, "repo_allowlist": ["dev.azure.com/acme/*"]},
    "gitlab": {"github": None, "gitlab": {"user": "acme-bot"}, "repo_allowlist": ["gitlab.com/acme/*"]},
    "gitea": {"github": None, "gitea": {"user": "acme-bot"}, "repo_allowlist": ["gitea.com/acme/*"], "webhook_sources": ["198.51.100.0/24"]},
    "bitbucket": {"github": None, "bitbucket": {"user": "bot@acme.example"}, "repo_allowlist": ["bitbucket.org/acme/*"]},
    "bitbucket_data_center": {"github": None, "bitbucket_data_center": {"user": "acme-bot", "base_url": "https://bb.acme.example/bitbucket"},
                              "repo_allowlist": ["bb.acme.example/INFRA/*"], "webhook_sources": ["192.0.2.0/24"]},
    "github_app and azuredevops": {"github": None, "github_app": APP, "azuredevops": AZURE, "repo_allowlist": ["github.com/acme/*", "dev.azure.com/acme/*"]},
}
ADDRESSES = {"github": "140.82.112.9", "azuredevops": "40.74.28.9", "gitlab": "34.74.90.70", "bitbucket": "18.205.93.9",  # one of the published ranges of each
             "gitea": "198.51.100.9", "bitbucket_data_center": "192.0.2.9"}  # which publish none: one of webhook_sources


def binary():
    target = deploy.SCRIPTS.parent / "target"
    for candidate in (os.environ.get("TIDELOCK_TEST_BINARY"), target / "dist/tidelock", target / "debug/tidelock"):
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    return None


class Server:
    """The real binary with exactly the environment and arguments of the module's container, as Cloud Run would give them. Substituted are the
    bucket (file:// for gs://), the data directory, the port, and the directory that secrets are mounted in; a secret's reference is its value."""

    def __init__(self, place, secrets, service="leader", bucket=None):
        template = place.attributes("google_cloud_run_v2_service", service)["template"][0]
        container = template["containers"][0]
        self.dir = pathlib.Path(tempfile.mkdtemp(dir=TEMP))
        self.bucket = bucket or self.dir / "bucket"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.dir), "PORT": str(self.port)}
        for each in container["env"]:
            name, value = each["name"], each["value"]
            if each["value_source"]:
                value = secrets[each["value_source"][0]["secret_key_ref"][0]["secret"]]
            elif name == "TIDELOCK_BUCKET":
                assert value.startswith("gs://"), value
                value = f"file://{self.bucket}"
            elif name == "TIDELOCK_DATA_DIR":
                value = str(self.dir / "data")
            elif value.startswith("/run/secrets/"):
                mount = next(m for m in container["volume_mounts"] if value.startswith(m["mount_path"] + "/"))
                volume = next(v for v in template["volumes"] if v["name"] == mount["name"])["secret"][0]
                assert value == f"{mount['mount_path']}/{volume['items'][0]['path']}", value
                file = self.dir / "run" / mount["name"]
                file.parent.mkdir(exist_ok=True)
                file.write_text(secrets[volume["secret"]])
                value = str(file)
            assert name not in env, f"{name} is set twice"
            env[name] = value
        self.file = self.dir / "said"
        self.process = subprocess.Popen([binary(), *container["args"]], env=env, stdin=subprocess.DEVNULL, stdout=self.file.open("w"), stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=LONG)

    def said(self):
        return self.file.read_text()

    def until(self, what, holds):
        limit = time.monotonic() + 120
        while not holds():
            assert self.process.poll() is None and time.monotonic() < limit, f"{what}: never\n{self.said()}"
            time.sleep(0.05)
        return self

    def ask(self, path, **request):
        try:
            with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", **request), timeout=30) as answer:
                return answer.status
        except urllib.error.HTTPError as refused:
            return refused.code
        except OSError:
            return 0

    def leads(self):
        self.until("it leads", lambda: '"role":"leading"' in self.said())
        assert self.ask("/readyz") == 200, self.said()
        assert "has no effect" not in self.said(), self.said()
        return self

    def delivery(self, host, secrets, address, hops, wrong=False):
        """What the host would send, seen from `address` through the proxies of this entry."""
        headers = {"X-Forwarded-For": ", ".join([address, "35.191.0.1"][:hops]), "Content-Type": "application/json"}
        if host == "github":
            body = b'{"zen": "x", "hook_id": 1}'
            secret = secrets["tidelock-gh-webhook-secret"].encode() + b"x" * wrong
            headers |= {"X-GitHub-Event": "ping", "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
                        "X-Hub-Signature-256": "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()}
        elif host == "gitlab":
            body = b'{"object_kind": "push", "ref": "refs/tags/v1"}'
            headers |= {"X-Gitlab-Event": "Tag Push Hook", "X-Gitlab-Token": secrets["tidelock-gitlab-webhook-secret"] + "x" * wrong}
        elif host == "gitea":
            body = b'{"ref": "refs/tags/v1"}'
            secret = secrets["tidelock-gitea-webhook-secret"].encode() + b"x" * wrong
            headers |= {"X-Gitea-Event": "push", "X-GitHub-Event": "push", "X-Gitea-Signature": hmac.new(secret, body, hashlib.sha256).hexdigest()}
        elif host == "bitbucket":
            body = b'{"push": {"changes": []}}'
            secret = secrets["tidelock-bitbucket-webhook-secret"].encode() + b"x" * wrong
            headers |= {"X-Event-Key": "repo:push", "X-Hook-UUID": "{5f0c2a1e-0a1b-4c2d-8e3f-0123456789ab}",
                        "X-Hub-Signature": "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()}
        elif host == "bitbucket_data_center":
            body = b'{"eventKey": "repo:refs_changed", "changes": []}'
            secret = secrets["tidelock-bitbucket-data-center-webhook-secret"].encode() + b"x" * wrong
            headers |= {"X-Event-Key": "repo:refs_changed", "X-Request-Id": "5f0c2a1e-0a1b-4c2d-8e3f-0123456789ab",
                        "X-Hub-Signature": "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()}
        else:
            body = json.dumps({"id": "03c164c2", "eventType": "git.pullrequest.created", "publisherId": "tfs", "resource": {}}).encode()
            login = f"tidelock:{secrets['tidelock-azuredevops-webhook-password']}{'x' * wrong}"
            headers |= {"Authorization": "Basic " + base64.b64encode(login.encode()).decode(), "X-VSS-ActivityId": "5c2b1f4e-0000-0000-0000-000000000001",
                        "X-VSS-SubscriptionId": "5c2b1f4e-0000-0000-0000-000000000002"}
        return self.ask("/events", data=body, headers=headers, method="POST")


def app_key():
    return subprocess.run(["openssl", "genrsa", "-traditional", "2048"], capture_output=True, text=True, check=True).stdout


def with_each_host_the_real_server_leads_with_the_modules_environment():
    if binary() is None:
        print("skipped the real server: there is no target/dist/tidelock and no target/debug/tidelock, and TIDELOCK_TEST_BINARY names none")
    secrets = {"tidelock-gh-token": "hush-token", "tidelock-gh-webhook-secret": "hush-0123456789abcdef", "tidelock-gh-app-key": app_key(),
               "tidelock-azuredevops-token": "hush-azure", "tidelock-azuredevops-webhook-password": "hush-0123456789abcdef-2",
               "tidelock-gitlab-token": "hush-gitlab", "tidelock-gitlab-webhook-secret": "hush-0123456789abcdef-3",
               "tidelock-gitea-token": "hush-gitea", "tidelock-gitea-webhook-secret": "hush-0123456789abcdef-4",
               "tidelock-bitbucket-token": "hush-bitbucket", "tidelock-bitbucket-webhook-secret": "hush-0123456789abcdef-5",
               "tidelock-bitbucket-data-center-token": "hush-data-center", "tidelock-bitbucket-data-center-webhook-secret": "hush-0123456789abcdef-6"}
    wanted = {"github": ["gh-token", "gh-webhook-secret"], "github_app": ["gh-app-key", "gh-webhook-secret"], "azuredevops": ["azuredevops-token", "azuredevops-webhook-password"],
              "gitlab": ["gitlab-token", "gitlab-webhook-secret"], "gitea": ["gitea-token", "gitea-webhook-secret"],
              "bitbucket": ["bitbucket-token", "bitbucket-webhook-secret"],
              "bitbucket_data_center": ["bitbucket-data-center-token", "bitbucket-data-center-webhook-secret"]}
    for name, host in HOSTS.items():
        names = name.split(" and ")
        kinds = sorted({n.removesuffix("_app") for n in names})
        for entry, settings in (("load_balancer", {**BASE, **host}), ("as files", {**BASE, **host, "token_as_file": True}), ("no_load_balancer", no_balancer(**host))):
            p = Place(agents=[AGENT]).apply(settings)
            granted = {r["attributes"]["secret_id"] for s in p.state() if s["type"] == "google_secret_manager_secret_iam_member" and s["name"] == "leader" for r in s["instances"]}
            assert granted == {f"tidelock-{s}" for n in names for s in wanted[n]}, f"{name}: {granted}"
            if entry == "load_balancer":
                rules = p.attributes("google_compute_security_policy", "events")["rule"]
                open_to = [ipaddress.ip_network(r) for rule in rules if rule["action"] == "throttle" for r in rule["match"][0]["config"][0]["src_ip_ranges"]]
                for kind, address in ADDRESSES.items():
                    let_in = any(ipaddress.ip_address(address) in n for n in open_to)
                    assert let_in == (kind in kinds), f"{name}: Cloud Armor and {kind}"
            if binary() is None:
                continue
            hops = 1 if entry == "no_load_balancer" else 2
            with Server(p, secrets) as server:
                server.leads()
                for kind in kinds:
                    assert 200 <= (code := server.delivery(kind, secrets, ADDRESSES[kind], hops)) < 300, f"{name}, {entry}, {kind}: {code}\n{server.said()}"
                    assert server.delivery(kind, secrets, "203.0.113.9", hops) == 403, f"{name}: a delivery from elsewhere is taken"
                    assert server.delivery(kind, secrets, ADDRESSES[kind], hops, wrong=True) == 401, f"{name}: a delivery with another secret is taken"
            if entry == "no_load_balancer":
                received = {v["secret"] for e in p.env("inbox").values() if e["value_source"] for v in e["value_source"][0]["secret_key_ref"]}
                assert received == {f"tidelock-{s}" for n in names for s in wanted[n] if "webhook" in s}, f"{name}: the receiver has {received}"
                with Server(p, secrets, "inbox") as receiver:
                    receiver.until("it receives", lambda: receiver.ask("/healthz") == 200)
                    for kind in kinds:
                        assert 200 <= (code := receiver.delivery(kind, secrets, ADDRESSES[kind], 1)) < 300, f"{name}, receiver, {kind}: {code}\n{receiver.said()}"
                        assert receiver.delivery(kind, secrets, ADDRESSES[kind], 1, wrong=True) == 401


def a_server_needs_a_host_and_its_addresses():
    p = Place()
    for settings, words in (({"github": None}, "at least one of github, github_app, gitlab, gitea, bitbucket, bitbucket_data_center and azuredevops"),
                            ({"github_app": APP}, "github and github_app are the same host"),
                            ({"github": {"user": "acme-bot", "hostname": "github.acme.example"}}, "webhook_sources is needed"),
                            ({"azuredevops": {**AZURE, "hostname": "tfs.acme.example/tfs"}}, "webhook_sources is needed"),
                            ({"azuredevops": {"user": ""}}, "azuredevops.user is"),
                            ({"gitlab": {"user": "acme-bot", "hostname": "git.acme.example/gitlab"}}, "webhook_sources is needed"),
                            ({"gitlab": {"user": ""}}, "gitlab.user is"),
                            ({"gitea": {"user": "acme-bot"}}, "webhook_sources is needed"),
                            ({"gitea": {"user": ""}, "webhook_sources": ["198.51.100.0/24"]}, "gitea.user is"),
                            ({"gitea": {"user": "u", "base_url": "git.acme.example"}, "webhook_sources": ["198.51.100.0/24"]}, "gitea.base_url is"),
                            ({"bitbucket": {"user": ""}}, "bitbucket.user is"),
                            ({"bitbucket": {"user": "u", "base_url": "https://bb.acme.example/2.0"}}, "webhook_sources is needed"),
                            ({"bitbucket": {"user": "u", "base_url": "https://bb.acme.example"}, "webhook_sources": ["198.51.100.0/24"]}, "bitbucket.base_url is"),
                            ({"bitbucket_data_center": {"user": "u", "base_url": "https://bb.acme.example"}}, "webhook_sources is needed"),
                            ({"bitbucket_data_center": {"user": "", "base_url": "https://bb.acme.example"}, "webhook_sources": ["198.51.100.0/24"]}, "bitbucket_data_center.user is"),
                            ({"bitbucket_data_center": {"user": "u", "base_url": "bb.acme.example"}, "webhook_sources": ["198.51.100.0/24"]}, "bitbucket_data_center.base_url is")):
        p.terraform("plan", *p.with_settings({**BASE, **settings}), codes=(1,)).says(words)
    both = {**BASE, "azuredevops": AZURE, "secret_versions": {"gh_webhook_secret": "2", "gh_previous_webhook_secret": "1", "azuredevops_webhook_password": "4", "azuredevops_previous_webhook_password": "3"}}
    env = p.apply(both).settled(both).env()
    numbers = {n: e["value_source"][0]["secret_key_ref"][0]["version"] for n, e in env.items() if e["value_source"]}
    assert numbers == {"TIDELOCK_GH_TOKEN": "3", "TIDELOCK_GH_WEBHOOK_SECRET": "2", "TIDELOCK_GH_PREVIOUS_WEBHOOK_SECRET": "1", "TIDELOCK_AZUREDEVOPS_TOKEN": "1",
                       "TIDELOCK_AZUREDEVOPS_WEBHOOK_PASSWORD": "4", "TIDELOCK_AZUREDEVOPS_PREVIOUS_WEBHOOK_PASSWORD": "3"}, numbers
    assert env["TIDELOCK_WEBHOOK_ALLOWLIST"]["value"] == "azuredevops,github"


UNKNOWN = '''
resource "terraform_data" "later" { input = "x" }
locals { later = terraform_data.later.id }
module "tidelock" {
  source         = "%s"
  project_id     = "acme-infra"
  region         = "europe-west1"
  entry          = "%s"
  domain         = %s
  image          = "docker.io/example/tidelock:${local.later}"
  github         = { user = "bot-${local.later}" }
  repo_allowlist = ["github.com/${local.later}/*"]
  repo_config    = "repos: [{id: '${local.later}'}]"
  admins         = [local.later]
  settings       = { TIDELOCK_PARALLEL_PLAN = local.later }
  secrets        = { gh_token = "a-${local.later}", gh_webhook_secret = "b-${local.later}" }
  secret_env     = { TIDELOCK_API_SECRET = "c-${local.later}" }
  kms_key        = { name = "projects/${local.later}" }
  service_agents = { artifactregistry = local.later, iap = local.later }
  monitoring     = { channels = [local.later] }
  bucket         = { log_bucket = local.later }
  vpc            = { network = local.later, subnetwork = local.later, tags = [local.later] }
  webhook_sources = ["github", local.later]
  %s
  impersonated_service_accounts = { planner = local.later }
  iap_oauth_client = { client_id = local.later, client_secret = local.later }
}
'''


def what_is_made_in_the_same_run_can_be_given():
    for entry, domain, more in (("load_balancer", '"${local.later}.example.com"', "pages_sources = [local.later]\n  iap_programmatic_clients = [local.later]"),
                                ("no_load_balancer", "null", "")):
        p = Place(files={"main.tf": UNKNOWN % (MODULE, entry, domain, more)})
        p.terraform("plan", f"-state={p.dir}/state").says("0 to change, 0 to destroy")


FIXTURE = '''
resource "google_logging_metric" "m" {
  project = "acme-infra"
  name = "m"
  filter = "x"
}
resource "google_monitoring_alert_policy" "p" {
  project = "acme-infra"
  display_name = "p"
  combiner = "OR"
  conditions {
    display_name = "c"
    %s
  }
}
'''


def the_cloud_refuses_what_the_real_one_refuses():
    """Each refusal, met on purpose: a cloud that agrees with everything would show nothing."""
    old = 'condition_absent {\n filter = "metric.type=\\"logging.googleapis.com/user/${google_logging_metric.m.name}\\""\n duration = "600s"\n }'
    query = 'condition_prometheus_query_language {\n query = "logging_googleapis_com:user_m > 1"\n disable_metric_validation = %s\n }'
    apis = ("logging", "monitoring")
    Place(files={"main.tf": FIXTURE % old}, apis=apis).apply({}, codes=(1,)).says("Cannot find metric(s) that match type", "11102")
    Place(files={"main.tf": FIXTURE % (query % "false")}, apis=apis).apply({}, codes=(1,)).says("Cannot find metric(s) that match type")
    Place(files={"main.tf": FIXTURE % (query % "true")}, apis=apis).apply({})
    Place(files={"main.tf": FIXTURE % (query % "true")}, apis=("logging",)).apply({}, codes=(1,)).says("monitoring.googleapis.com has not been used", "6101")
    policy = 'resource "google_compute_security_policy" "s" {\n  count = %s\n  project = "acme-infra"\n  name = "s"\n}\n'
    backend = 'resource "google_compute_backend_service" "b" {\n  project = "acme-infra"\n  name = "b"\n  security_policy = one(google_compute_security_policy.s[*].id)\n}\n'
    p = Place(files={"main.tf": policy % 1 + backend}, apis=("compute",)).apply({})
    (p.root / "main.tf").write_text(policy % 0 + backend)
    p.apply({}, codes=(1,)).says("is already being used by", "60367")


def main():
    wanted = sys.argv[3:]
    skip = {"main", "no_balancer", "Place", "Server", "binary", "app_key"}
    tests = [f for n, f in globals().items() if callable(f) and getattr(f, "__module__", "") == "__main__" and n not in skip]
    failed = 0

    def one(test):
        try:
            test()
            return True
        except Exception as problem:  # noqa: BLE001
            print(f"FAILED {test.__name__}: {type(problem).__name__}: {problem}")
            return False

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        results = list(pool.map(one, [t for t in tests if not wanted or t.__name__ in wanted]))
    failed = results.count(False)
    shutil.rmtree(TEMP, ignore_errors=True)
    shutil.rmtree(deploy.TEMP, ignore_errors=True)
    print(f"module: {results.count(True)} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
