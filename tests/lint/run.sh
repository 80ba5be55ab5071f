#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs all lint scripts, or those that are named: `ok name (N s)` or `FAIL name (N s)` and its output each.
cd "$(dirname "$0")" || exit 2

passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
[ $# -gt 0 ] || set -- layers size banned headers selftest format shell manuals words cppcheck tidy
for name; do
    began=$(date +%s)
    "./$name.sh" >"$log" 2>&1
    status=$?
    took=$(($(date +%s) - began))
    case $status in
    0)
        echo "ok $name ($took s)"
        passed=$((passed + 1))
        ;;
    77)
        echo "skip $name: $(cat "$log")"
        ;;
    *)
        echo "FAIL $name ($took s)"
        sed 's/^/    /' "$log"
        failed=$((failed + 1))
        ;;
    esac
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
