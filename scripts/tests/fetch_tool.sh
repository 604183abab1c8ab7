#!/usr/bin/env bash
# scripts/fetch-tool against a release server of our own with a key of our own: what is good is taken, what is not is refused.
set -euo pipefail
cd "$(dirname "$0")/../.."
passed=0 failed=0
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
for tool in gpg gpgv curl unzip python3; do
    command -v "$tool" >/dev/null || { echo "fetch_tool: $tool is missing, nothing tried"; exit 1; }
done

gpg="gpg --batch --quiet --homedir $work/gnupg"
mkdir -m 0700 "$work/gnupg"
$gpg --passphrase '' --quick-gen-key 'Release <release@example.com>' default sign never 2>/dev/null
$gpg --passphrase '' --quick-gen-key 'Stranger <stranger@example.com>' default sign never 2>/dev/null
$gpg --armor --export release@example.com > "$work/key.asc"
$gpg --armor --export stranger@example.com > "$work/stranger.asc"

mkdir -p "$work/site/1.2.3"
python3 - "$work/site/1.2.3/terraform_1.2.3_linux_amd64.zip" <<'PY'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.writestr("terraform", "#!/bin/sh\necho Terraform v1.2.3\n")
    z.writestr("LICENSE.txt", "x")
PY
cd "$work/site/1.2.3"
sha256sum terraform_1.2.3_linux_amd64.zip > terraform_1.2.3_SHA256SUMS
$gpg --local-user release@example.com --detach-sign --output terraform_1.2.3_SHA256SUMS.sig terraform_1.2.3_SHA256SUMS
sum=$(cut -d' ' -f1 terraform_1.2.3_SHA256SUMS)
cd - >/dev/null
mkdir "$work/site/v1.2.3"
printf '#!/bin/sh\necho Terragrunt\n' > "$work/site/v1.2.3/terragrunt_linux_amd64"
printf '#!/bin/sh\necho Conftest\n' > "$work/conftest"
tar --create --gzip --directory "$work" --file "$work/site/v1.2.3/conftest_1.2.3_Linux_x86_64.tar.gz" conftest
unsigned_sum() { sha256sum "$work/site/v1.2.3/$1" | cut -d' ' -f1; }

(cd "$work/site" && exec python3 -u -c '
import functools, http.server, sys
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
print(s.server_address[1], flush=True)
s.serve_forever()') > "$work/port" &
server=$!
while [ ! -s "$work/port" ]; do kill -0 "$server"; sleep 0.1; done
BASE_URL=http://127.0.0.1:$(cat "$work/port")
export BASE_URL

# try NAME WANTED-CODE WANTED-TEXT ARGUMENTS…
try() {
    local name=$1 code=$2 text=$3 got=0
    shift 3
    scripts/fetch-tool "$@" > "$work/out" 2>&1 || got=$?
    if [ "$got" = "$code" ] && grep -qF -- "$text" "$work/out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED %s: code %s, said: %s\n' "$name" "$got" "$(cat "$work/out")"
    fi
}

try "a signed release is taken" 0 "signature and sum are right" terraform 1.2.3 "$sum" "$work/key.asc" "$work/bin"
[ "$("$work/bin/terraform")" = "Terraform v1.2.3" ] || { failed=$((failed + 1)); echo "FAILED it does not run"; }
[ ! -e "$work/bin/LICENSE.txt" ] || { failed=$((failed + 1)); echo "FAILED more than the tool was unpacked"; }
try "a stranger's signature is refused" 1 "is not signed by the key" terraform 1.2.3 "$sum" "$work/stranger.asc" "$work/bin"
try "another sum than the one written down is refused" 1 "not the one that is written down" \
    terraform 1.2.3 "$(printf '%064d' 0)" "$work/key.asc" "$work/bin"
try "a version that is not there is named" 1 "cannot get $BASE_URL/9.9.9/terraform_9.9.9_linux_amd64.zip" \
    terraform 9.9.9 "" "$work/key.asc" "$work/bin"
TARGETARCH=arm64 try "another processor has a zip of its own" 1 "cannot get $BASE_URL/1.2.3/terraform_1.2.3_linux_arm64.zip" \
    terraform 1.2.3 "" "$work/key.asc" "$work/bin"
for tool in conftest:conftest_1.2.3_Linux_x86_64.tar.gz terragrunt:terragrunt_linux_amd64; do
    try "${tool%:*}: the one that is written down is taken" 0 "the sum is right" "${tool%:*}" 1.2.3 "$(unsigned_sum "${tool#*:}")" "" "$work/bin"
    [ "$("$work/bin/${tool%:*}" | tr '[:upper:]' '[:lower:]')" = "${tool%:*}" ] || { failed=$((failed + 1)); echo "FAILED ${tool%:*} does not run"; }
    try "${tool%:*}: another one is refused" 1 "is not the one that is written down" "${tool%:*}" 1.2.3 "$(printf '%064d' 0)" "" "$work/other"
    try "${tool%:*}: none is taken without a sum" 1 "its SHA256 is needed" "${tool%:*}" 1.2.3 "" "" "$work/other"
done
[ ! -e "$work/other" ] || { failed=$((failed + 1)); echo "FAILED what was refused is there"; }
TARGETARCH=arm64 try "conftest for another processor" 1 "cannot get $BASE_URL/v1.2.3/conftest_1.2.3_Linux_arm64.tar.gz" conftest 1.2.3 "$sum" "" "$work/bin"
printf 'x' >> "$work/site/1.2.3/terraform_1.2.3_linux_amd64.zip"
try "a changed zip is refused" 1 "is not what terraform_1.2.3_SHA256SUMS says" terraform 1.2.3 "" "$work/key.asc" "$work/bin"
printf '\n' >> "$work/site/1.2.3/terraform_1.2.3_SHA256SUMS"
try "a changed list is refused" 1 "is not signed by the key" terraform 1.2.3 "" "$work/key.asc" "$work/bin"
try "another tool is refused" 1 "no such tool" packer 1.2.3 "" "$work/key.asc" "$work/bin"

printf 'fetch_tool: %s passed, %s failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
