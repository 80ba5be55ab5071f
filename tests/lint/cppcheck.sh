#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cppcheck over the programs and libraries. It does not know the cleanup attribute, so takes what that closes for leaks
# (the sanitizers find those), and wants readdir_r, which libc tells not to use.
. "$(dirname "$0")/sources.sh"
need cppcheck

files '^(lib|handlers|daemons)/.*\.c$' | xargs cppcheck --quiet -j 2 --std=c11 -Ilib -I. -D_GNU_SOURCE \
    --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
    --suppress=resourceLeak --suppress=readdirCalled --suppress=missingInclude --suppress=missingIncludeSystem --library=posix \
    --template='{file}:{line}: {id}: {message}'
