# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Part of ./dev: Debian packages and the build.

PACKAGES_RUN=(gcc libc6-dev make autoconf automake autoconf-archive pkg-config
    libfcgi-dev libpq-dev libhiredis-dev libjson-c-dev libcurl4-openssl-dev libexpat1-dev libssl-dev libinih-dev uthash-dev libcmocka-dev
    postgresql redis-server nginx curl jq openssl ca-certificates procps)
PACKAGES_CHECK=(ccache clang libclang-rt-dev clang-format clang-tidy cppcheck codespell gcovr mandoc pmccabe shellcheck valgrind xz-utils
    apache2-bin lighttpd spawn-fcgi systemd pgbouncer
    git python3 python3-pytest python3-pytest-xdist python3-psycopg2 python3-redis python3-requests python3-yaml python3-jsonschema)
PACKAGES_BENCH=(wrk redis-tools python3 python3-psycopg2 python3-redis)

# install_packages run|check|bench|demo: whatever of the set is missing. Nothing is asked of apt when nothing is.
install_packages() {
    local wanted=("${PACKAGES_RUN[@]}") missing=() p
    [[ $1 == check ]] && wanted+=("${PACKAGES_CHECK[@]}")
    [[ $1 == bench ]] && wanted+=("${PACKAGES_BENCH[@]}")
    [[ $1 == demo ]] && wanted+=(python3)
    [[ $1 == check || $1 == bench ]] && {
        # A Node from elsewhere is as good as Debian's.
        command -v node >/dev/null || wanted+=(nodejs)
        command -v npm >/dev/null || wanted+=(npm)
    }
    for p in "${wanted[@]}"; do
        [[ $(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null) == installed ]] || missing+=("$p")
    done
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null || die "install by hand, since there is no apt-get here: ${missing[*]}"
    local sudo=()
    ((EUID == 0)) || {
        command -v sudo >/dev/null || die "neither root nor sudo; ask your admin for: ${missing[*]}"
        sudo=(sudo)
    }
    say "installing: ${missing[*]}"
    "${sudo[@]}" sh -c "$APT_SCRIPT" apt "${missing[@]}" >&2
}

# Packages start their services when they are installed, unless this file forbids it.
# shellcheck disable=SC2016
APT_SCRIPT='
set -e
policy=/usr/sbin/policy-rc.d
mark="# weighbridge dev: no service starts while it installs packages"
tidy() { if grep -qsxF "$mark" $policy; then rm -f $policy; fi; }
trap tidy EXIT
trap "exit 130" INT TERM HUP
[ -e $policy ] || { printf "#!/bin/sh\n%s\nexit 101\n" "$mark" >$policy && chmod 755 $policy; }
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -y -q --no-install-recommends -- "$@"
'

# Neither configure nor make copes with these characters in a path.
plain_path() {
    local odd=$'[]["`$&#*?(){}<>|;:%[:space:]\\\\\']'
    # shellcheck disable=SC2053
    [[ $1 != *$odd* ]] || die "nothing can be built in a path with spaces, quotes or the like: $1"
}

# build_tree FOLDER [configure options...]: configure if need be, then make.
build_tree() {
    local dir=$1 log
    shift
    plain_path "$ROOT"
    plain_path "$dir"
    ours "$dir"
    mkdir -p "$dir"
    log=$dir/dev-build.log
    say "building in $dir"
    if ! (build_steps "$dir" "$@") >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        say "the build failed; all of it is in $log"
        return 1
    fi
}

build_steps() {
    local dir=$1
    shift
    configure_tree "$dir" "$@" || return
    flock "$dir/.lock" make -C "$dir" -j"$(nproc)"
}

# Two at once must not run autoreconf into each other.
# shellcheck disable=SC2094
configure_tree() {
    local dir=$1 f stale='' cc
    shift
    mkdir -p "$dir"
    exec 7>"$dir/.lock-configure"
    flock 7
    (
        flock 6
        cd "$ROOT" || exit
        for f in configure.ac Makefile.am tests/tests.am; do
            [[ configure -nt $f && Makefile.in -nt $f ]] || stale=1
        done
        [[ ! $stale && -x configure && -f build-aux/install-sh ]] || autoreconf -fi
    ) 6<"$ROOT" || return
    cc=${WB_DEV_CC:-gcc}
    command -v ccache >/dev/null && cc="ccache $cc"
    if [[ ! -f $dir/Makefile || $ROOT/configure -nt $dir/config.status ]] ||
        [[ $(cat "$dir/.configured" 2>/dev/null) != "$cc $*" ]]; then
        (cd "$dir" && "$ROOT/configure" --disable-maintainer-mode --enable-werror CC="$cc" "$@") || return
        printf '%s\n' "$cc $*" >"$dir/.configured"
    fi
    exec 7>&-
}
