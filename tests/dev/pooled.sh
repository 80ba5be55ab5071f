# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Part of ./dev check: the same tests where [db] prepared=off is needed, through a PgBouncer in transaction mode, with
# a time zone that is not UTC in the programs, in Postgres and so in every session, whom nobody sets another.

ZONE=Asia/Shanghai

# with_pooler COMMAND...: inside with_stores; WB_TEST_PGPOOL tells of it. A pooler takes no settings when a session
# starts, so time-outs belong to the role, as where Weighbridge is installed.
with_pooler() (
    psql "$WB_TEST_PGURL" -XAtq -v ON_ERROR_STOP=1 -c "ALTER ROLE postgres SET statement_timeout = '5s'" \
        -c "ALTER ROLE postgres SET lock_timeout = '1251ms'" \
        -c "ALTER ROLE postgres SET idle_in_transaction_session_timeout = '10s'" \
        -c "ALTER SYSTEM SET timezone = '$ZONE'" -c 'SELECT pg_reload_conf()' >/dev/null || exit
    folder=$(mktemp -d /tmp/wbp.XXXXXX) pid='' end=$((SECONDS + 20)) status=0
    trap 'pooler_gone "$folder" "$pid"' EXIT
    "$ROOT/tests/dev/pooler.sh" "$folder" "$(psql "$WB_TEST_PGURL" -XAtqc 'SHOW unix_socket_directories')" \
        >"$WORK/pooler.log" 2>&1 </dev/null &
    pid=$!
    until [[ -S $folder/.s.PGSQL.6432 ]]; do
        if ((SECONDS > end)) || ! kill -0 "$pid" 2>/dev/null; then
            tail -n 20 "$WORK/pooler.log"
            exit 1
        fi
        sleep 0.05
    done
    WB_TEST_PGPOOL="host=$folder port=6432 user=postgres dbname=postgres" TZ=$ZONE "$@" || status=$?
    exit "$status"
)

pooler_gone() {
    [[ ! $2 ]] || kill "$2" 2>/dev/null || true
    rm -rf "$1"
}

# All of the store's suite; some of it in the stage that is always run.
stage_store_pooled() {
    local tests
    mapfile -t tests < <(list_of STORE_TESTS)
    build_store_tests || return
    BEHIND=with_pooler store_tests "$ROOT/build-check-asan" "${tests[@]}"
}

# What users see of operations, jobs and planners.
stage_e2e_pooled() {
    local files=("$ROOT"/tests/e2e/test_{calls,gallery,housekeeping,jobs,outages}.py "$ROOT"/tests/e2e/test_planner*.py)
    build_tree "$BUILD" && WB_TEST_POOLED=1 e2e "$BUILD" 'not long' "${files[@]}"
}
