# shellcheck shell=bash disable=SC2034
# What scripts/deploy and scripts/destroy share: words, steps, and the way commands are run.
#
# Rules that hold in both: a secret goes by standard input and is in no argument, no file of ours and no log; what changes something
# goes through `change`, so that --dry-run only shows it; every fault says what mends it.

umask 077
# gcloud asks on standard error whether to switch an API on; where that is not shown, it would seem to hang.
export CLOUDSDK_CORE_DISABLE_PROMPTS=1
program=$(basename "$0")
dry_run=no faults=0 assume_yes=no
poll_seconds=${POLL_SECONDS:-15}
work='' # where choices, steps and Terraform's files of this server lie; set by both

say() { printf '%s\n' "$*"; }
step() { printf '\n== %s\n' "$*"; }
note() { printf '   %s\n' "$*"; }

# fault MESSAGE MEND: collected, so that one run names them all.
fault() {
    faults=$((faults + 1))
    printf '   FAULT: %s\n   mend:  %s\n' "$1" "$2"
}

stop_if_faulty() {
    if [ "$faults" -gt 0 ]; then
        printf '\n%s: %s fault(s). Mend them and run the same command again.\n' "$program" "$faults"
        exit 1
    fi
}

fail() {
    fault "$1" "$2"
    stop_if_faulty
}

# change COMMAND…: runs what changes something, or shows it.
change() {
    if [ "$dry_run" = yes ]; then
        printf '   would run: %s\n' "$*"
    else
        "$@"
    fi
}

confirm() {
    [ "$assume_yes" = yes ] && return 0
    [ -t 0 ] || fail "nobody is there to answer: $1" "run it in a terminal, or give --yes"
    local answer
    read -r -p "$1 [y/N] " answer
    case $answer in [yY] | [yY][eE][sS]) return 0 ;; *) return 1 ;; esac
}

# A line in the state file says that a step was done, with these inputs.
mark() { [ "$dry_run" = yes ] || printf '%s %s\n' "$1" "$2" >> "$work/steps"; }
marked() { [ -f "$work/steps" ] && grep -qxF "$1 $2" "$work/steps"; }

fingerprint() { printf '%s' "$*" | openssl dgst -sha256 | sed 's/.* //'; }

# json TEXT: as a JSON string.
json() {
    local text=${1//\\/\\\\}
    text=${text//\"/\\\"} text=${text//$'\n'/\\n}
    printf '"%s"' "${text//$'\t'/\\t}"
}

# json_list TEXT…: as a JSON list.
json_list() {
    local first=yes item
    printf '['
    for item in "$@"; do
        [ "$first" = yes ] || printf ', '
        first=no
        json "$item"
    done
    printf ']'
}

find_terraform() {
    if [ -n "${TERRAFORM:-}" ]; then return; fi
    if command -v terraform >/dev/null; then TERRAFORM=terraform; elif command -v tofu >/dev/null; then TERRAFORM=tofu; fi
}

# left WORDS: what is still to be done by hand, shown at the end.
left_to_do=()
left() { left_to_do+=("$1"); }

show_what_is_left() {
    local each
    [ ${#left_to_do[@]} -gt 0 ] || return 0
    printf '\nLeft to do:\n'
    for each in "${left_to_do[@]}"; do printf '   - %s\n' "$each"; done
}

tf() { "$TERRAFORM" -chdir="$work" "$@"; }
