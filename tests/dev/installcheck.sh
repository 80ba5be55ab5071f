#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make installcheck: what is installed finds what it needs by itself. Arguments: sbindir, sysconfdir, pkgdatadir.
set -eu
sbin=$1 etc=$2 data=$3

# expect WORDS STATUS COMMAND...: the command ends with this status and says these words.
expect() {
    words=$1 status=$2
    shift 2
    said=$("$@" 2>&1) && got=0 || got=$?
    case $said in
        *"$words"*) [ "$got" -eq "$status" ] && return ;;
    esac
    printf 'installcheck: %s: status %s, said: %s\n' "$*" "$got" "$said" >&2
    exit 1
}

unset WB_CONFIG
for program in "$sbin"/weighbridge-*; do
    expect weighbridge 0 "$program" --version
    expect "$etc/weighbridge/weighbridge.ini" 0 "$program" --help
done
# The configuration is found and read; without tokens nothing starts.
expect 'token_file = /' 0 "$sbin/weighbridge-operations" --print-config
expect /nonexistent/tokens 1 env WB_AUTH_TOKEN_FILE=/nonexistent/tokens "$sbin/weighbridge-operations" --check
# Migrations are found: what fails is the database, for which there is nobody.
expect 'not migrated' 1 env WB_DB_URL='host=/nonexistent' "$sbin/weighbridge-migrate"
expect "$data/sql" 0 "$sbin/weighbridge-migrate" --help
said=$(WB_DB_URL='host=/nonexistent' "$sbin/weighbridge-migrate" 2>&1) || true
case $said in
    *"$data"*) printf 'installcheck: no migrations: %s\n' "$said" >&2 && exit 1 ;;
esac
