#!/usr/bin/env python3
"""What can be said of the images without building one: images.py HADOLINT. Docker does not run where this was written."""
import pathlib
import re
import shutil
import subprocess
import sys

HADOLINT = sys.argv[1]
TREE = pathlib.Path(__file__).resolve().parents[2]
FILES = ["Dockerfile", "Dockerfile.tools", *sorted(str(p.relative_to(TREE)) for p in (TREE / "examples/images").glob("*.Dockerfile"))]
PASSED, FAILED = [], []
# Not of Debian: each file adds their repository, and checks its key.
ELSEWHERE = {"azure-cli": "BC528686B50D79E339D3721CEB3E94ADBE1229CF", "google-cloud-cli": "35BAA0B33E9EB396F59CA838C0BA5CE6DC6315A3"}


def check(name, condition, detail=""):
    (PASSED if condition else FAILED).append(name)
    if not condition:
        print(f"FAILED {name} {detail}")


def instructions(text):
    """Keyword and rest of each instruction, without comments, lines joined."""
    text = re.sub(r"(?m)^\s*#.*\n", "", text)
    return [line.split(None, 1) for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip()]


def of_debian(packages):
    """Those of the packages that Debian has, by one look at its lists; nothing where there are none."""
    if shutil.which("apt-cache") is None:
        return set()
    done = subprocess.run(["apt-cache", "show", "--no-all-versions", *sorted(packages)], capture_output=True, text=True)
    return set(re.findall(r"(?m)^Package: (.*)$", done.stdout))


bases, wanted = {}, {"bash": "this test"}
for name in FILES:
    text = (TREE / name).read_text()
    # DL3008: packages have no version. Debian's stable release is the version, and fixes of security are what is wanted of it.
    done = subprocess.run([HADOLINT, "--no-color", "--ignore=DL3008", name], cwd=TREE, capture_output=True, text=True)
    check(f"{name}: hadolint", done.returncode == 0, done.stdout + done.stderr)
    stages, user, arguments = set(), None, {}
    for keyword, rest in instructions(text):
        if keyword == "FROM":
            image, *named = rest.split(" AS ")
            if image not in stages and image not in ("scratch", "${TIDELOCK}"):
                check(f"{name}: {image} by digest", re.fullmatch(r"[a-z0-9./-]+(:[a-z0-9.-]+)?@sha256:[0-9a-f]{64}", image))
                bases.setdefault(image.split("@")[0], set()).add(image)
            stages |= set(named)
            user = None if image in stages or image == "scratch" else "base"
        elif keyword == "ARG" and "=" in rest:
            arguments.update([rest.split("=", 1)])
        elif keyword == "USER":
            user = rest
        elif keyword == "RUN":
            for packages in re.findall(r"apt-get install --yes --no-install-recommends ([a-z0-9 .+-]+)", rest):
                for package in packages.split():
                    if package in ELSEWHERE:
                        check(f"{name}: the key that signs {package} is the one written down", ELSEWHERE[package] in text and "signed-by=" in text)
                    else:
                        wanted[package] = name
    check(f"{name}: it does not run as root", user == "65532:65532", user)
    for argument, value in arguments.items():
        if argument.endswith(("_SHA256_AMD64", "_SHA256_ARM64")) and value:
            check(f"{name}: {argument} is a sum", re.fullmatch("[0-9a-f]{64}", value), value)
there = of_debian(wanted)
for package, name in wanted.items() if "bash" in there else ():
    check(f"{name}: Debian has {package}", package in there)
check("a base has one digest everywhere", all(len(digests) == 1 for digests in bases.values()), bases)

tools = (TREE / "Dockerfile.tools").read_text()
for tool in ("curl", "jq", "unzip", "conftest", "terragrunt"):
    check(f"Dockerfile.tools: {tool}", re.search(rf"\b{tool}\b", tools))
check("git-lfs is in both", "git-lfs" in (TREE / "Dockerfile").read_text())
page = (TREE / "docs/image.md").read_text()
for name in FILES[1:]:
    check(f"docs/image.md: {name}", name in page)
check("three ways to add a cloud's program", [f.split("/")[-1] for f in FILES[2:]] == ["aws.Dockerfile", "azure.Dockerfile", "gcloud.Dockerfile"], FILES)
release = (TREE / ".github/workflows/release.yml").read_text()
check("a release has both", "Dockerfile.tools" in release and "$VERSION-tools" in release)
print(f"images: {len(PASSED)} passed, {len(FAILED)} failed{'' if there else ' (packages of Debian not looked up)'}")
sys.exit(1 if FAILED else 0)
