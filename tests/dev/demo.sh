# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Part of ./dev: `demo` copies a real folder while it reports, as a program that stages a model would, and shows
# what a poll sees meanwhile; then demo_artifact.sh and the jobs of demo_jobs.sh. Calls as in docs/openapi.yaml and openapi-jobs.yaml.

DEMO_KEY=demo-model

cmd_demo() {
    find_places
    { [[ -s $VAR/worker.token ]] && healthy; } || die 'nothing runs here: ./dev up'
    DEMO_URL=http://127.0.0.1:$(port)
    local source=${1:-$VAR/demo/source} target=$VAR/demo/copy copier
    [[ $# -gt 0 ]] || demo_files "$source"
    [[ -d $source ]] || die "$source is no folder"
    mapfile -t DEMO_FILES < <(find "$source" -type f -size +0 | sort)
    ((${#DEMO_FILES[@]})) || die "$source has no files"
    trap demo_tidy EXIT
    trap 'exit 130' INT TERM HUP
    demo_claim
    # Not before the claim: a demo that is refused leaves the other's folder alone.
    rm -rf "$target"
    mkdir -p "$target"
    echo "claimed $DEMO_KEY; copying ${#DEMO_FILES[@]} files from $source to $target"
    demo_copy "$target" &
    copier=$!
    DEMO_COPIER=$copier
    while kill -0 "$copier" 2>/dev/null; do
        demo_show "staging:$DEMO_KEY" 'of this file'
        sleep 1
    done
    DEMO_COPIER=
    wait "$copier" || die 'the copy failed'
    demo_release
    DEMO_TOKEN=
    echo 'copied and reported as loaded (DELETE); the poll now says:'
    demo_poll
    echo
    [[ $(demo_poll | jq --arg id "staging:$DEMO_KEY" '[.operations[] | select(.id == $id)] | length') == 0 ]] ||
        die 'the entry is still there'
    echo 'the entry is gone'
    demo_artifact "$source"
    demo_jobs
}

# What fails here must neither change the exit status nor keep the rest from being done.
demo_tidy() {
    [[ ! ${DEMO_COPIER:-} ]] || kill "$DEMO_COPIER" 2>/dev/null || true
    [[ ! ${DEMO_TOKEN:-} ]] || (demo_release) || true
    demo_jobs_tidy
}

demo_release() {
    demo_call DELETE "/api/v1/load-jobs/$DEMO_KEY" "$(jq -nc --arg t "$DEMO_TOKEN" '{claim_token: $t}')" >/dev/null
}

demo_files() {
    local i size=(20 14 12 10 8)
    mkdir -p "$1"
    for i in 0 1 2 3 4; do
        [[ -s $1/model-0000$((i + 1)).safetensors ]] ||
            head -c $((size[i] << 20)) /dev/urandom >"$1/model-0000$((i + 1)).safetensors"
    done
}

# demo_call METHOD PATH BODY: prints the answer's body; an answer that is no success ends the demo.
demo_call() {
    local out code
    out=$(curl -sS -m 10 -X "$1" -H "Authorization: Bearer $(<"$VAR/worker.token")" -H 'Content-Type: application/json' \
        --data-binary "$3" -w '\n%{http_code}' "$DEMO_URL$2") || die "$1 $2 got no answer"
    code=${out##*$'\n'}
    [[ $code == 2?? ]] || die "$1 $2 was answered $out"
    printf '%s' "${out%$'\n'*}"
}

demo_poll() { curl -sS -m 10 -H "Authorization: Bearer $(<"$VAR/viewer.token")" "$DEMO_URL/api/operations"; }

demo_claim() {
    local answer
    answer=$(demo_call POST "/api/v1/load-jobs/$DEMO_KEY/claim" "$(jq -nc --arg o "demo-$$" '{owner: $o}')")
    DEMO_TOKEN=$(jq -r '.claim_token // empty' <<<"$answer")
    [[ $DEMO_TOKEN ]] || die "somebody else is loading $DEMO_KEY (an earlier demo that was cut short counts as gone after a minute)"
}

# Four MiB at a time, and not faster than one can watch.
demo_copy() {
    local file size sent n=0 step=$((4 << 20))
    for file in "${DEMO_FILES[@]}"; do
        n=$((n + 1)) sent=0
        size=$(stat -c %s "$file")
        : >"$1/$n.${file##*/}"
        demo_report "$n" 0 "$size"
        while ((sent < size)); do
            dd if="$file" of="$1/$n.${file##*/}" bs="$step" iflag=skip_bytes oflag=seek_bytes skip="$sent" seek="$sent" \
                count=1 conv=notrunc status=none
            sent=$((sent + step < size ? sent + step : size))
            demo_report "$n" "$sent" "$size"
            sleep 0.5
        done
        cmp -s "$file" "$1/$n.${file##*/}" || die "$file was copied wrong"
    done
}

demo_report() {
    demo_call PUT "/api/v1/load-jobs/$DEMO_KEY" "$(jq -nc --arg t "$DEMO_TOKEN" --argjson i "$1" --argjson sent "$2" \
        --argjson total "$3" --argjson n ${#DEMO_FILES[@]} '{claim_token: $t, state: "staging", node_id: "node-1",
        node_name: "gpu-node-1", bytes_sent: $sent, total_bytes: $total, file_index: $i, total_files: $n}')" >/dev/null
}

demo_show() { # demo_show ID WHAT: a line for that operation
    demo_poll | jq -r --arg id "$1" --arg what "$2" '
        .operations[] | select(.id == $id) |
        "\(.progress)" as $p |
        "\("   "[($p | length):])\($p) %  [\("#" * (.progress / 2.5 | floor) // "")\("." * (40 - (.progress / 2.5 | floor)) // "")]  " +
        "\(.nodeName)  \((.currentBytes // 0) / 1048576 | floor) of \((.totalBytes // 0) / 1048576 | floor) MiB \($what)"'
}
