#!/usr/bin/env python3
"""Three releases played on a clone, as docs/install.md says how to make one: each artifact names exactly that release, and the fake cloud gets it."""
import os
import re
import shutil
import subprocess
import tarfile

import deploy
from deploy import FLAGS, TEMP, Place

HELM, KUSTOMIZE = os.environ["HELM"], os.environ["KUSTOMIZE"]
RELEASES = {"0.1.0": "a", "0.1.1": "b", "0.2.0": "c"}
NAME = "ghcr.io/acme/tidelock"
MIRROR = """
resources: [%s/kubernetes/overlays/%s]
images: [{name: ghcr.io/acme/tidelock, newName: mirror.acme.test/tidelock}]
"""


def sh(*command, cwd=None, code=0, **more):
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, env={**os.environ, **more})
    assert done.returncode == code, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def main():
    main_line = deploy.clone(TEMP / "main")
    git = ("git", "-C", main_line, "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false")
    sh("git", "init", "-q", main_line)
    sh(*git, "add", "--all")
    sh(*git, "commit", "-qm", "Begin")
    place, flags, out = Place(), [f for f in FLAGS if f != "--build"], TEMP / "out"
    chart = main_line / "charts/tidelock"
    least = ("--kube-version=1.34.0", "--set", "orgAllowlist=github.com/acme/*,ingress.host=tf.acme.test")
    for version, letter in RELEASES.items():
        digest = "sha256:" + letter * 64
        for file, old, new in (("CHANGELOG.md", "## Unreleased", f"## Unreleased\n\n## {version}\n\n- This.\n"),
                               ("Cargo.toml", r'(?m)(\[workspace\.package\]\n(?:.*\n)*?version = )"[^"]*"', rf'\1"{version}"')):
            text, count = re.subn(old, new, (main_line / file).read_text(), count=1)
            assert count == 1, file
            (main_line / file).write_text(text)
        sh(*git, "commit", "-qam", f"Release {version}")
        sh(*git, "tag", f"v{version}")
        sh(main_line / "scripts/release-notes", f"v{version}")
        sh(main_line / "scripts/release-artifacts", version, f"{NAME}@{digest}", out)
        assert sh(*git, "status", "--porcelain") == "", "main was changed"

        # Each names this release, and no other image of ours.
        names = [f"tidelock-{kind}-{version}.tar.gz" for kind in ("terraform", "deploy", "kubernetes")] + [f"tidelock-{version}.tgz"]
        files = TEMP / version
        for name in names:
            with tarfile.open(out / name) as archive:
                archive.extractall(files / name, filter="data")
        text = "\n".join(f.read_text() for f in files.rglob("*") if f.is_file())
        assert set(re.findall(r"(?<!other\.)ghcr\.io/[a-z]+/tidelock[@:][a-z0-9.:]+", text)) == {f"{NAME}@{digest}"}, "another image"
        assert "ghcr.io/example" not in text

        module, kubernetes = files / names[0], files / names[2] / f"tidelock-kubernetes-{version}"
        assert (module / "main.tf").exists() and (module / "released-image.txt").read_text() == f"{NAME}@{digest}\n"
        rendered = sh(HELM, "template", "tidelock", out / names[3], *least)
        assert f'image: "{NAME}@{digest}"' in rendered and f"app.kubernetes.io/version: \"{version}\"" in rendered.replace(f": {version}\n", f': "{version}"\n'), rendered
        assert "mirror.acme.test/tidelock:v9" in sh(HELM, "template", "tidelock", out / names[3], *least, "--set", "image.repository=mirror.acme.test/tidelock,image.tag=v9")
        assert f"mirror.acme.test/tidelock@{digest}" in sh(HELM, "template", "tidelock", out / names[3], *least, "--set", "image.repository=mirror.acme.test/tidelock")
        for overlay in ("bucket", "volume"):
            assert f"image: {NAME}@{digest}" in sh(KUSTOMIZE, "build", kubernetes / "kubernetes/overlays" / overlay)
            # An overlay of an operator, written once for the name of a release, keeps its mirror.
            own = TEMP / f"own-{version}-{overlay}"
            own.mkdir()
            (own / "kustomization.yaml").write_text(MIRROR % (os.path.relpath(kubernetes, own), overlay))
            assert f"image: mirror.acme.test/tidelock@{digest}" in sh(KUSTOMIZE, "build", own)
        assert "europe-docker.pkg.dev/project/tidelock/tidelock@sha256:1111" in sh(KUSTOMIZE, "build", kubernetes / "kubernetes/examples/gke")
        assert "registry.contoso.com/platform/tidelock@sha256:2222" in sh(KUSTOMIZE, "build", kubernetes / "examples/azure-devops-kubernetes/deployment")

        # The first one makes everything, each later one is a rollout and nothing else.
        script = files / names[1] / f"tidelock-deploy-{version}/scripts/deploy"
        place.run(*flags, script=script)
        assert place.settings()["image"] == f"{NAME}@{digest}" and place.settings()["registry"] == {"kind": "pull_through"}, place.settings()
        assert not any("build" in c for c in place.changes()), place.changes()
        assert version == "0.1.0" or [c.split()[1] for c in place.changes()] == ["apply"], place.changes()
        place.run(*flags, script=script)
        assert place.changes() == [], place.changes()
    place.run(*flags, "--build", script=script, code=1).says("--build needs the source")
    # Back to the release before, from its archive.
    place.run(*flags, script=TEMP / "0.1.1/tidelock-deploy-0.1.1.tar.gz/tidelock-deploy-0.1.1/scripts/deploy")
    assert place.settings()["image"] == f"{NAME}@sha256:{'b' * 64}"
    # A checkout, of a tag as well, has no image: it is built from it, and the chart says that it is none.
    place.run(*flags, script=main_line / "scripts/deploy").says("this checkout is of no release")
    assert "-build/tidelock@sha256:" in place.settings()["image"]
    assert "names no released image" in sh(HELM, "template", "tidelock", chart, *least, code=1)
    print("releases: 3 passed, 0 failed")


if __name__ == "__main__":
    try:
        main()
    finally:
        shutil.rmtree(TEMP, ignore_errors=True)
