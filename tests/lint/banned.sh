#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Calls and words that may not be used, and files without their licence line. lib/base/banned.h makes others compile
# errors.
. "$(dirname "$0")/sources.sh"

bad=0

# Prints the C sources as file:line:text, comments and texts blanked.
code() {
    xargs awk '
    FNR == 1 { inside = 0 }
    {
        rest = $0
        out = ""
        while (rest != "") {
            if (inside) {
                end = index(rest, "*/")
                if (!end)
                    break
                rest = substr(rest, end + 2)
                inside = 0
            } else if (match(rest, /^"([^"\\]|\\.)*"/) || match(rest, /^\047([^\047\\]|\\.)+\047/)) {
                out = out "\"\""
                rest = substr(rest, RLENGTH + 1)
            } else if (substr(rest, 1, 2) == "/*") {
                inside = 1
                rest = substr(rest, 3)
            } else if (substr(rest, 1, 2) == "//") {
                break
            } else {
                out = out substr(rest, 1, 1)
                rest = substr(rest, 2)
            }
        }
        if (out ~ /[^ \t]/)
            printf "%s:%d:%s\n", FILENAME, FNR, out
    }'
}

# refuse PATTERN WHY [EXEMPT]: no line of the code on standard input may match; lines that match EXEMPT may.
refuse() {
    if found=$(grep -E "^[^:]*:[0-9]*:(.*[^A-Za-z0-9_])?($1)" "$CODE" | grep -vE "${3:-^$}"); then
        printf '%s\n' "$found"
        echo "    $2"
        bad=1
    fi
}

CODE=$(mktemp)
trap 'rm -f "$CODE"' EXIT
{ c_files && h_files; } | code >"$CODE"
[ -s "$CODE" ] || {
    echo 'no sources found'
    exit 1
}
refuse '(alloca|strdupa) *\(' 'the stack is no heap'
refuse 'goto ' 'cleanup attributes and functions do this'
refuse '(system|popen) *\(' 'no shell: fork and exec an argument vector'
refuse '(rand|random|rand_r|drand48) *\(' 'digest_token() is the source of randomness'
refuse 'PQ(exec|sendQuery)[A-Za-z]* *\(' 'SQL goes through lib/db' '^(lib/db|tests)/'
refuse 'redisv?(Append)?Command *\(' 'only argument vectors: redisCommandArgv'

# Benchmarks let things settle. Elsewhere pacing is no waiting: a line whose comment says so may sleep.
if files '^tests/.*\.(py|c)$' | grep -v '^tests/bench/' | xargs -r grep -nE '(^|[^A-Za-z0-9_])(time\.|u|nano|clock_nano)?sleep *\(' /dev/null |
    grep -vE '(#|/\*).*\b(rate|pace)\b'; then
    echo '    a test waits for its condition, with a deadline; one that keeps a rate has "pace" or "rate" in a comment there'
    bad=1
fi

for file in $(files '(\.(c|h|def|sh|py|sql|conf|in|ac|am|js|mjs|service|socket)|^dev|^\.ci/run)$'); do
    head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2\.0' || {
        echo "$file: no licence line (SPDX-License-Identifier: Apache-2.0) at its top"
        bad=1
    }
done
exit $bad
