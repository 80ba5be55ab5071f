#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A file includes its own folder and lower layers, never sideways; quotes are for files of the project, angle brackets
# for all others (docs/style.md).
. "$(dirname "$0")/sources.sh"

files '^(lib|handlers|daemons)/.*\.(c|h|def)$' | xargs awk '
function layer_of(path,    part) {
    split(path, part, "/")
    return part[1] == "lib" ? part[2] : part[1]
}
function exists(path,    line, there) {
    there = (getline line <path) >= 0
    close(path)
    return there
}
function refuse(why) {
    printf "%s:%d: %s: %s\n", FILENAME, FNR, included, why
    bad = 1
}
BEGIN {
    count = split("base;model;json;db kv http fcgi;store;web provision batch fetch depot lines;plan;handlers daemons",
        levels, ";")
    for (i = 1; i <= count; i++) {
        n = split(levels[i], names, " ")
        for (j = 1; j <= n; j++)
            rank[names[j]] = i
    }
}
FNR == 1 {
    own = layer_of(FILENAME)
    if (!(own in rank)) {
        printf "%s: the folder %s is in no layer\n", FILENAME, own
        bad = 1
    }
}
/^[ \t]*#[ \t]*include[ \t]*[<"]/ {
    match($0, /[<"][^>"]*[>"]/)
    quoted = substr($0, RSTART, 1) == "\""
    included = substr($0, RSTART + 1, RLENGTH - 2)
    path = exists("lib/" included) ? "lib/" included : exists(included) ? included : ""
    if (!quoted) {
        if (path != "" && included ~ /\//)
            refuse("a file of the project, so write quotes")
        next
    }
    if (included == "config.h") # what configure found out
        next
    if (path == "") {
        refuse("no file of the project by its path from lib/ or from the top")
        next
    }
    other = layer_of(path)
    if (!(other in rank))
        refuse("the folder " other " is in no layer")
    else if (other != own && rank[other] >= rank[own])
        refuse(own " may not include " other)
}
END { exit bad }'
