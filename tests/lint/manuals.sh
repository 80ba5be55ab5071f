#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The manual pages, by mandoc. Those they refer to need not be installed here, but ours must be here.
. "$(dirname "$0")/sources.sh"
need mandoc

bad=0
pages=$(files '^docs/man/[^/]*\.[0-9]$')
found=$(echo "$pages" | xargs mandoc -Tlint -Wstyle | grep -v 'referenced manual not found\|outdated mandoc.db')
[ -z "$found" ] || {
    echo "$found"
    bad=1
}
for name in $(echo "$pages" | xargs sed -n 's/^\.Xr \(weighbridge-[a-z]*\) \([0-9]\).*/\1.\2/p' | sort -u); do
    [ -e "docs/man/$name" ] || {
        echo "docs/man/$name is referred to and is not there"
        bad=1
    }
done
exit $bad
