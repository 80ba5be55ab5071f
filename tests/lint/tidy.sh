#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-tidy by .clang-tidy over the programs and libraries. One file for each process: with several, clang-tidy 14 takes
# the va_list of the later ones for uninitialized.
. "$(dirname "$0")/sources.sh"
need clang-tidy

# Stands in for what configure writes.
CONFIG=$(mktemp -d)
trap 'rm -rf "$CONFIG"' EXIT
echo '#define PACKAGE_VERSION "0"' >"$CONFIG/config.h"
FLAGS="$(c_flags) -I$CONFIG"
# The analyzer gives a function up after so many states; a few functions would take most of the time. ./dev check --long sets
# LINT_DEEP and has it go on.
[ "${LINT_DEEP:-}" ] || FLAGS="$FLAGS -Xclang -analyzer-config -Xclang max-nodes=30000"
export FLAGS
files '^(lib|handlers|daemons)/.*\.c$' | xargs -P 2 -n 1 sh -c '
    output=$(eval "clang-tidy --quiet \"\$@\" -- $FLAGS -include lib/base/banned.h" 2>&1) || {
        printf "%s\n" "$output" | grep -v "warnings\?\( and [0-9]* errors\?\)\? generated\.$\|^Suppressed \|^Use -"
        exit 1
    }' sh
