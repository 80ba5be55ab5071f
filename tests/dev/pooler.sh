#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# pooler.sh FOLDER SOCKETS: a PgBouncer in transaction mode before the Postgres whose socket lies in the folder SOCKETS.
# Runs until it is killed; its own socket is FOLDER/.s.PGSQL.6432. In turn it gives each transaction another of at least
# two sessions, so that whatever counts on its session fails at once and not one day. Who connects is postgres or weighbridge.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
folder=$(realpath "$1") sockets=$(realpath "$2")

as=()
((EUID == 0)) && {
    as=(setpriv --reuid=postgres --regid=postgres --init-groups --) # it refuses to run as root
    chown postgres:postgres "$folder"
}
cat >"$folder/pooler.ini" <<TEXT
[databases]
* = host=$sockets port=5432
[pgbouncer]
listen_port = 6432
unix_socket_dir = $folder
auth_type = trust
auth_file = $folder/pooler.users
pool_mode = transaction
server_round_robin = 1
min_pool_size = 2
server_login_retry = 1
TEXT
printf '"postgres" ""\n"weighbridge" ""\n' >"$folder/pooler.users"
cd "$folder"
exec "${as[@]}" pgbouncer "$folder/pooler.ini"
