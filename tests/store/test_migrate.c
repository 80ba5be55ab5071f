/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "db/migrate.h"
#include "tests/store/stores.h"

enum { MANY = 6 };

static struct stores stores;
static char folder[64]; /* migrations of a test's own */

static int setup(void **state)
{
    (void)state;
    stores_init(&stores, false);
    (void)str_copy(folder, sizeof folder, "/tmp/wb-migrate-XXXXXX");
    assert_non_null(mkdtemp(folder));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    stores_fini(&stores);
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *f = readdir(d); f != NULL; f = readdir(d))
        (void)unlinkat(dirfd(d), f->d_name, 0); /* not the folders "." and ".." */
    closedir(d);
    return rmdir(folder);
}

static struct migrate_options options(const char *from)
{
    return (struct migrate_options){ .url = stores.url, .folder = from, .timeout_ms = 30000 };
}

static void write_file(const char *name, const char *text)
{
    char path[256];
    (void)str_format(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* How many there are in sql/. */
static int migrations(void)
{
    int n = 0;
    DIR *d = opendir(stores_sql_folder());
    assert_non_null(d);
    for (const struct dirent *f = readdir(d); f != NULL; f = readdir(d))
        n += str_ends(f->d_name, ".sql");
    closedir(d);
    return n;
}

static void assert_applies(const struct migrate_options *o, int expected)
{
    struct err e = ERR_INIT;
    int applied = -1;
    if (migrate_run(o, &applied, &e) < 0)
        fail_msg("%s: %s", err_name(e.code), e.msg);
    assert_int_equal(applied, expected);
}

static void assert_refuses(const struct migrate_options *o, enum err_code code, const char *part)
{
    struct err e = ERR_INIT;
    int applied = -1;
    assert_int_equal(migrate_run(o, &applied, &e), -1);
    if (e.code != code || strstr(e.msg, part) == NULL)
        fail_msg(
            "%s: %s, where %s with \"%s\" was due", err_name(e.code), e.msg, err_name(code), part);
    assert_int_equal(applied, -1);
}

static void assert_value(const char *sql, const char *expected)
{
    cleanup_free char *value = stores_value(&stores, sql);
    if (strcmp(value, expected) != 0)
        fail_msg("%s is '%s', not '%s'", sql, value, expected);
}

static void an_empty_database_gets_all_once(void **state)
{
    struct migrate_options o = options(stores_sql_folder());

    (void)state;
    assert_applies(&o, migrations());
    assert_value("SELECT count(*) FROM model_load_jobs, gallery_operations, load_job_claims,"
                 " operation_control",
        "0");
    assert_value("SELECT bool_and(name LIKE to_char(version, 'FM0000') || '\\_%.sql'"
                 " AND length(sha256) = 64) AND max(version) = count(*) FROM weighbridge_migration",
        "t");
    assert_applies(&o, 0);
}

static void *run(void *arg)
{
    struct err e = ERR_INIT;
    int *applied = arg;
    struct migrate_options o = options(stores_sql_folder());
    if (migrate_run(&o, applied, &e) < 0)
        *applied = -1;
    return NULL;
}

static void started_many_times_at_once_each_is_applied_once(void **state)
{
    pthread_t thread[MANY];
    int applied[MANY] = { 0 };
    int sum = 0;

    (void)state;
    for (int i = 0; i < MANY; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run, &applied[i]), 0);
    for (int i = 0; i < MANY; i++) {
        pthread_join(thread[i], NULL);
        assert_in_range(applied[i], 0, migrations());
        sum += applied[i];
    }
    assert_int_equal(sum, migrations());
}

/* As a LocalAI of another version may have made them: wider, with an index, and in use. */
static void existing_tables_keep_their_shape_and_rows(void **state)
{
    static const char *const SHAPE =
        "SELECT string_agg(table_name || column_name || data_type || is_nullable, ' '"
        " ORDER BY table_name, ordinal_position) FROM information_schema.columns"
        " WHERE table_name IN ('model_load_jobs', 'gallery_operations')";
    struct migrate_options o = options(stores_sql_folder());

    (void)state;
    stores_sql(&stores,
        "CREATE TABLE model_load_jobs (tracking_key varchar(255) PRIMARY KEY, state varchar(16)"
        " NOT NULL, replica_index bigint, created_at timestamptz, generation text);"
        "CREATE INDEX ON model_load_jobs (state);"
        "INSERT INTO model_load_jobs VALUES ('m', 'staging', 1, now(), 'g');"
        "CREATE TABLE gallery_operations (id varchar(36) PRIMARY KEY, status varchar(32));"
        "INSERT INTO gallery_operations VALUES ('1', 'pending')");
    cleanup_free char *before = stores_value(&stores, SHAPE);
    assert_applies(&o, migrations());
    assert_value(SHAPE, before);
    assert_value(
        "SELECT tracking_key || status FROM model_load_jobs, gallery_operations", "mpending");
    assert_value(
        "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND ARRAY[conrelid, confrelid]"
        " && ARRAY['model_load_jobs'::regclass::oid, 'gallery_operations'::regclass::oid]",
        "0");
}

static void read_only_makes_the_side_tables_and_nothing_else(void **state)
{
    struct migrate_options o = options(stores_sql_folder());

    (void)state;
    o.read_only = true;
    assert_applies(&o, migrations() - 1);
    assert_value("SELECT to_regclass('model_load_jobs') IS NULL AND"
                 " to_regclass('gallery_operations') IS NULL AND"
                 " to_regclass('load_job_claims') IS NOT NULL",
        "t");
    assert_applies(&o, 0);
    o.read_only = false; /* and the rest when it is no longer so */
    assert_applies(&o, 1);
    assert_value("SELECT to_regclass('model_load_jobs') IS NOT NULL", "t");
}

static void a_file_changed_since_is_refused(void **state)
{
    struct migrate_options o = options(folder);

    (void)state;
    write_file("0001_a.sql", "CREATE TABLE a ();");
    assert_applies(&o, 1);
    write_file("0001_a.sql", "CREATE TABLE a (); ");
    write_file("0002_b.sql", "CREATE TABLE b ();");
    assert_refuses(&o, ERR_CONFLICT, "0001_a.sql");
    assert_value("SELECT to_regclass('b') IS NULL", "t");
    write_file("0001_a.sql", "CREATE TABLE a ();");
    assert_applies(&o, 1);
}

static void a_file_that_fails_is_rolled_back_and_named(void **state)
{
    struct migrate_options o = options(folder);

    (void)state;
    write_file("0001_a.sql", "CREATE TABLE a ();");
    write_file("0002_b.sql", "CREATE TABLE b (); INSERT INTO b SELECT nonsense;");
    write_file("0003_c.sql", "CREATE TABLE c ();");
    write_file("notes.txt", "not looked at");
    write_file("0003_c.sql~", "nor this");
    assert_refuses(&o, ERR_INVALID, "0002_b.sql");
    assert_refuses(&o, ERR_INVALID, "nonsense");
    assert_value("SELECT to_regclass('a') IS NOT NULL AND to_regclass('b') IS NULL AND"
                 " to_regclass('c') IS NULL",
        "t");
    write_file("0002_b.sql", "CREATE TABLE b ();");
    assert_applies(&o, 2);
}

/* A role that may use the tables but create nothing can still ask whether all is applied. */
static void nothing_is_created_when_nothing_is_missing(void **state)
{
    struct migrate_options o = options(stores_sql_folder());
    char url[1200];

    (void)state;
    assert_applies(&o, migrations());
    stores_sql(&stores, "DROP ROLE IF EXISTS wb_test_plain; CREATE ROLE wb_test_plain LOGIN;"
                        "REVOKE CREATE ON SCHEMA public FROM PUBLIC;"
                        "GRANT SELECT ON weighbridge_migration TO wb_test_plain");
    (void)str_format(url, sizeof url, "%s options='-c role=wb_test_plain'", stores.url);
    o.url = url;
    assert_applies(&o, 0);
    stores_sql(&stores, "DROP OWNED BY wb_test_plain; DROP ROLE wb_test_plain");
}

static void what_cannot_be_read_or_reached_says_so(void **state)
{
    struct migrate_options o = options("/nowhere");

    (void)state;
    assert_refuses(&o, ERR_INVALID, "/nowhere");
    o.folder = folder;
    assert_refuses(&o, ERR_INVALID, "no migrations");
    write_file("0001_empty.sql", "");
    assert_refuses(&o, ERR_INVALID, "0001_empty.sql");
    o = options(stores_sql_folder());
    o.url = "host=/nowhere";
    assert_refuses(&o, ERR_UNAVAILABLE, "/nowhere");
}

/* A role that may create but not write the record: what ran without being noted would run again. */
static void a_file_that_cannot_be_noted_is_rolled_back(void **state)
{
    struct migrate_options o = options(folder);
    char url[1200];

    (void)state;
    write_file("0001_a.sql", "CREATE TABLE a ();");
    assert_applies(&o, 1);
    write_file("0002_b.sql", "CREATE TABLE b ();");
    stores_sql(&stores, "DROP ROLE IF EXISTS wb_test_maker; CREATE ROLE wb_test_maker LOGIN;"
                        "GRANT CREATE ON SCHEMA public TO wb_test_maker;"
                        "GRANT SELECT ON weighbridge_migration TO wb_test_maker");
    (void)str_format(url, sizeof url, "%s options='-c role=wb_test_maker'", stores.url);
    o.url = url;
    assert_refuses(&o, ERR_INTERNAL, "permission denied");
    assert_value("SELECT to_regclass('b') IS NULL", "t");
    stores_sql(&stores, "DROP OWNED BY wb_test_maker; DROP ROLE wb_test_maker");
}

static void a_file_that_cannot_be_read_is_named(void **state)
{
    struct migrate_options o = options(folder);
    char path[256];
    char around[4096];
    cleanup_free char *large = mem_calloc(1, (1 << 20) + 2);

    (void)state;
    (void)str_format(path, sizeof path, "%s/0001_a.sql", folder);
    assert_int_equal(symlink("/nowhere/a.sql", path), 0);
    assert_refuses(&o, ERR_INVALID, "0001_a.sql: No such file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_refuses(&o, ERR_INVALID, "0001_a.sql: Is a directory");
    assert_int_equal(rmdir(path), 0);
    memset(large, '-', (1 << 20) + 1);
    write_file("0001_a.sql", large);
    assert_refuses(&o, ERR_INVALID, "0001_a.sql: larger than 1048576 bytes");
    write_file("0001_a.sql", "SELECT 1;");

    /* A folder that can be listed, but whose files have too long a path. */
    size_t size = strlen(folder);
    (void)str_copy(around, sizeof around, folder);
    while (size < sizeof around - 10) {
        memcpy(around + size, "/.", 3);
        size += 2;
    }
    o.folder = around;
    assert_refuses(&o, ERR_INVALID, "path too long: 0001_a.sql");
}

#define FRESH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRESH(an_empty_database_gets_all_once),
        FRESH(started_many_times_at_once_each_is_applied_once),
        FRESH(existing_tables_keep_their_shape_and_rows),
        FRESH(read_only_makes_the_side_tables_and_nothing_else),
        FRESH(a_file_changed_since_is_refused),
        FRESH(a_file_that_fails_is_rolled_back_and_named),
        FRESH(nothing_is_created_when_nothing_is_missing),
        FRESH(a_file_that_cannot_be_noted_is_rolled_back),
        FRESH(a_file_that_cannot_be_read_is_named),
        FRESH(what_cannot_be_read_or_reached_says_so),
    };
    (void)stores_pgurl();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
