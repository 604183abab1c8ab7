#!/usr/bin/env python3
"""Examples outside Cloud Run: elsewhere.py SHELLCHECK. What a machine is told to do, by cloud-init, is done here with stand-ins."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

SHELLCHECK = sys.argv[1]
TREE = pathlib.Path(__file__).resolve().parents[2]
TEMP = pathlib.Path(tempfile.mkdtemp(prefix="tidelock-elsewhere."))
PASSED, FAILED = [], []

# Each notes what it was called with. The secret is what a program gets on standard input, or answers.
CURL = r"""#!/usr/bin/env bash
printf '%s\n' "curl $*" >> "$CALLS"
last=${!#}
case "$last" in
    */service-accounts/default/token) printf '{"access_token":"ya29.machine","expires_in":3599}' ;;
    */project/attributes/*) [ -e "$ASKED" ] || { touch "$ASKED"; exit 22; }; printf '/projects/1/global/backendServices/2' ;;
    *secrets/tidelock-gh-token/*) [ "$(cat)" = 'Authorization: Bearer ya29.machine' ] || exit 22; [ -z "${MISSING:-}" ] || exit 22; printf '{\n  "payload": {\n    "data": "aHVzaC10b2tlbg=="\n  }\n}' ;;
    *secrets/tidelock-gh-webhook-secret/*) cat > /dev/null; printf '{"payload": {"data": "aHVzaC1zZWNyZXQ="}}' ;;
    *) exit 22 ;;
esac
"""
AWS = r"""#!/usr/bin/env bash
printf '%s\n' "aws $*" >> "$CALLS"
[ -z "${MISSING:-}" ] || exit 254
case "$*" in *gh-token*) echo hush-token ;; *webhook-secret*) echo hush-secret ;; *) echo hush-password ;; esac
"""
SLEEP = "#!/bin/sh\n"


def check(name, condition, detail=""):
    (PASSED if condition else FAILED).append(name)
    if not condition:
        print(f"FAILED {name} {detail}")


def rendered_template():
    """The cloud-init of the Compute Engine example, as Terraform renders it."""
    place = TEMP / "console"
    place.mkdir()
    (place / "values.auto.tfvars.json").write_text("{}")
    values = {"audience": "tidelock-iap-audience", "grace": 80, "image": "ghcr.io/acme/tidelock@sha256:" + "a" * 64, "port": 4141, "project": "acme-infra",
              "secrets": {"GH_TOKEN": "tidelock-gh-token", "GH_WEBHOOK_SECRET": "tidelock-gh-webhook-secret"},
              "settings": {"TIDELOCK_PORT": 4141, "TIDELOCK_REPO_CONFIG_JSON": '{"repos":[{"id":"/.*/"}]}'}}
    file = TREE / "terraform/examples/compute-engine/cloud-init.yaml.tftpl"
    done = subprocess.run(["terraform", "console"], cwd=place, capture_output=True, text=True,
                          input=f'jsonencode(templatefile("{file}", {json.dumps(values)}))\n', env={**os.environ, "CHECKPOINT_DISABLE": "1"})
    check("compute engine: the template is rendered", done.returncode == 0, done.stdout + done.stderr)
    return json.loads(json.loads(done.stdout))


def files_of(text):
    check("cloud-init: its first line", text.startswith("#cloud-config\n"))
    document = yaml.safe_load(text)
    return {f["path"]: f for f in document["write_files"]}, document


def run_script(content, place, stand_ins, **env):
    """A script of a machine, with its directories moved below PLACE."""
    (place / "bin").mkdir(parents=True, exist_ok=True)
    for name, text in stand_ins.items():
        (place / "bin" / name).write_text(text)
        (place / "bin" / name).chmod(0o755)
    for folder in ("etc/tidelock", "run/tidelock"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    script = place / "script.sh"
    script.write_text(content.replace("/etc/tidelock", f"{place}/etc/tidelock").replace("/run/tidelock", f"{place}/run/tidelock"))
    return subprocess.run(["bash", script, *env.pop("arguments", ())], capture_output=True, text=True,
                          env={"PATH": f"{place}/bin:{os.environ['PATH']}", "CALLS": str(place / "calls"), "ASKED": str(place / "asked"), **env})


def scripts_are_clean(name, files):
    for path, file in files.items():
        if path.endswith(".sh"):
            done = subprocess.run([SHELLCHECK, "--shell=bash", "-"], input=file["content"], capture_output=True, text=True)
            check(f"{name}: shellcheck of {path}", done.returncode == 0, done.stdout)
            check(f"{name}: {path} is root's", file["permissions"] == "0600")


def unit(name, files, grace):
    text = files["/etc/systemd/system/tidelock.service"]["content"]
    start = re.search(r"ExecStart=((?:.*\\\n)*.*)", text)[1]
    check(f"{name}: the image by digest", re.search(r"@sha256:[0-9a-f]{64} server", start), start)
    check(f"{name}: the container may do little", all(f in start for f in ("--read-only", "--cap-drop ALL", "no-new-privileges", "/var/lib/tidelock")), start)
    stop, limit = int(re.search(r"docker stop --time (\d+)", text)[1]), int(re.search(r"TimeoutStopSec=(\d+)", text)[1])
    check(f"{name}: Docker waits longer than the server, systemd longer than Docker", grace < stop < limit, (grace, stop, limit))


def compute_engine():
    files, document = files_of(rendered_template())
    scripts_are_clean("compute engine", files)
    unit("compute engine", files, 75)
    check("compute engine: started", document["runcmd"][-1] == "systemctl enable --now tidelock.service")
    script, settings = files["/etc/tidelock/environment.sh"]["content"], files["/etc/tidelock/settings"]["content"]
    place = TEMP / "gce"
    (place / "etc/tidelock").mkdir(parents=True)
    (place / "etc/tidelock/settings").write_text(settings)
    done = run_script(script, place, {"curl": CURL, "sleep": SLEEP})
    said = (place / "run/tidelock/environment").read_text()
    check("compute engine: what the server gets", done.returncode == 0 and said == settings + "TIDELOCK_IAP_AUDIENCE=/projects/1/global/backendServices/2\n"
          "TIDELOCK_GH_TOKEN=hush-token\nTIDELOCK_GH_WEBHOOK_SECRET=hush-secret\n", done.stderr + said)
    check("compute engine: root's alone", (place / "run/tidelock/environment").stat().st_mode & 0o777 == 0o600)
    calls = (place / "calls").read_text()
    check("compute engine: no secret is an argument", "hush" not in calls and "ya29" not in calls, calls)
    check("compute engine: it waits for the backend", calls.count("project/attributes/tidelock-iap-audience") == 2, calls)
    check("compute engine: a secret that cannot be read ends it", run_script(script, place, {}, MISSING="1").returncode != 0)


def aws():
    files, document = files_of((TREE / "examples/aws/cloud-init.yaml").read_text())
    scripts_are_clean("aws", files)
    unit("aws", files, 600)
    settings = files["/etc/tidelock/settings"]["content"]
    check("aws: the state is on the volume", "TIDELOCK_BUCKET=file:///var/lib/tidelock/bucket\n" in settings and "TIDELOCK_SHUTDOWN_GRACE=600s\n" in settings)
    place = TEMP / "aws"
    (place / "etc/tidelock").mkdir(parents=True)
    (place / "etc/tidelock/settings").write_text(settings)
    script = files["/etc/tidelock/environment.sh"]["content"]
    done = run_script(script, place, {"aws": AWS})
    said = (place / "run/tidelock/environment").read_text()
    check("aws: what the server gets", done.returncode == 0 and all(line in said for line in (
        "TIDELOCK_GH_TOKEN=hush-token\n", "TIDELOCK_GH_WEBHOOK_SECRET=hush-secret\n", "TIDELOCK_WEB_PASSWORD=hush-password\n")), done.stderr + said)
    check("aws: no secret is an argument", "hush" not in (place / "calls").read_text())
    check("aws: a secret that cannot be read ends it", run_script(script, place, {}, MISSING="1").returncode != 0)
    # A volume: /dev/loop-control stands for any block device; the programs that would change it only say so.
    device = next((str(p) for p in sorted(pathlib.Path("/dev").glob("*")) if p.is_block_device()), None)
    for found, formats in ((0, False), (2, True), (4, False), (8, False)):
        place = TEMP / f"volume-{found}"
        note = '#!/bin/sh\nprintf "%s\\n" "${0##*/} $*" >> "$CALLS"\n'
        stand_ins = {"blkid": f"#!/bin/sh\nexit {found}\n", "mountpoint": "#!/bin/sh\nexit 1\n", "sleep": SLEEP, "readlink": '#!/bin/sh\necho "$2"\n',
                     **{name: note for name in ("mkfs.ext4", "mount", "chown")}}
        done = run_script(files["/etc/tidelock/volume.sh"]["content"], place, stand_ins, arguments=(device or "/dev/none", str(place / "at")))
        calls = (place / "calls").read_text() if (place / "calls").exists() else ""
        if device is None:
            check("aws: a volume that is not there is said", done.returncode != 0 and "is not attached" in done.stderr and not calls, done.stderr)
            continue
        check(f"aws: blkid {found}: formatted {formats}", ("mkfs" in calls) is formats, calls)
        check(f"aws: blkid {found}: mounted", ("mount" in calls) is (found in (0, 2)) and (done.returncode == 0) is (found in (0, 2)), calls + done.stderr)


def azure():
    group = yaml.safe_load((TREE / "examples/azure/container-instances.yaml").read_text())["properties"]
    container = group["containers"][0]["properties"]
    env = {e["name"]: e for e in container["environmentVariables"]}
    check("azure: the state is in Cloud Storage", env["TIDELOCK_BUCKET"]["value"].startswith("gs://"))
    check("azure: no volume that is a share", all(set(v) == {"name", "secret"} for v in group["volumes"]), group["volumes"])
    secret = {name for name in env if re.search("TOKEN|PASSWORD|SECRET", name)}
    check("azure: secrets are not shown", secret and all("secureValue" in env[name] and "value" not in env[name] for name in secret), secret)
    check("azure: reached through the gateway alone", group["ipAddress"]["type"] == "Private" and group["subnetIds"])
    check("azure: the image by digest", re.search("@sha256:[0-9a-f]{64}$", container["image"]))


def documented():
    page = (TREE / "docs/outside-cloud-run.md").read_text()
    for file in ("../terraform/examples/compute-engine", "../examples/aws/cloud-init.yaml", "../examples/aws/eks-values.yaml", "../examples/azure/aks-values.yaml",
                 "../examples/azure/container-instances.yaml"):
        check(f"docs: {file}", file in page and (TREE / "docs" / file).exists())


def networks():
    """Each variable that the page names is one of the module's, and what it calls a step has none."""
    page = (TREE / "docs/networks.md").read_text()
    variables = set(re.findall(r'(?m)^variable "(\w+)"', (TREE / "terraform/variables.tf").read_text()))
    rows = [row.split("|")[1:4] for row in re.findall(r"(?m)^\| [^-\n].*$", page)[1:]]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row[1]) if "variable" in row[1]}
    check("networks: variables are the module's", named and named <= variables, named - variables)
    titles = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"(?m)^## (.*)$", page)}
    links = set(re.findall(r"\(#([a-z-]+)\)", page))
    check("networks: every row leads to its section", links and links <= titles, links - titles)
    check("networks: the service agent is the module's", "@serverless-robot-prod.iam.gserviceaccount.com" in page
          and "@serverless-robot-prod.iam.gserviceaccount.com" in (TREE / "terraform/identity.tf").read_text())
    make = (TREE / "scripts/lib/make.sh").read_text()
    check("networks: scripts/deploy finds the bucket by this name", "PROJECT-NAME-tfstate" in page and "state_bucket=$project-$name-tfstate" in make)


compute_engine()
networks()
aws()
azure()
documented()
shutil.rmtree(TEMP, ignore_errors=True)
print(f"elsewhere: {len(PASSED)} passed, {len(FAILED)} failed")
sys.exit(1 if FAILED else 0)
