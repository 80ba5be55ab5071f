# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Part of every lint script: goes to the root of the tree that is checked and lists its files. LINT_ROOT names
# another tree (selftest.sh does). Status 77 of a script means that its tool is not installed.

cd "${LINT_ROOT:-$(dirname "$0")/../..}" || exit 2

# Ours, of all kinds: what git tracks or would track; without git (a release) what lies there.
all_files() {
    if [ -e .git ] && command -v git >/dev/null; then
        git ls-files --cached --others --exclude-standard | while IFS= read -r file; do
            [ ! -f "$file" ] || printf '%s\n' "$file"
        done
    else
        find . \( -name 'build*' -o -name var -o -name autom4te.cache -o -name node_modules -o -name __pycache__ \
            -o -name m4 \) -prune -o -type f -print | sed 's,^\./,,'
    fi | sort
}

# files PATTERN: those whose path matches the extended regular expression.
files() {
    all_files | grep -E "$1"
}

c_files() {
    files '^(lib|handlers|daemons|tests)/.*\.c$'
}

h_files() {
    files '^(lib|handlers|daemons|tests)/.*\.h$'
}

need() {
    command -v "$1" >/dev/null || {
        echo "$1 is not installed"
        exit 77
    }
}

# How the compiler is called, as in Makefile.am.
c_flags() {
    printf '%s ' -std=gnu11 -D_GNU_SOURCE -Ilib -I. -Itests '-DPKGDATADIR=""' '-DSYSCONFDIR=""'
    for package in libpq json-c hiredis libcurl expat; do
        pkg-config --cflags "$package" 2>/dev/null
    done | tr '\n' ' '
}
