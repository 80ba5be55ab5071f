# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2030,SC2031
# Settings of a stage end with its subshell.
# Part of ./dev: `check`, every test in stages. A stage is a function that prints its output and notes what it
# counted with `count`; one that ends badly without having counted a failure counts as one.

# shellcheck source=tests/dev/pooled.sh
. "$ROOT/tests/dev/pooled.sh"

PASSED=0 FAILED=0 SKIPPED=0
THREAD_TESTS="test_fcgi_set test_snapshot test_supervisor test_wait test_breaker test_metrics test_log test_jx test_crew"

cmd_check() {
    local long=''
    case ${1:-} in
        --long) long=1 ;;
        '') ;;
        *) die "check takes --long or nothing" ;;
    esac
    [[ ${WB_DEV_NO_BUILD:-} ]] || install_packages check
    WORK=$(mktemp -d /tmp/wbc.XXXXXX)
    trap check_tidy EXIT
    trap 'exit 130' INT TERM HUP
    stage lint 3 stage_lint
    stage unit-asan 5 stage_asan
    stage unit-tsan 3 stage_tsan
    stage store 4 stage_store
    stage e2e 12 stage_e2e
    if [[ $long ]]; then
        stage store-pooled 5 stage_store_pooled
        stage e2e-pooled 8 stage_e2e_pooled
        stage distcheck 10 stage_distcheck
        stage coverage 12 stage_coverage
        stage analyzer 15 stage_analyzer
        stage fuzz "$(fuzz_minutes)" stage_fuzz
        stage e2e-long 60 stage_e2e_long
    fi
    printf '%s passed, %s failed' "$PASSED" "$FAILED"
    ((SKIPPED)) && printf ', %s skipped' "$SKIPPED"
    printf '\n'
    ((FAILED == 0))
}

# Whatever a test left running in our folder ends with us.
check_tidy() {
    local ini
    while IFS= read -r ini; do
        WB_DEV_VAR=${ini%/weighbridge.ini} "$ROOT/dev" down --wipe || true
    done < <(find "$WORK" -name weighbridge.ini 2>/dev/null)
    rm -rf "$WORK"
}

count() {
    PASSED=$((PASSED + $1)) FAILED=$((FAILED + $2)) SKIPPED=$((SKIPPED + ${3:-0}))
}

# stage NAME MINUTES FUNCTION
stage() {
    local name=$1 minutes=$2 began=$SECONDS passed=$PASSED failed=$FAILED skipped=$SKIPPED status=0 note=
    printf '\n== %s (budget %s min)\n' "$name" "$minutes"
    LIMIT=$((minutes * 180)) # a hang guard, generous for slow machines
    "$3" || status=$?
    ((status == 0 || FAILED > failed)) || {
        count 0 1
        printf '%s ended with status %s\n' "$name" "$status"
    }
    ((SECONDS - began <= minutes * 60)) || note=', OVER BUDGET'
    printf '== %s: %s passed, %s failed, %s skipped in %s s%s\n' "$name" $((PASSED - passed)) $((FAILED - failed)) \
        $((SKIPPED - skipped)) $((SECONDS - began)) "$note"
}

# Counts the tests of one cmocka program from its log; a program that failed without naming a test is one failure.
count_program() { # NAME STATUS LOG
    local passed failed skipped
    passed=$(sum_of 'PASSED' "$3")
    failed=$(sum_of 'FAILED' "$3")
    skipped=$(sum_of 'SKIPPED' "$3")
    if (($2 == 77)); then
        count 0 0 1
        return
    fi
    (($2 == 0 || failed > 0)) || failed=1
    (($2 != 0 || passed + skipped > 0)) || passed=1
    count "$passed" "$failed" "$skipped"
    ((failed == 0)) || {
        printf -- '-- %s (status %s)\n' "$1" "$2"
        grep -E -A 3 '^\[  (ERROR|FAILED)|: error: |ERROR: |runtime error' "$3" | head -n 40 || true
        echo '   ...'
        tail -n 25 "$3"
    }
}

sum_of() { sed -n "s/^\[ *$1 *\] \([0-9][0-9]*\) test.*/\1/p" "$2" | awk '{ n += $1 } END { print n + 0 }'; }

# What `make check` left: one .trs and .log for each program.
count_make_check() { # BUILD FOLDER
    local trs status
    while IFS= read -r trs; do
        case $(sed -n 's/^:test-result: *\([A-Z]*\).*/\1/p' "$trs" | sort -u | tr '\n' ' ') in
            'PASS ' | 'XFAIL ') status=0 ;;
            'SKIP ') status=77 ;;
            *) status=1 ;;
        esac
        count_program "$(basename "$trs" .trs)" "$status" "${trs%.trs}.log"
    done < <(find "$1" -name '*.trs' | sort)
}

list_of() { # STORE_TESTS and the like from tests/tests.am, one a line
    awk -v name="$1" '$1 == name { on = 1; sub(/^[^=]*=/, "") } on { more = sub(/\\$/, ""); for (i = 1; i <= NF; i++) print $i; if (!more) exit }' \
        "$ROOT/tests/tests.am"
}

stage_lint() {
    [[ -x $ROOT/tests/lint/run.sh ]] || {
        echo 'tests/lint/run.sh is missing'
        return 1
    }
    local status=0 last
    timeout "$LIMIT" "$ROOT/tests/lint/run.sh" >"$WORK/lint.log" 2>&1 </dev/null || status=$?
    last=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$WORK/lint.log" | tail -n 1) || last=
    ((status == 0)) || head -n 400 "$WORK/lint.log"
    grep -E '^(ok|FAIL|skip) ' "$WORK/lint.log" || true
    if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
        count "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "$(grep -c '^skip ' "$WORK/lint.log")"
    elif ((status == 0)); then
        count 1 0
    fi
    return "$status"
}

# build_and_check NAME [configure options] -- [make arguments]
build_and_check() {
    local dir=$ROOT/build-check-$1 options=() status=0
    shift
    while (($#)) && [[ $1 != -- ]]; do
        options+=("$1")
        shift
    done
    shift || true
    build_tree "$dir" "${options[@]}" || return
    find "$dir" -name '*.trs' -delete
    SETARCH=()
    [[ " ${options[*]} " == *--enable-tsan* ]] && setarch "$(uname -m)" -R true 2>/dev/null && SETARCH=(setarch "$(uname -m)" -R)
    timeout "$LIMIT" "${SETARCH[@]}" make -k -C "$dir" -j"$(nproc)" check "$@" >"$dir/check.log" 2>&1 </dev/null || status=$?
    [[ $(find "$dir" -name '*.trs' -print -quit) ]] || tail -n 40 "$dir/check.log"
    count_make_check "$dir"
    return "$status"
}

stage_asan() { build_and_check asan --enable-asan --; }

# Instrumented code gives false warnings; the other builds judge them.
stage_tsan() {
    local t tests=()
    for t in $(list_of UNIT_TESTS); do
        if [[ " $THREAD_TESTS " == *" ${t##*/} "* ]] || grep -qsE 'pthread_create|thrd_create' "$ROOT/$t.c"; then tests+=("$t"); fi
    done
    build_and_check tsan --enable-tsan --disable-werror -- TESTS="${tests[*]}"
}

# with_stores COMMAND...: a private Postgres and Redis, told by WB_TEST_PGURL and WB_TEST_REDIS. The tests make roles
# and databases of their own, hence the superuser.
with_stores() (
    export WB_DEV_VAR=$WORK/stores WB_DEV_FAST=1 WB_DEV_NO_BUILD=1
    "$ROOT/dev" up postgres redis || return
    eval "$("$ROOT/dev" env)"
    export WB_TEST_PGURL=${WB_PGURL/%user=weighbridge/user=postgres} WB_TEST_REDIS=$WB_REDIS WB_TEST_DEV=$ROOT/dev
    unset WB_URL WB_PGURL WB_REDIS
    status=0
    "$@" || status=$?
    "$ROOT/dev" down --wipe || status=1
    return "$status"
)

stage_store() {
    local tests status=0
    mapfile -t tests < <(list_of STORE_TESTS)
    build_store_tests || return
    store_tests "$ROOT/build-check-asan" "${tests[@]}" || status=$?
    BEHIND=with_pooler store_tests "$ROOT/build-check-asan" tests/store/test_load_job tests/store/test_job || status=$?
    return "$status"
}

build_store_tests() {
    local tests
    mapfile -t tests < <(list_of STORE_TESTS)
    make -k -C "$ROOT/build-check-asan" -j"$(nproc)" "${tests[@]}" >"$WORK/store-build.log" 2>&1 || {
        tail -n 40 "$WORK/store-build.log"
        return 1
    }
}

# store_tests BUILD TEST...: runs and counts them, with_pooler if BEHIND says so.
store_tests() {
    local dir=$1 t status=0
    shift
    rm -rf "$WORK/store-logs"
    mkdir -p "$WORK/store-logs"
    with_stores ${BEHIND:+"$BEHIND"} run_store_tests "$dir" "$@" || status=$?
    for t in "$@"; do
        t=$WORK/store-logs/${t##*/}
        [[ -f $t.status ]] || continue
        count_program "${t##*/}" "$(<"$t.status")" "$t.log"
    done
    return "$status"
}

run_store_tests() {
    local dir=$1 t log status
    shift
    for t in "$@"; do
        log=$WORK/store-logs/${t##*/}
        status=0
        (cd "$dir" && timeout 180 "$t") >"$log.log" 2>&1 </dev/null || status=$?
        echo "$status" >"$log.status"
    done
}

stage_e2e() { build_tree "$BUILD" && e2e "$BUILD" 'not long' tests/e2e; }
stage_e2e_long() { build_tree "$BUILD" && WB_TEST_LONG=1 e2e "$BUILD" long tests/e2e; }

# e2e TREE MARK FILE...
e2e() {
    local status=0 summary log=$WORK/e2e.log tree=$1 mark=$2
    shift 2
    mkdir -p "$WORK/t"
    (
        cd "$ROOT"
        unset WB_DEV_VAR WB_DEV_PORT
        export WB_DEV_NO_BUILD=1 WB_DEV_FAST=1 WB_DEV_BUILD=$tree TMPDIR=$WORK/t PYTHONDONTWRITEBYTECODE=1
        # INT lets pytest end its servers. Two at once, each with servers of its own: they wait more than they work. Sockets lie
        # below its folders, whose names must be short.
        exec timeout -s INT -k 60 "$LIMIT" /usr/bin/python3 -m pytest "$@" -q -p no:cacheprovider -n 2 --dist loadfile \
            --basetemp="$WORK/p" --durations=25 -m "$mark"
    ) >"$log" 2>&1 </dev/null || status=$?
    summary=$(grep -E '[0-9]+ (passed|failed|error|skipped)' "$log" | tail -n 1) || summary=
    count "$(word_of passed "$summary")" "$(($(word_of failed "$summary") + $(word_of 'errors?' "$summary")))" \
        "$(word_of skipped "$summary")"
    ((status == 0)) || tail -n 150 "$log"
    tail -n 1 "$log"
    return "$status"
}

word_of() {
    local n
    n=$(sed -nE "s/(^|.*[ ,])([0-9]+) $1([ ,].*|$)/\2/p" <<<"$2")
    echo "${n:-0}"
}

stage_distcheck() {
    local dir=$ROOT/build-check-dist
    build_tree "$dir" || return
    timeout "$LIMIT" make -C "$dir" distcheck DISTCHECK_CONFIGURE_FLAGS=--enable-werror >"$dir/distcheck.log" 2>&1 </dev/null || {
        tail -n 60 "$dir/distcheck.log"
        return 1
    }
    count 1 0
}

# Least lines of a folder that tests run, in percent; all of lib/ together: LIB_LINES. handlers/, daemons/ and lib/plan
# run only in whole programs, hence the end-to-end tests among those that are counted.
LIB_LINES=90
folder_lines() {
    case $1 in
        lib/model | lib/db) echo 97 ;;
        *) echo 0 ;;
    esac
}

stage_coverage() {
    local dir=$ROOT/build-check-coverage tests status=0 before=("$PASSED" "$FAILED" "$SKIPPED")
    build_tree "$dir" --enable-coverage || return
    find "$dir" \( -name '*.gcda' -o -name '*.trs' \) -delete
    mapfile -t tests < <(list_of STORE_TESTS)
    timeout "$LIMIT" make -k -C "$dir" -j"$(nproc)" check >"$dir/check.log" 2>&1 </dev/null || status=$?
    count_make_check "$dir"
    store_tests "$dir" "${tests[@]}" || status=$?
    # Not those that kill their planners: who is killed does not say what it ran.
    e2e "$dir" 'not long' tests/e2e/test_{program,calls,outages,gallery,housekeeping,jobs,planner,planner_chores}.py ||
        status=$?
    ((FAILED == before[1])) || status=1
    # They are counted where they are run for their own sake.
    PASSED=${before[0]} FAILED=${before[1]} SKIPPED=${before[2]}
    ((status == 0)) || {
        printf 'not all tests passed, whose lines were to be counted; see also %s\n' "$dir/check.log"
        return "$status"
    }
    gcovr -r "$ROOT" --object-directory "$dir" --filter 'lib/' --filter 'handlers/' --filter 'daemons/' \
        --txt "$dir/coverage.txt" --json-summary "$dir/coverage.json" "$dir" 2>"$dir/gcovr.log" || {
        tail -n 20 "$dir/gcovr.log"
        return 1
    }
    grep -E '[0-9]+%' "$dir/coverage.txt" | grep -v '100%' || true
    judge_coverage "$dir/coverage.json"
}

# Lines that ran, by folder, against what each must reach.
judge_coverage() {
    local folder total covered least
    while read -r folder total covered; do
        least=$(folder_lines "$folder")
        [[ $folder != lib ]] || least=$LIB_LINES
        if ((covered * 100 >= total * least)); then count 1 0; else count 0 1; fi
        awk -v f="$folder" -v c="$covered" -v t="$total" -v l="$least" 'BEGIN {
            printf "%-12s %5d of %5d lines, %5.1f %%%s\n", f, c, t, 100 * c / t, (l > 0 ? " (at least " l (100 * c < l * t ? "): MISSED" : ")") : "") }'
    done < <(jq -r '[.files[] | {f: (.filename | sub("/[^/]*$"; "")), t: .line_total, c: .line_covered}]
        | (group_by(.f)[] | {f: .[0].f, t: (map(.t) | add), c: (map(.c) | add)}),
          (map(select(.f | startswith("lib/"))) | {f: "lib", t: (map(.t) | add), c: (map(.c) | add)})
        | "\(.f) \(.t) \(.c)"' "$1")
}

stage_analyzer() {
    local dir=$ROOT/build-check-analyzer
    WB_DEV_CC=gcc build_tree "$dir" CFLAGS='-O2 -g -fanalyzer' || return
    count 1 0
    LINT_DEEP=1 timeout "$LIMIT" "$ROOT/tests/lint/run.sh" tidy || return
    count 1 0
}

# Each target runs for FUZZ_SECONDS, as many at once as there are cores.
: "${FUZZ_SECONDS:=1200}"

fuzz_minutes() {
    local targets cores rounds
    targets=$(list_of FUZZ_TARGETS | wc -l)
    cores=$(nproc)
    rounds=$(((targets + cores - 1) / cores))
    echo $((rounds * (FUZZ_SECONDS + 30) / 60 + 5))
}

# What it finds and learns stays out of the tree: in build-check-fuzz/crashes and corpus.
stage_fuzz() {
    local dir=$ROOT/build-check-fuzz t name targets status=0
    WB_DEV_CC=clang configure_tree "$dir" --enable-fuzz --disable-werror >"$WORK/fuzz-configure.log" 2>&1 || {
        tail -n 20 "$WORK/fuzz-configure.log"
        return 1
    }
    mapfile -t targets < <(list_of FUZZ_TARGETS)
    make -C "$dir" -j"$(nproc)" "${targets[@]}" >"$WORK/fuzz-build.log" 2>&1 || {
        tail -n 40 "$WORK/fuzz-build.log"
        return 1
    }
    printf '%s\n' "${targets[@]}" | DIR=$dir CORPUS=$ROOT/tests/fuzz/corpus FUZZ_SECONDS=$FUZZ_SECONDS \
        xargs -P "$(nproc)" -n 1 bash -c "$FUZZ_ONE" fuzz || status=1
    for t in "${targets[@]}"; do
        name=${t##*/}
        if [[ -e $dir/$name.ok ]]; then
            count 1 0
            printf '%s: %s\n' "$name" "$(tail -n 1 "$dir/$name.log")"
        else
            count 0 1
            tail -n 40 "$dir/$name.log"
        fi
    done
    return "$status"
}

# One target, whose path in the build folder is $1: leaves its log, and NAME.ok when it found nothing.
# shellcheck disable=SC2016
FUZZ_ONE='
    name=${1##*/}
    mkdir -p "$DIR/corpus/$name" "$DIR/crashes"
    rm -f "$DIR/$name.ok"
    timeout "$((FUZZ_SECONDS + 120))" "$DIR/$1" -max_total_time="$FUZZ_SECONDS" -rss_limit_mb=2048 -timeout=10 \
        -artifact_prefix="$DIR/crashes/$name-" "$DIR/corpus/$name" "$CORPUS/$name" >"$DIR/$name.log" 2>&1 </dev/null &&
        : >"$DIR/$name.ok"
'
