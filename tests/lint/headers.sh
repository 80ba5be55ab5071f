#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every header compiles alone, and twice in one file.
. "$(dirname "$0")/sources.sh"
need gcc

FLAGS=$(c_flags)
export FLAGS
h_files | xargs -P 2 -n 8 sh -c '
    bad=0
    for header; do
        # shellcheck disable=SC2086
        printf "#include \"%s\"\n#include \"%s\"\n" "$header" "$header" |
            eval "gcc $FLAGS -Wall -Wextra -Werror -fsyntax-only -x c -" || {
            echo "$header does not compile alone"
            bad=1
        }
    done
    exit $bad' sh
