#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sizes: a function has at most 100 lines and complexity 15, a .c file 600 lines, a header 200. No file is named after
# nothing in particular.
. "$(dirname "$0")/sources.sh"
need pmccabe

bad=0
c_files | xargs pmccabe | awk '
    $1 > 15 { printf "%s: complexity %d, more than 15\n", $6 " " $7, $1; bad = 1 }
    $5 > 100 { printf "%s: %d lines, more than 100\n", $6 " " $7, $5; bad = 1 }
    END { exit bad || NR == 0 }' || bad=1
{ c_files && h_files; } | xargs awk '
    { lines[FILENAME] = FNR }
    END {
        for (name in lines) {
            most = name ~ /\.h$/ ? 200 : 600
            if (lines[name] > most) {
                printf "%s: %d lines, more than %d\n", name, lines[name], most
                bad = 1
            }
        }
        exit bad
    }' || bad=1
if all_files | grep -E '(^|[/_])(utils?|misc|common|helpers?)(_|\.|/)'; then
    echo 'names that say nothing (util, misc, common, helpers)'
    bad=1
fi
exit $bad
