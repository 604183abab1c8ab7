#!/usr/bin/env bash
# What a release is made with, tried on a copy: its notes, its files, the placeholder of its image, and what the package names.
set -euo pipefail
cd "$(dirname "$0")/../.."
passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/scripts"
cp scripts/release-notes scripts/package-files "$work/scripts"

# try NAME WANTED-CODE WANTED-TEXT COMMAND…
try() {
    local name=$1 code=$2 text=$3 got=0
    shift 3
    "$@" > "$work/out" 2>&1 || got=$?
    if [ "$got" = "$code" ] && { [ -z "$text" ] || grep -qF -- "$text" "$work/out"; }; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED %s: code %s, said: %s\n' "$name" "$got" "$(cat "$work/out")"
    fi
}

printf '[workspace.package]\nversion = "1.2.3"\n\n[package]\nname = "x"\nversion = "9"\n' > "$work/Cargo.toml"
printf '# Changelog\n\n## Unreleased\n\n- Later.\n\n## 1.2.3 (2026-12-01)\n\n- Now.\n\n## 1.2\n\n- Before.\n' > "$work/CHANGELOG.md"
try "the notes are the version's section" 0 "- Now." "$work/scripts/release-notes" v1.2.3
[ "$(cat "$work/out")" = "- Now." ] || { failed=$((failed + 1)); echo "FAILED the notes have more: $(cat "$work/out")"; }
try "a tag of another version is refused" 1 "the tag is for 1.2.4, Cargo.toml is 1.2.3" "$work/scripts/release-notes" v1.2.4
try "a tag that is no version is refused" 1 "is no tag of a release" "$work/scripts/release-notes" 1.2.3
sed -i 's/1\.2\.3/1x2x3/' "$work/CHANGELOG.md"
try "a changelog without the version is refused" 1 'no section "## 1.2.3"' "$work/scripts/release-notes" v1.2.3

try "a tag is no record of an image" 1 "a tag could be moved" scripts/release-artifacts 1.2.3 ghcr.io/acme/tidelock:1.2.3 "$work"
# One placeholder, which is never replaced here: a release writes its digest into what it publishes.
try "the repository names the placeholder" 0 "" grep -qxF "ghcr.io/example/tidelock@sha256:$(printf '%064d' 0)" terraform/released-image.txt
try "each name of the image is the placeholder's" 1 "" bash -c "git grep -hoE 'ghcr.io/[a-zA-Z]+/tidelock[@:][a-z0-9:.]+' -- terraform/examples kubernetes charts \
    | grep -vxF 'ghcr.io/example/tidelock@sha256:$(printf '%064d' 0)'"

printf '#!/bin/sh\necho "$@"\n' > "$work/program"
chmod +x "$work/program"
try "manual pages and completions are written" 0 "" scripts/package-files "$work/program" "$work/package"
printf '#!/bin/sh\nexit 0\n' > "$work/program"
try "an empty one is noticed" 1 "is empty" scripts/package-files "$work/program" "$work/none"
# Each file that Cargo.toml puts into the Debian package is in the tree, or made by package-files; the program itself is built.
while IFS= read -r file; do
    try "the package's $file is there" 0 "" bash -c "ls ${file/#target\/package/"$work/package"}"
done < <(sed -n '/^\[package.metadata.deb\]/,/^\[\[/s/^    \["\([^"]*\)".*/\1/p' Cargo.toml | grep -v '^target/release/')
[ "$passed" -ge 15 ] || { failed=$((failed + 1)); echo "FAILED the package's files were not found in Cargo.toml"; }
mkdir "$work/dist"
for arch in arm64 amd64; do echo "$arch" > "$work/dist/tidelock-1.2.3-macos-$arch.tar.gz"; done
formula() { scripts/homebrew-formula acme/tidelock 1.2.3 "$work/dist"; }
for arch in arm64 amd64; do
    try "the formula has the archive for $arch" 0 "download/v1.2.3/tidelock-1.2.3-macos-$arch.tar.gz" formula
    try "the formula has its sum ($arch)" 0 "$(echo "$arch" | sha256sum | cut -d ' ' -f 1)" formula
done
if command -v ruby > /dev/null; then
    formula > "$work/tidelock.rb"
    try "Ruby takes the formula" 0 "Syntax OK" ruby -c "$work/tidelock.rb"
fi
rm "$work/dist/tidelock-1.2.3-macos-arm64.tar.gz"
try "a formula without an archive is none" 1 "there is no" formula
if command -v systemd-analyze > /dev/null; then
    sed "s#/usr/bin/tidelock#$(command -v true)#" packaging/tidelock.service > "$work/tidelock.service"
    try "systemd takes the unit" 0 "" systemd-analyze verify --man=no "$work/tidelock.service"
    [ ! -s "$work/out" ] || { failed=$((failed + 1)); echo "FAILED systemd says: $(cat "$work/out")"; }
fi

# What zizmor lets pass where it is written out: every action by its commit with its version beside, no token left in a checkout, no right
# but those that a job names.
for each in .github/workflows/*.yml; do
    try "$each gives no right to all jobs" 0 "permissions: {}" grep -E '^permissions:' "$each"
    try "$each pins its actions" 1 "" grep -vE 'uses: (\./|[a-z-]+/[a-z-]+@[0-9a-f]{40} # v[0-9]+\.[0-9]+\.[0-9]+$)' <(grep 'uses:' "$each")
    [ "$(grep -c 'uses: actions/checkout@' "$each")" = "$(grep -c 'persist-credentials: false' "$each")" ] \
        || { failed=$((failed + 1)); echo "FAILED $each leaves a token in a checkout"; }
done

printf 'release: %s passed, %s failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
