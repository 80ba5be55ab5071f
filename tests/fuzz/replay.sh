#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzz target (FUZZ_TARGETS, paths in the build folder) over its corpus. Fails on a crash, and
# for a target without a corpus, since it would guard nothing.
set -u
: "${srcdir:=.}"
: "${FUZZ_TARGETS:?names the targets; make check sets it}"

failed=0
for target in $FUZZ_TARGETS; do
    name=${target##*/}
    corpus=$srcdir/tests/fuzz/corpus/$name
    set -- "$corpus"/*
    if [ ! -e "$1" ]; then
        echo "$name: no corpus in $corpus"
        failed=1
    elif "./$target" "$@"; then
        echo "$name: $# inputs"
    else
        echo "$name: failed (status $?) on one of $# inputs"
        failed=1
    fi
done
exit "$failed"
