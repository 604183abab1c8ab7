"""The files that `gcloud builds submit` uploads from a directory, and those that the build needs and would miss.

Source of the rules: googlecloudsdk/command_lib/util/gcloudignore.py of the Google Cloud SDK, and
https://cloud.google.com/sdk/gcloud/reference/topic/gcloudignore. A .gcloudignore is the only file that counts. Without one, the .gitignore of the
top directory counts, tracked files included; those of lower directories do not. A file below an ignored directory cannot be re-included, and a
pattern with a slash that does not begin with one matches at any depth, other than in git.
"""
import os
import re
import sys
import tomllib

DEFAULT = ".gcloudignore\n.git\n.gitignore\n"


def _pattern(line):
    """(regular expression, re-includes, directories only)"""
    again, line = line.startswith("!"), line.removeprefix("!")
    directory, line = line.endswith("/"), line.rstrip().removesuffix("/")
    anchored, text = line.startswith("/") or "**" in line, ""
    for part in line.strip("/").split("/"):
        if part == "**":
            text += "(?:.*/)?" if not text else "(?:/.*)?"
            continue
        glob = "".join({"*": "[^/]*", "?": "[^/]"}.get(c) or (c if c in "[]" else re.escape(c)) for c in part)
        text += ("" if not text or text.endswith("/)?") else "/") + glob
    return re.compile(("" if anchored else "(?:.*/)?") + text), again, directory


def _patterns(directory):
    def read(name):
        with open(os.path.join(directory, name)) as f:
            return f.read()

    text = read(".gcloudignore") if os.path.exists(os.path.join(directory, ".gcloudignore")) else DEFAULT + (
        "#!include:.gitignore\n" if os.path.exists(os.path.join(directory, ".gitignore")) else "")
    text = re.sub(r"(?m)^# ?!include:(.+)$", lambda found: read(found[1].strip()), text)
    return [_pattern(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def uploaded(directory):
    """Paths relative to the directory, sorted."""
    patterns, found = _patterns(directory), []

    def walk(below, parent):  # parent: each pattern's word on the directory, None where it has none
        for entry in sorted(os.scandir(os.path.join(directory, below)), key=lambda e: e.name):
            path, is_dir, state, words = os.path.join(below, entry.name), entry.is_dir(follow_symlinks=False), None, []
            for (regex, again, only_dir), above in zip(patterns, parent):
                word = above
                if word is None and (is_dir or not only_dir) and regex.fullmatch(path):
                    word = "include" if again else "ignore"
                words.append(word)
                state = word or state
            if state == "ignore":
                continue
            if is_dir:
                walk(path, words)
            else:
                found.append(path)

    walk("", [None] * len(patterns))
    return found


def context(files, text):
    """Those that Docker sends of them: a .dockerignore of the form that ours has, `*` and then what is let in."""
    kept = [line[1:].rstrip("/") for line in text.splitlines() if line.startswith("!")]
    assert "*" in text.splitlines() and kept, "this .dockerignore is not of the form that is understood here"
    return {f for f in files if any(f == k or f.startswith(k + "/") for k in kept)}


INCLUDE = re.compile(r'include_(?:str|bytes)!\((?:\s*concat!\()?\s*"([^"]+)"')
TEST_ONLY = re.compile(r"(^|/)tests?(/|\.rs$)|_tests?\.rs$")


def missing(directory, files):
    """What the Dockerfile's build lacks of what it names: files of COPY, included files, and those that Cargo.toml names."""
    def read(path):
        with open(os.path.join(directory, path)) as f:
            return f.read()

    lacking = [f for f in ("Dockerfile", ".dockerignore") if f not in files]
    if lacking:
        return lacking
    sent = context(files, read(".dockerignore"))
    for words in re.findall(r"(?m)^COPY ((?!--from)[^\n]+)$", read("Dockerfile")):
        lacking += [w for w in words.split()[:-1] if w != "." and w not in sent]
    manifest = tomllib.loads(read("Cargo.toml"))
    lacking += [f"benches/{b['name']}.rs" for b in manifest.get("bench", []) if f"benches/{b['name']}.rs" not in sent and f"benches/{b['name']}/main.rs" not in sent]
    lacking += [f for f in ("Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "src/main.rs", "src/lib.rs") if f not in sent]
    for source in sorted(f for f in sent if f.endswith(".rs") and not TEST_ONLY.search(f)):
        for name in INCLUDE.findall(read(source)):
            path = os.path.normpath(os.path.join(os.path.dirname(source), name))
            there = any(f.startswith(path + "/") for f in sent) if name.endswith("/") else path in sent
            if not there:
                lacking.append(path)
    return sorted(set(lacking))


if __name__ == "__main__":
    print("\n".join(uploaded(sys.argv[1])))
