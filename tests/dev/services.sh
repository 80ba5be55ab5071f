# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Part of ./dev: where services keep their things, how they start and stop. A process belongs to a service
# if its working folder is the service's own and its program is the right one: that finds workers whose
# parent was killed, and never takes a reused process number for ours.

# Sets RUN, PG_DATA, PG_SOCKETS, REDIS_SOCKET. Unix socket paths have at most 107 bytes, [runtime] dir 80, and nginx
# wants them plain.
find_places() {
    local hash
    hash=$(printf %s "$VAR" | sha256sum)
    hash=${hash:0:12}
    RUN=$VAR/run
    # A link of ours, or of who wants these files elsewhere.
    [[ ! -L $RUN ]] || RUN=$(readlink -f "$RUN")
    [[ ${#RUN} -le 80 && ! $RUN =~ [^A-Za-z0-9_./+@,-] ]] || RUN=/tmp/wb-run-$(id -u)-$hash
    REDIS_SOCKET=$RUN/redis.sock
    PG_ELSEWHERE=/var/tmp/weighbridge-$(id -u)-$hash
    PG_DATA=$(readlink -f "$VAR/pg" 2>/dev/null || printf %s "$VAR/pg")
    PG_SOCKETS=$RUN/pg
    [[ $PG_DATA == "$VAR/pg" ]] || PG_SOCKETS=$PG_ELSEWHERE/sock
}

PG_AS=()
((EUID == 0)) && PG_AS=(setpriv --reuid=postgres --regid=postgres --init-groups --)

own_folder() { # a folder that is ours and nobody else's, though its parent is open to all
    mkdir -p "$1"
    [[ -O $1 && ! -L $1 ]] || die "$1 belongs to somebody else"
}

make_var() {
    find_places
    mkdir -p "$VAR" "$VAR/log" "$VAR/nginx" "$VAR/redis" "$VAR/operations" "$VAR/jobs" "$VAR/artifacts" "$VAR/planner" \
        "$VAR/agent" "$VAR/store/.spool" "$VAR/echo" "$VAR/batches" "$VAR/batch"
    mkdir -p "$VAR"/content/{.spool,files,work}
    own_folder "$RUN"
    [[ $RUN == "$VAR/run" || -e $VAR/run ]] || ln -s "$RUN" "$VAR/run"
    make_pg_folders
    make_tokens
    make_service_token
    make_ini
}

# Postgres refuses to run as root, and its own user may not reach our folder (/root, a mktemp -d).
make_pg_folders() {
    if [[ ! -e $VAR/pg && ! -L $VAR/pg ]]; then
        if ((EUID == 0)) && ! "${PG_AS[@]}" test -x "$VAR"; then
            own_folder "$PG_ELSEWHERE"
            ln -s "$PG_ELSEWHERE/pg" "$VAR/pg"
        fi
    fi
    # A link whose target was cleared away counts as a new one.
    [[ -L $VAR/pg ]] && mkdir -p "$PG_ELSEWHERE"
    find_places
    if ((EUID == 0)); then
        [[ -d $PG_SOCKETS ]] || install -d -m 0700 -o postgres -g postgres "$PG_SOCKETS"
    else
        [[ -d $PG_SOCKETS ]] || mkdir -m 0700 "$PG_SOCKETS"
    fi
}

make_tokens() {
    local role token lines=()
    [[ -s $VAR/tokens && -s $VAR/node.token ]] && return
    # A node's token is bound to its name, which here is `node`.
    for role in admin worker viewer submitter publisher node; do
        token=$(openssl rand -hex 24)
        (umask 077 && printf '%s\n' "$token" >"$VAR/$role.token")
        lines+=("$(printf %s "$token" | sha256sum | cut -d' ' -f1) $role $role")
    done
    (umask 077 && printf '%s\n' "${lines[@]}" >"$VAR/tokens.new")
    mv "$VAR/tokens.new" "$VAR/tokens"
}

# The token that the planner and nginx show to the embedded batch service. It came later than the others.
make_service_token() {
    local token
    [[ ! -s $VAR/service.token ]] || return 0
    token=$(openssl rand -hex 24)
    (umask 077 && printf '%s submitter service\n' "$(printf %s "$token" | sha256sum | cut -d' ' -f1)" >>"$VAR/tokens" &&
        printf '%s\n' "$token" >"$VAR/service.token")
}

make_ini() {
    if [[ -s $INI ]]; then
        grep -q '^\[agent\]' "$INI" || agent_ini >>"$INI"
        return
    fi
    (umask 077 && cat >"$INI.new") <<TEXT
# Made once by ./dev; yours to change.
[db]
url = $(pg_url)
[redis]
url = unix:$REDIS_SOCKET
[auth]
token_file = $VAR/tokens
[runtime]
dir = $RUN
[operations]
workers = 2
[artifacts]
root = $VAR/store
[batch]
root = $VAR/content
[planner]
processes = 2
[local]
slots = 4
[pool default]
max_concurrent_provisioning = 4
TEXT
    agent_ini >>"$INI.new"
    mv "$INI.new" "$INI"
}

# Slow enough to be watched.
agent_ini() {
    cat <<TEXT
[agent]
node = node
rack = rack-1
zone = zone-1
root = $VAR/node
bytes_per_s = 16777216
TEXT
}

uri() { jq -rn --arg x "$1" '$x | @uri'; }
pg_url() { printf 'postgresql:///weighbridge?host=%s&user=weighbridge' "$(uri "$PG_SOCKETS")"; }

# The port that is asked for, else the one it runs or ran on, else the usual one.
port() {
    if [[ ${WB_DEV_PORT:-} ]]; then
        echo "$WB_DEV_PORT"
    elif [[ -s $VAR/port ]]; then
        cat "$VAR/port"
    else
        echo 8080
    fi
}

pg_program() {
    local found
    found=$(find /usr/lib/postgresql -maxdepth 3 -path "*/bin/$1" 2>/dev/null | sort -V | tail -n 1)
    [[ $found ]] || found=$(command -v "$1") || die "there is no $1; is Postgres installed?"
    printf %s "$found"
}

home_of() {
    case $1 in
        postgres) printf %s "$PG_DATA" ;;
        *) readlink -f "$VAR/$1" || printf %s "$VAR/$1" ;;
    esac
}

# Process numbers of a service, one a line.
service_pids() {
    local name=$1 home link pid program comm
    case $name in
        redis) program=redis-server ;;
        operations | jobs | artifacts | batches | batch | planner | agent) program=weighbridge-$name ;;
        echo) program=python3 ;;
        *) program=$name ;;
    esac
    home=$(home_of "$name" | sed 's/[][*?\\]/\\&/g')
    { find /proc/[0-9]*/cwd -maxdepth 0 \( -lname "$home" -o -lname "$home (deleted)" \) 2>/dev/null || true; } |
        while IFS= read -r link; do
            pid=${link#/proc/}
            pid=${pid%/cwd}
            { IFS= read -r comm <"/proc/$pid/comm"; } 2>/dev/null || continue
            link=$(readlink "/proc/$pid/exe" 2>/dev/null) || link=
            link=${link% (deleted)}
            [[ $comm == "${program:0:15}" || ${link##*/} == "$program" ]] && printf '%s\n' "$pid"
        done || true
    [[ $program != weighbridge-* ]] || guarded_pids "$program"
}

# Handlers keep others from looking into them, their folder included: only root sees that. Their arguments tell too.
guarded_pids() {
    local pid
    for pid in $(pgrep -x "${1:0:15}" || true); do
        readlink "/proc/$pid/cwd" >/dev/null 2>&1 && continue
        if tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF -- "$INI"; then printf '%s\n' "$pid"; fi
    done 2>/dev/null
}

# The process we started, if it lives.
leader() {
    local pid pids
    { IFS= read -r pid <"$VAR/log/$1.pid"; } 2>/dev/null || return 1
    pids=$(service_pids "$1")
    [[ $pid && $'\n'$pids$'\n' == *$'\n'"$pid"$'\n'* ]] || return 1
    printf '%s\n' "$pid"
}

signal() { # signal NAME "pids": those that have gone meanwhile do not matter
    local pid
    for pid in $2; do kill -"$1" "$pid" 2>/dev/null || true; done
}

# launch NAME COMMAND...: detached, in the service's folder, with none of our descriptors.
launch() {
    local name=$1
    shift
    rm -f "$VAR/log/$name.pid"
    (
        cd "$(home_of "$name")" || exit
        exec </dev/null >>"$VAR/log/$name.log" 2>&1
        for fd in /proc/"$BASHPID"/fd/*; do
            fd=${fd##*/}
            ((fd <= 2)) || eval "exec $fd>&-"
        done
        # shellcheck disable=SC2016
        exec setsid --fork env --default-signal sh -c 'echo $$ >"$0" && exec "$@"' "$VAR/log/$name.pid" "$@"
    )
}

# wait_until NAME SECONDS CHECK...: fails early when the service's process has gone.
wait_until() {
    local name=$1 end=$((SECONDS + $2)) pid
    shift 2
    until "$@" >/dev/null 2>&1; do
        { IFS= read -r pid <"$VAR/log/$name.pid"; } 2>/dev/null || pid=
        [[ ! $pid || $(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) == [^ZX]* ]] || break
        ((SECONDS < end)) || break
        sleep 0.05
    done
    "$@" >/dev/null 2>&1 && return
    tail -n 15 "$VAR/log/$name.log" >&2 || true
    die "$name did not start; its log is $VAR/log/$name.log"
}

start_service() {
    local name=$1 left
    if leader "$name" >/dev/null; then
        signal CONT "$(service_pids "$name")"
        return
    fi
    # Whoever survived a killed parent holds sockets or shared memory.
    left=$(service_pids "$name")
    signal KILL "$left"
    wait_gone "$name" 10 || die "$name: these cannot be ended: $(service_pids "$name")"
    "start_$name"
}

wait_gone() {
    local end=$((SECONDS + $2))
    while [[ $(service_pids "$1") ]]; do
        ((SECONDS < end)) || return 1
        sleep 0.05
    done
}

stop_service() {
    local name=$1 pid pids
    pids=$(service_pids "$name")
    [[ $pids ]] || return 0
    signal CONT "$pids"
    if pid=$(leader "$name"); then
        # Postgres: INT ends its clients' sessions, TERM would wait for them.
        if [[ $name == postgres ]]; then signal INT "$pid"; else signal TERM "$pid"; fi
        wait_gone "$name" 10 && return
        say "$name does not stop; killing it"
    fi
    signal KILL "$(service_pids "$name")"
    wait_gone "$name" 10 || die "$name: these cannot be ended: $(service_pids "$name")"
}

start_postgres() {
    local initdb postgres options=()
    initdb=$(pg_program initdb)
    postgres=$(pg_program postgres)
    if [[ ! -s $PG_DATA/PG_VERSION ]]; then
        rm -rf "$PG_DATA" "$PG_DATA.new"
        if ((EUID == 0)); then install -d -m 0700 -o postgres -g postgres "$PG_DATA.new"; else mkdir -m 0700 "$PG_DATA.new"; fi
        (cd / && "${PG_AS[@]}" "$initdb" -D "$PG_DATA.new" -U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-instructions \
            ${WB_DEV_FAST:+--no-sync}) >>"$VAR/log/postgres.log" 2>&1 || die "initdb failed; see $VAR/log/postgres.log"
        mv "$PG_DATA.new" "$PG_DATA"
    fi
    # No process works in this folder, so lock files are a dead one's; Postgres would take a zombie for alive.
    rm -f "$PG_DATA/postmaster.pid" "$PG_SOCKETS"/.s.PGSQL.5432{,.lock}
    [[ ${WB_DEV_FAST:-} ]] && options=(-c fsync=off -c full_page_writes=off -c synchronous_commit=off)
    launch postgres "${PG_AS[@]}" "$postgres" -D "$PG_DATA" -c listen_addresses= -c unix_socket_directories="$PG_SOCKETS" \
        -c port=5432 -c max_connections=100 -c logging_collector=off "${options[@]}"
    wait_until postgres 60 pg_answers
    make_database
}

pg_answers() { PGCONNECT_TIMEOUT=2 psql -h "$PG_SOCKETS" -U postgres -d postgres -XAtqc 'select 1'; }

make_database() {
    psql -h "$PG_SOCKETS" -U postgres -d postgres -XAtq -v ON_ERROR_STOP=1 >>"$VAR/log/postgres.log" 2>&1 <<'SQL' || die "cannot make the database"
select 'create role weighbridge login createdb' where not exists (select from pg_roles where rolname = 'weighbridge') \gexec
select 'create database weighbridge owner weighbridge' where not exists (select from pg_database where datname = 'weighbridge') \gexec
SQL
}

start_redis() {
    launch redis redis-server --port 0 --unixsocket "$REDIS_SOCKET" --unixsocketperm 700 --dir "$(home_of redis)" \
        --save '' --appendonly no --daemonize no --loglevel notice
    wait_until redis 20 redis_answers
}

redis_answers() { [[ $(timeout 2 redis-cli -s "$REDIS_SOCKET" ping) == PONG ]]; }

migrate() {
    "$BUILD/weighbridge-migrate" --config "$INI" --sql "$ROOT/sql" >>"$VAR/log/migrate.log" 2>&1 ||
        {
            tail -n 5 "$VAR/log/migrate.log" >&2
            die "migrating failed; see $VAR/log/migrate.log"
        }
}

start_operations() {
    # An outage can be tried out with Postgres away; then there is nothing to migrate either.
    if leader postgres >/dev/null && timeout 3 psql "$(pg_url)" -XAtqc 'select 1' >/dev/null 2>&1; then migrate; fi
    launch operations "$BUILD/weighbridge-operations" --config "$INI"
    wait_until operations 20 handler_answers operations
}

start_jobs() {
    launch jobs "$BUILD/weighbridge-jobs" --config "$INI"
    wait_until jobs 20 handler_answers jobs
}

start_artifacts() {
    mkdir -p "$VAR/store/.spool"
    launch artifacts "$BUILD/weighbridge-artifacts" --config "$INI"
    wait_until artifacts 20 handler_answers artifacts
}

start_batches() {
    launch batches "$BUILD/weighbridge-batches" --config "$INI"
    wait_until batches 20 handler_answers batches
}

# The inference server of who has none: it says again what it is told. Its port stays, so that a runner finds it again.
start_echo() {
    local port=0
    [[ ! -s $VAR/echo.port ]] || port=$(<"$VAR/echo.port")
    ! ((port)) || ! port_answers "$port" || port=0
    : >"$VAR/log/echo.log"
    launch echo python3 "$ROOT/tests/fake/fake_inference.py" --stay --latency-ms 200 --port "$port"
    wait_until echo 20 grep -q '"port"' "$VAR/log/echo.log"
    sed -n 's/.*"port": \([0-9]*\).*/\1/p' "$VAR/log/echo.log" >"$VAR/echo.port"
}

start_batch() {
    default_upstream
    launch batch "$BUILD/weighbridge-batch" --config "$INI"
    wait_until batch 20 handler_answers batch
}

# Without an [batch] upstream lines go to `echo`.
default_upstream() {
    [[ -s $VAR/echo.port && ! $(setting batch upstream) && ! $(setting batch models) ]] || return 0
    WB_BATCH_UPSTREAM=http://127.0.0.1:$(<"$VAR/echo.port")
    export WB_BATCH_UPSTREAM
}

# Without a [batch] url jobs go to the embedded batch service, if that runs.
default_batch_url() {
    [[ ! $(setting batch url) ]] && leader batches >/dev/null || return 0
    WB_BATCH_URL=http://127.0.0.1:$(port)/batch-service WB_BATCH_TOKEN_FILE=$VAR/service.token
    export WB_BATCH_URL WB_BATCH_TOKEN_FILE
}

start_planner() {
    default_batch_url
    launch planner "$BUILD/weighbridge-planner" --config "$INI"
    wait_until planner 20 handler_answers planner
}

# The control plane is nginx here, whatever its port is this time, unless the ini names one. Its token is not in the ini: every
# program would read it.
start_agent() {
    local url=${WB_AGENT_URL:-}
    [[ $url ]] || url=$(setting agent url)
    launch agent env WB_AGENT_URL="${url:-http://127.0.0.1:$(port)}" WB_AGENT_TOKEN_FILE="$VAR/node.token" \
        "$BUILD/weighbridge-agent" run --config "$INI"
    wait_until agent 20 leader agent
}

node_is_there() {
    [[ $(curl -s -m 2 -H "Authorization: Bearer $(<"$VAR/viewer.token")" "http://127.0.0.1:$(port)/api/v1/nodes/node" | jq -r .alive) == true ]]
}

# Asks /healthz as a web server would, so that nginx need not run. Perl is part of every Debian.
# shellcheck disable=SC2016
FASTCGI_GET='use Socket;
    $SIG{ALRM} = sub { exit 1 };
    alarm 2;
    my $s;
    socket($s, PF_UNIX, SOCK_STREAM, 0) && connect($s, pack_sockaddr_un($ARGV[0])) or exit 1;
    sub record { pack("CCnnn", 1, $_[0], 1, length $_[1], 0) . $_[1] }
    my %param = (REQUEST_METHOD => "GET", REQUEST_URI => $ARGV[1], QUERY_STRING => "");
    my $params = join "", map { pack("CC", length, length $param{$_}) . $_ . $param{$_} } keys %param;
    syswrite $s, record(1, "\0\1\0\0\0\0\0\0") . record(4, $params) . record(4, "") . record(5, "");
    local $/;
    exit(<$s> =~ /Status: 200/ ? 0 : 1);'

handler_answers() { perl -e "$FASTCGI_GET" "$RUN/$1.sock" /healthz; }

port_answers() { (: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# port_is_free: dies when nginx could not have the port, so that nobody else's server is taken for ours. While ours
# runs, it has a port that only a stop changes.
port_is_free() {
    local wanted running
    wanted=$(port)
    [[ $wanted =~ ^[1-9][0-9]{0,4}$ && $wanted -le 65535 ]] || die "WB_DEV_PORT is no port: $wanted"
    if leader nginx >/dev/null; then
        running=$(cat "$VAR/port" 2>/dev/null) || running=$wanted
        [[ $running == "$wanted" ]] ||
            die "it runs on port $running already; to have it on port $wanted: ./dev down, then WB_DEV_PORT=$wanted ./dev up"
        return
    fi
    # Workers whose parent was killed still listen; they are ended before nginx starts.
    [[ ! $(service_pids nginx) ]] || return 0
    ! port_answers "$wanted" || die "port $wanted is taken; try WB_DEV_PORT=$((wanted < 65535 ? wanted + 1 : 8080)) ./dev up"
}

# A poll has been answered: who tries one next gets no 503 because the first look at the stores is still on its way.
polls() {
    [[ $(curl -s -o /dev/null -m 2 -w '%{http_code}' -H "Authorization: Bearer $(<"$VAR/viewer.token")" \
        "http://127.0.0.1:$(port)/api/operations") =~ ^[1-4] ]]
}

healthy() { [[ $(curl -s -o /dev/null -m 2 -w '%{http_code}' "http://127.0.0.1:$(port)/healthz") == 200 ]]; }

start_nginx() {
    local user=
    port_is_free
    port >"$VAR/port.new"
    mv "$VAR/port.new" "$VAR/port"
    default_batch_url
    ((EUID == 0)) && user='user root;'
    mkdir -p "$VAR/nginx/weighbridge"
    copy_nginx_files
    sed -e "s|@USER@|$user|" -e "s|@WORKERS@|${WB_DEV_NGINX_WORKERS:-2}|" -e "s|@PORT@|$(port)|" \
        "$ROOT/nginx/dev.conf.in" >"$VAR/nginx/nginx.conf"
    sed -i "s|unix:/run/weighbridge/|unix:$RUN/|" "$VAR/nginx/weighbridge/weighbridge.conf"
    sed -i "s|/srv/artifacts|$VAR/store|g" "$VAR"/nginx/weighbridge/artifacts_{upload,bytes}.conf
    sed -i "s|/srv/batch|$VAR/content|g" "$VAR"/nginx/weighbridge/batch_{upload,service}.conf
    mkdir -p "$VAR/nginx/tmp"
    rm -f "$VAR/nginx/nginx.pid"
    launch nginx nginx -p "$(home_of nginx)/" -c nginx.conf -e error.log -g 'daemon off;'
    wait_until nginx 20 nginx_answers
}

# All but batch.conf are ours. That one is made from the configuration as long as it is as we made it last.
copy_nginx_files() {
    local conf=$VAR/nginx/weighbridge/batch.conf made=$VAR/nginx/batch.made file
    for file in "$ROOT"/nginx/*.conf; do
        [[ ${file##*/} == batch.conf ]] || cp "$file" "$VAR/nginx/weighbridge/"
    done
    if [[ -e $conf ]] && ! cmp -s "$conf" "$made"; then
        say "nginx: $conf was edited, and stays as it is"
        return
    fi
    (umask 077 && batch_conf >"$made.new") || exit
    mv "$made.new" "$made"
    install -m 600 "$made" "$conf"
}

# setting SECTION KEY: what the programs make of the ini and the environment.
setting() { "$BUILD/weighbridge-jobs" --config "$INI" --print-config | sed -n "/^\[$1\]/,/^\[/s/^$2 = //p"; }

# --print-config hides it. Variables count for more than the file, as with the programs.
batch_token() {
    local file=${WB_BATCH_TOKEN_FILE:-}
    if [[ ${WB_BATCH_TOKEN:-} ]]; then
        printf %s "$WB_BATCH_TOKEN"
        return
    fi
    [[ $file ]] || file=$(batch_ini token_file)
    if [[ $file ]]; then cat "$file"; else batch_ini token; fi
}

batch_ini() { sed -n "/^\[batch\]/,/^\[/s/^ *$1 *= *//p" "$INI"; }

# nginx/batch.conf for the batch service that [batch] url names, if any, with its token.
batch_conf() {
    local url token line prefix
    url=$(setting batch url)
    if [[ ! $url ]]; then
        cat "$ROOT/nginx/batch.conf"
        return
    fi
    if [[ ! $url =~ ^http://([A-Za-z0-9._-]+)(:[0-9]+)?(/batch-service)?(/v1)?/*$ ]]; then
        say "nginx: [batch] url is no http://HOST:PORT; for files of jobs, edit $VAR/nginx/weighbridge/batch.conf"
        cat "$ROOT/nginx/batch.conf"
        return
    fi
    url=${BASH_REMATCH[1]}${BASH_REMATCH[2]:-:80}
    prefix=${BASH_REMATCH[3]:-}
    token=$(batch_token)
    [[ $token =~ ^[A-Za-z0-9._~+/=-]*$ ]] || die '[batch] token: holds what no bearer token has'
    # No argument of another program: those are everybody's to read.
    while IFS= read -r line; do
        line=${line//127.0.0.1:8090/$url}
        [[ ! $token ]] || line=${line/#    default \"\";/    default \"Bearer $token\";}
        [[ ! $prefix ]] || line=${line/#"# map \"\" \$wb_batch_prefix"/"map \"\" \$wb_batch_prefix"}
        printf '%s\n' "$line"
    done <"$ROOT/nginx/batch.conf"
}

# nginx writes its number once it has the port: an answer alone may be that of another server.
nginx_answers() {
    local pid
    pid=$(leader nginx) && [[ $(cat "$VAR/nginx/nginx.pid") == "$pid" ]] &&
        curl -s -o /dev/null -m 2 "http://127.0.0.1:$(port)/nothing-here"
}
