#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The gates are seen to refuse: plants one fault after the other in a small tree and expects the script to name it.
HERE=$(cd "$(dirname "$0")" && pwd) || exit 2
TREE=$(mktemp -d)
trap 'rm -rf "$TREE"' EXIT
bad=0

licence='/* SPDX-License-Identifier: Apache-2.0 */'

fresh() {
    rm -rf "${TREE:?}"/*
    cp "$HERE/../../.clang-format" "$HERE/../../.clang-tidy" "$TREE"
    mkdir -p "$TREE/lib/base" "$TREE/lib/db" "$TREE/lib/kv" "$TREE/lib/store" "$TREE/handlers" "$TREE/tests/unit"
    for folder in base db kv store; do
        printf '%s\nint %s_x(void);\n' "$licence" $folder >"$TREE/lib/$folder/$folder.h"
        printf '%s\n#include "%s/%s.h"\nint %s_x(void)\n{\n    return 0;\n}\n' "$licence" $folder $folder $folder \
            >"$TREE/lib/$folder/$folder.c"
    done
    printf '%s\n#include "store/store.h"\n#include "handlers/h.h"\n' "$licence" >"$TREE/handlers/h.c"
    printf '%s\n#include <stddef.h>\nsize_t h(void);\n' "$licence" >"$TREE/handlers/h.h"
}

# expect SCRIPT PIECE: the script refuses the tree, and says so with these words.
expect() {
    output=$(LINT_ROOT=$TREE "$HERE/$1.sh" 2>&1)
    status=$?
    if [ $status -eq 0 ]; then
        echo "$1 let pass: $2"
        bad=1
    elif [ $status -ne 77 ] && ! printf '%s' "$output" | grep -qF -- "$2"; then
        echo "$1 refused, but not for \"$2\": $output"
        bad=1
    fi
    fresh
}

# plant FILE TEXT: adds lines to a file of the tree, which begins with a licence line.
plant() {
    [ -e "$TREE/$1" ] || printf '%s\n' "$licence" >"$TREE/$1"
    printf '%b\n' "$2" >>"$TREE/$1"
}

fresh
for script in layers banned headers size; do
    output=$(LINT_ROOT=$TREE "$HERE/$script.sh" 2>&1)
    case $? in
    0) ;;
    77) exit 77 ;;
    *)
        echo "$script refuses a faultless tree: $output"
        bad=1
        ;;
    esac
done

plant lib/base/base.c '#include "db/db.h"'
expect layers 'lib/base/base.c:7: db/db.h: base may not include db'
plant lib/db/db.h '#include "kv/kv.h"'
expect layers 'db may not include kv'
plant lib/store/store.c '  #  include "handlers/h.h"'
expect layers 'store may not include handlers'
plant lib/store/store.c '#include "stdio.h"'
expect layers 'no file of the project'
plant lib/store/store.c '#include "store.h"'
expect layers 'no file of the project'
plant lib/base/base.c '#include <db/db.h>'
expect layers 'so write quotes'
mkdir "$TREE/lib/stuff"
plant lib/stuff/x.c 'int x;'
expect layers 'stuff is in no layer'

plant handlers/h.h 'FILE *other(void);'
expect headers 'handlers/h.h does not compile alone'
plant handlers/h.h 'struct twice { int x; };'
expect headers 'handlers/h.h does not compile alone'

plant lib/db/db.c "int f(int x)\n{\n$(yes '    x++;' | head -n 100)\n    return x;\n}"
expect size 'more than 100'
plant lib/db/db.c "int f(int x)\n{\n$(yes '    if (x) x++;' | head -n 15)\n    return x;\n}"
expect size 'complexity 16'
plant lib/db/db.c "$(yes '/* */' | head -n 600)"
expect size 'lib/db/db.c: 606 lines, more than 600'
plant lib/db/db.h "$(yes '/* */' | head -n 200)"
expect size 'lib/db/db.h: 202 lines, more than 200'
for name in lib/db/db_util.c lib/db/misc.h lib/base/common.c tests/unit/helpers.c; do
    plant $name 'int x;'
    expect size "$name"
done

plant lib/kv/kv.c 'void *f(void) { return alloca(4); }'
expect banned 'lib/kv/kv.c:7:'
plant lib/kv/kv.c 'void f(void) { goto out; }'
expect banned 'goto'
plant lib/kv/kv.c 'void f(void) { system(0); }'
expect banned 'no shell'
plant lib/kv/kv.c 'int f(void) { return rand(); }'
expect banned 'randomness'
plant lib/kv/kv.c 'void f(void) { redisCommand(c, "GET %s", k); }'
expect banned 'argument vectors'
plant lib/store/store.c 'void f(void) { PQexec(c, sql); }'
expect banned 'through lib/db'
plant lib/store/store.c 'void f(void) { PQsendQueryParams (c, sql); }'
expect banned 'through lib/db'
plant tests/unit/test_x.c 'void f(void) { sleep(1); }'
expect banned 'waits for its condition'
plant tests/unit/test_x.c 'void f(void) { int x = 1; /* a */ usleep(1); }'
expect banned 'waits for its condition'
printf '# SPDX-License-Identifier: Apache-2.0\nimport time\ntime.sleep(1)\n' >"$TREE/tests/test_x.py"
expect banned 'waits for its condition'
echo 'int x;' >"$TREE/lib/kv/bare.c"
expect banned 'lib/kv/bare.c: no licence line'
echo 'SELECT 1;' >"$TREE/bare.sql"
expect banned 'bare.sql: no licence line'

plant lib/kv/kv.c 'int  y;'
expect format 'lib/kv/kv.c:7:'
printf '#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\nrm -rf $1/x\n' >"$TREE/x.sh"
expect shell 'SC2086'
typo='te''h' # in two parts, or this file were refused
plant lib/kv/kv.c "/* $typo */"
expect words "$typo ==> the"
plant lib/kv/kv.c 'int f(void)\n{\n    int a[2] = { 0, 0 };\n    return a[2];\n}'
expect cppcheck 'lib/kv/kv.c:10: arrayIndexOutOfBounds'
plant lib/kv/kv.c 'int f(const int *p)\n{\n    p = 0;\n    return *p;\n}'
mkdir -p "$TREE/lib/base" && echo "$licence" >"$TREE/lib/base/banned.h"
expect tidy 'core.NullDereference'

# What only looks like a fault passes.
plant lib/db/db.c 'void f(void) { PQexec(c, sql); }'
plant lib/kv/kv.c '/* goto, system(), "alloca(" */ int y; // rand()'
plant lib/kv/kv.c 'const char *t = "goto \\\\\\" system(";'
plant lib/kv/kv.c 'int filesystem(int x);'
plant tests/unit/test_x.c 'void f(void) { usleep(1); } /* pace of the sender */'
output=$(LINT_ROOT=$TREE "$HERE/banned.sh" 2>&1) || {
    echo "banned refuses what is allowed: $output"
    bad=1
}

mkdir -p "$TREE/docs/man"
printf '.Dd November 30, 2026\n.Dt X 8\n.Os\n.Sh NAME\n.Nm x\n.Nd y\n.Xx\n' >"$TREE/docs/man/x.8"
expect manuals 'unknown macro'
mkdir -p "$TREE/docs/man"
printf '.Dd November 30, 2026\n.Dt X 8\n.Os\n.Sh NAME\n.Nm x\n.Nd y\n.Sh SEE ALSO\n.Xr weighbridge-x 8\n' >"$TREE/docs/man/x.8"
expect manuals 'docs/man/weighbridge-x.8 is referred to and is not there'

exit $bad
