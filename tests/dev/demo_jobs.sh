# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Part of ./dev: the jobs of `demo`. With a batch service ([batch] url, else the embedded one if it runs) they go the usual way.
# Without one they go to a pool of their own, `demo`, whose planner and batch service (the tests' double) run as long as the demo does.

DEMO_JOBS=(nightly-eval product-texts embeddings)

demo_jobs() {
    local pool=''
    handler_answers jobs || {
        echo 'no batch jobs: the jobs handler does not run (./dev start jobs)'
        return
    }
    default_batch_url
    if setting batch url | grep -q .; then
        leader planner >/dev/null || die 'no planner runs: ./dev start planner'
        DEMO_INPUT=$(demo_upload)
    else
        demo_own_service
        pool=demo DEMO_INPUT=file-demo
    fi
    demo_submit "$pool"
    demo_watch
    echo "what happened to ${DEMO_JOBS[0]} (GET /api/v1/jobs/${DEMO_IDS[0]}/events):"
    demo_get "/api/v1/jobs/${DEMO_IDS[0]}/events" | jq -r '.events[] | "  \(.at[11:23])  \(.to)"'
    demo_output
}

# What the lines of the first job were answered, if its batch service is one that runs them.
demo_output() {
    local file
    file=$(demo_get "/api/v1/jobs/${DEMO_IDS[0]}" | jq -r .outputDataset)
    demo_get "/v1/files/$file/content" >"$VAR/demo/output.jsonl" || return 0
    jq -e -n 'input.response.body.choices' "$VAR/demo/output.jsonl" >/dev/null 2>&1 || return 0
    echo "what came out of it (GET /v1/files/$file/content, $(wc -l <"$VAR/demo/output.jsonl") lines):"
    jq -r '"  \(.custom_id)  \(.response.body.choices[0].message.content)"' "$VAR/demo/output.jsonl" | sed -n 1,5p
}

demo_get() { curl -sS -m 10 -H "Authorization: Bearer $(<"$VAR/submitter.token")" "$DEMO_URL$1"; }

demo_upload() {
    local answer
    jq -nc 'range(1; 101) | {custom_id: "line-\(.)", method: "POST", url: "/v1/chat/completions",
        body: {model: "m", messages: [{role: "user", content: "Hello \(.)"}]}}' >"$VAR/demo/input.jsonl"
    answer=$(curl -sS -m 30 -H "Authorization: Bearer $(<"$VAR/submitter.token")" -F purpose=batch \
        -F "file=@$VAR/demo/input.jsonl" -w '\n%{http_code}' "$DEMO_URL/v1/files") || die "POST /v1/files got no answer"
    jq -er 'objects | .id' 2>/dev/null <<<"${answer%$'\n'*}" || die "the batch service took no file: POST /v1/files was answered $answer
nginx asks the one of $VAR/nginx/weighbridge/batch.conf, and reads it at ./dev reload nginx"
}

# A planner that works for the pool `demo` alone: those that run know nothing of it.
demo_own_service() {
    local line
    [[ ${WB_DEV_NO_BUILD:-} ]] || install_packages demo
    mkdir -p "$VAR/demo" "$RUN/demo"
    coproc DEMO_SERVICE { exec python3 "$ROOT/tests/fake/fake_batch_service.py"; }
    DEMO_SERVICE_IN=${DEMO_SERVICE[1]}
    IFS= read -r -u "${DEMO_SERVICE[0]}" line || die "the batch service's double did not start"
    (umask 077 && {
        awk '/^\[/ { pool = /^\[pool / } !pool' "$INI"
        printf '[pool demo]\nmax_concurrent_provisioning = 2\n'
    } >"$VAR/demo/planner.ini")
    WB_BATCH_URL=http://127.0.0.1:$(jq -r .port <<<"$line") WB_RUNTIME_DIR=$RUN/demo WB_PLANNER_POLL_S=1 WB_PLANNER_PROCESSES=1 \
        WB_PLANNER_DEFAULT_POOL='' WB_PLANNER_SOCKET='' WB_LOCAL_SLOTS=1024 \
        "$BUILD/weighbridge-planner" --config "$VAR/demo/planner.ini" </dev/null >"$VAR/log/demo-planner.log" 2>&1 &
    DEMO_PLANNER=$!
    demo_until 20 demo_is_planned || die "its planner does not work; its log is $VAR/log/demo-planner.log"
}

# demo_until SECONDS CHECK...
demo_until() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < end)) || return 1
        sleep 0.1
    done
}

demo_is_planned() { demo_get /api/v1/planner | jq -e '.pools[] | select(.name == "demo" and .leaseholder != "")' >/dev/null; }

demo_submit() { # demo_submit POOL: all of them, the last one to be cancelled
    local name answer
    DEMO_IDS=()
    for name in "${DEMO_JOBS[@]}"; do
        answer=$(jq -nc --arg n "$name" --arg f "$DEMO_INPUT" --arg p "$1" '{name: $n, input_dataset: $f,
            endpoint: "/v1/chat/completions"} + if $p == "" then {} else {resource_request: {provider_config: {pool: $p}}} end' |
            curl -sS -m 10 -X POST -H "Authorization: Bearer $(<"$VAR/submitter.token")" -H 'Content-Type: application/json' \
                --data-binary @- "$DEMO_URL/api/v1/jobs")
        DEMO_IDS+=("$(jq -er .id <<<"$answer")") || die "a job was answered $answer"
    done
    echo "submitted ${#DEMO_IDS[@]} batch jobs (POST /api/v1/jobs); to watch one from elsewhere:"
    echo "  curl -s -H \"Authorization: Bearer \$(cat $(quoted "$VAR/viewer.token"))\" $DEMO_URL/api/v1/jobs/${DEMO_IDS[0]}"
}

# A line whenever something moves; once the last job runs it is cancelled.
demo_watch() {
    local now='' seen='' end=$((SECONDS + 120)) cancelled=''
    until [[ $seen ]] && ! grep -qEv ' (completed|failed|expired|cancelled|resource_failed|submit_failed) ' <<<"$seen"; do
        ((SECONDS < end)) || die 'the jobs do not end'
        now=$(demo_states)
        [[ $now == "$seen" ]] || diff --changed-group-format='%>' --unchanged-group-format='' <(printf '%s\n' "$seen") <(printf '%s\n' "$now") || true
        seen=$now
        if [[ ! $cancelled ]] && grep -Eq "^  ${DEMO_JOBS[-1]} +(scheduling|validating|in_progress) " <<<"$seen"; then
            curl -sS -m 10 -o /dev/null -X POST -H "Authorization: Bearer $(<"$VAR/submitter.token")" "$DEMO_URL/api/v1/jobs/${DEMO_IDS[-1]}/cancel"
            echo "  cancelled ${DEMO_JOBS[-1]} (POST /api/v1/jobs/${DEMO_IDS[-1]}/cancel)"
            cancelled=1
        fi
        sleep 0.1
    done
}

demo_states() {
    local i
    for i in "${!DEMO_IDS[@]}"; do
        demo_get "/api/v1/jobs/${DEMO_IDS[i]}" | jq -r --arg n "${DEMO_JOBS[i]}" '.requestCounts as $c |
            "  \($n)\(" " * (16 - ($n | length)))\(.status)\(" " * (20 - (.status | length)))" +
            (if $c then "\($c.completed) of \($c.total)" else "" end)'
    done
}

demo_jobs_tidy() {
    if [[ ${DEMO_PLANNER:-} ]]; then
        kill "$DEMO_PLANNER" 2>/dev/null || true
        wait "$DEMO_PLANNER" 2>/dev/null || true
    fi
    # The double ends with its standard input.
    if [[ ${DEMO_SERVICE_IN:-} ]]; then exec {DEMO_SERVICE_IN}>&-; fi
}
