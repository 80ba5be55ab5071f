/* SPDX-License-Identifier: Apache-2.0 */
#include "db/migrate.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/mem.h"
#include "base/str.h"
#include "db/db.h"
#include "db/db_internal.h"
#include "db/db_row.h"

enum { FILE_MAX_BYTES = 1 << 20, NAME_DIGITS = 4, MARK_LINES = 3 };

static const char *const MARK = "-- creates: existing tables";

enum stmt { LOCK, HAVE_RECORD, MAKE_RECORD, RECORDED, RECORD };

static const struct db_stmt STMTS[] = {
    /* Any constant that nobody else is likely to take. */
    [LOCK] = { "migrate_lock", "SELECT pg_advisory_xact_lock(7738204215581993)", 0 },
    [HAVE_RECORD] = { "migrate_have_record",
        "SELECT to_regclass('weighbridge_migration') IS NOT NULL", 0 },
    [MAKE_RECORD] = { "migrate_make_record",
        "CREATE TABLE weighbridge_migration (version int PRIMARY KEY, name text NOT NULL,"
        " sha256 text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())",
        0 },
    [RECORDED] = { "migrate_recorded",
        "SELECT name, sha256 FROM weighbridge_migration WHERE version = $1", 1 },
    [RECORD] = { "migrate_record",
        "INSERT INTO weighbridge_migration (version, name, sha256) VALUES ($1, $2, $3)", 3 },
};

struct migration {
    const char *name; /* of the file */
    int64_t version;
    const char *sql;
    char sha256[DIGEST_HEX_SIZE];
};

static int is_migration(const struct dirent *d)
{
    return strspn(d->d_name, "0123456789") == NAME_DIGITS && d->d_name[NAME_DIGITS] == '_' &&
           str_ends(d->d_name, ".sql");
}

static int read_file(const char *folder, const char *name, struct buf *out, struct err *e)
{
    char path[4096];
    if (str_format(path, sizeof path, "%s/%s", folder, name) < 0)
        return err_set(e, ERR_INVALID, "path too long: %s", name);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, ERR_INVALID, "%s", path);
    for (;;) {
        char *room = buf_room(out, FILE_MAX_BYTES / 16);
        if (room == NULL)
            return err_set(e, ERR_INVALID, "%s: larger than %d bytes", path, FILE_MAX_BYTES);
        ssize_t n = read(fd, room, FILE_MAX_BYTES / 16);
        if (n < 0)
            return err_errno(e, ERR_INVALID, "%s", path);
        if (n == 0)
            return 0;
        buf_grew(out, (size_t)n);
    }
}

static bool makes_existing_tables(const char *sql)
{
    for (int line = 0; line < MARK_LINES && sql != NULL; line++) {
        if (str_starts(sql, MARK))
            return true;
        sql = strchr(sql, '\n');
        if (sql != NULL)
            sql++;
    }
    return false;
}

/* Is it applied? 1 yes, 0 no. Makes the record table when there is none. */
static int is_applied(struct db *db, const struct migration *m, struct err *e)
{
    cleanup_rows struct db_rows have = DB_ROWS_INIT;
    bool exists = false;
    if (db_one(db, &STMTS[HAVE_RECORD], DB_NO_ARGS, &have, e) < 0 ||
        db_bool(&have, 0, 0, &exists, e) < 0)
        return -1;
    if (!exists)
        return db_exec(db, &STMTS[MAKE_RECORD], DB_NO_ARGS, NULL, e);

    cleanup_rows struct db_rows row = DB_ROWS_INIT;
    int none = db_opt(db, &STMTS[RECORDED], DB_ARGS(DB_INT8(m->version)), &row, e);
    if (none != 0)
        return none < 0 ? -1 : 0;
    if (strcmp(db_text(&row, 0, 1), m->sha256) != 0)
        return err_set(e, ERR_CONFLICT,
            "has changed since it was applied as %s: put the applied file back and add a new one",
            db_text(&row, 0, 0));
    return 1;
}

static int run_script(struct db *db, const struct migration *m, struct err *e)
{
    int result = db_script(db, m->name, m->sql, e);
    if (result < 0 && e != NULL && !db->last.outage)
        e->code = ERR_INVALID;
    return result;
}

/* In one transaction, and one process at a time: whoever waited finds it applied. */
static int apply(struct db *db, const struct migration *m, int *applied, struct err *e)
{
    cleanup_txn struct db_txn t = DB_TXN_INIT;
    cleanup_rows struct db_rows locked = DB_ROWS_INIT;
    if (db_begin(db, &t, e) < 0 || db_one(db, &STMTS[LOCK], DB_NO_ARGS, &locked, e) < 0)
        return -1;
    int done = is_applied(db, m, e);
    if (done != 0)
        return done < 0 ? -1 : 0;
    if (run_script(db, m, e) < 0)
        return -1;
    if (db_exec(db, &STMTS[RECORD],
            DB_ARGS(DB_INT8(m->version), DB_TEXT(m->name), DB_TEXT(m->sha256)), NULL, e) < 0)
        return -1;
    if (db_commit(&t, e) < 0)
        return -1;
    ++*applied;
    return 0;
}

static int migrate_file(
    struct db *db, const struct migrate_options *o, const char *name, int *applied, struct err *e)
{
    cleanup_buf struct buf sql = BUF_INIT(FILE_MAX_BYTES);
    if (read_file(o->folder, name, &sql, e) < 0)
        return -1;
    if (sql.len == 0 || strlen(sql.data) != sql.len)
        return err_set(e, ERR_INVALID, "%s: empty, or holds a NUL", name);
    struct migration m = { .name = name, .sql = sql.data };
    digest_hex(sql.data, sql.len, m.sha256);
    char digits[NAME_DIGITS + 1];
    (void)str_format(digits, sizeof digits, "%.*s", NAME_DIGITS, name);
    int rc = str_to_i64(digits, 0, INT32_MAX, &m.version);
    assert(rc == 0); /* is_migration() let only digits through */
    if (o->read_only && makes_existing_tables(m.sql))
        return 0;
    return apply(db, &m, applied, e) < 0 ? err_wrap(e, "%s", name) : 0;
}

int migrate_run(const struct migrate_options *o, int *applied, struct err *e)
{
    struct db_options options = {
        .url = o->url,
        .name = "weighbridge-migrate",
        .prepared = false, /* nothing that a pooler could refuse */
        .timeout_ms = o->timeout_ms,
    };
    struct dirent **file = NULL;
    int files = scandir(o->folder, &file, is_migration, alphasort);
    if (files < 0)
        return err_errno(e, ERR_INVALID, "%s", o->folder);

    cleanup_db struct db *db = db_new(&options);
    int n = 0;
    int result = files == 0 ? err_set(e, ERR_INVALID, "%s: no migrations", o->folder) : 0;
    for (int i = 0; i < files; i++) {
        if (result == 0)
            result = migrate_file(db, o, file[i]->d_name, &n, e);
        free(file[i]);
    }
    free(file);
    if (result == 0)
        *applied = n;
    return result;
}
