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

# What was made, granted or switched on moments ago is not known everywhere at once. Google's words for that are in not-ready.txt; they are
# waited for, up to so many minutes for each command.
retry_minutes=10
not_ready_words=$(grep -v '^#' "$(dirname "${BASH_SOURCE[0]}")/not-ready.txt" | paste -sd '|' -)

# not_ready LOG: whether these are among what was said.
not_ready() { grep -qE "$not_ready_words" "$1"; }

# pause LOG: waits before another try, and says why each minute; 1 when that took too long. The caller has `waited`, seconds so far.
pause() {
    [ "$waited" -lt $((retry_minutes * 60)) ] || return 1
    [ $((waited % 60)) -ne 0 ] || note "not known everywhere yet, trying again: $(grep -E "$not_ready_words" "$1" | head -n 1 | cut -c 1-200)"
    sleep "$poll_seconds"
    waited=$((waited + (poll_seconds > 0 ? poll_seconds : 60)))
}

# patient COMMAND…: again, as long as it is only too early; shows what was said when it is refused.
patient() {
    local waited=0 code said=$work/said.log
    while :; do
        code=0
        "$@" >"$said" 2>&1 || code=$?
        [ "$code" != 0 ] || return 0
        if ! not_ready "$said" || ! pause "$said"; then
            cat "$said"
            return "$code"
        fi
    done
}

# look COMMAND…: shows what is there, or returns 4 where it is not. Any other refusal ends the run: what cannot be read must not be made anew.
# In a command substitution it ends that, and the caller has to go too: value=$(look …) || exit 1.
look() {
    local waited=0 code said=$work/look.log answer
    while :; do
        code=0
        answer=$("$@" 2>"$said") || code=$?
        if [ "$code" = 0 ]; then
            printf '%s' "$answer"
            return 0
        fi
        if not_ready "$said"; then
            [ "$dry_run" = no ] || return 4
            if pause "$said" >&2; then continue; fi
        elif grep -qiE 'not.found|404|cannot find|unknown service account' "$said"; then
            return 4
        fi
        cat "$said" >&2
        fail "$(plain "$@") cannot be read" "see above; then run this again" >&2
    done
}

# plain COMMAND…: its words, without flags.
plain() {
    local word words=''
    for word in "$@"; do case $word in -*) ;; *) words+="${words:+ }$word" ;; esac; done
    printf '%s' "$words"
}

# change COMMAND…: runs what changes something, or shows it. Commands of gcloud are repeated while it is only too early for them.
change() {
    if [ "$dry_run" = yes ]; then
        printf '   would run: %s\n' "$*"
    elif [ "$1" = gcloud ]; then
        note "$(plain "$@")"
        patient "$@" || fail "$(plain "$@") was refused" "mend what it says above, then run this again; it goes on from there"
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

# unlock LOG: whether a lock stood in the way that a run of ours left, which is gone now. Two runs of this script never work at once here;
# the lock of somebody else, or of another machine, is his to take away.
unlock() {
    local id who
    grep -q 'Error acquiring the state lock' "$1" || return 1
    id=$(sed -n 's/^[^A-Za-z]*ID: *\([^ ]*\).*/\1/p' "$1" | head -n 1) who=$(sed -n 's/^[^A-Za-z]*Who: *\([^ ]*\).*/\1/p' "$1" | head -n 1)
    if [ -z "$id" ] || [ "$who" != "$(id -un)@$(hostname)" ]; then
        fail "Terraform's state is locked by ${who:-somebody}" "wait for that run; if it is gone for good: $TERRAFORM -chdir=$work force-unlock ${id:-ID}"
    fi
    note "a run of ours left its lock; taking it away"
    tf force-unlock -force "$id" >/dev/null
}
