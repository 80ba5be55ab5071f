/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_GALLERY_FIXTURE_H
#define WB_GALLERY_FIXTURE_H

/* What the tests of gallery operations add to load_fixture.h: rows as an existing LocalAI writes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "base/mem.h"
#include "tests/store/load_fixture.h"

#define OWN  GALLERY_DB(fx.db, false)
#define SITE GALLERY_DB(fx.db, true)

static inline void sqlf(const char *format, ...) PRINTF_LIKE(1, 2);
static inline void sqlf(const char *format, ...)
{
    char sql[2000];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(sql, sizeof(sql), format, args);
    va_end(args);
    assert_in_range(n, 1, sizeof(sql) - 1);
    fx_sql(sql);
}

/* A backend's installation in that status, changed just now; sets: further columns, "" for none. */
static inline void put_op(const char *id, const char *status, const char *sets)
{
    sqlf("INSERT INTO gallery_operations (id, user_id, gallery_element_name, cache_key,"
         " is_backend_op, op_type, status, progress, phase, current_bytes, total_bytes, message,"
         " error, file_name, total_file_size, downloaded_file_size, frontend_id, cancellable,"
         " created_at, updated_at) VALUES ('%s', '', 'llama-cpp', 'localai@llama-cpp', true,"
         " 'backend_install', '%s', 12.5, 'downloading', 10, 80, 'pulling', '', 'layer', '80 B',"
         " '10 B', 'front-1', true, now(), now())",
        id, status);
    if (sets[0] != '\0')
        sqlf("UPDATE gallery_operations SET %s WHERE id = '%s'", sets, id);
}

/* Shifts the row into the past. */
static inline void age_op(const char *id, const char *interval)
{
    sqlf("UPDATE gallery_operations SET created_at = created_at - interval '%s',"
         " updated_at = updated_at - interval '%s' WHERE id = '%s'",
        interval, interval, id);
}

/* The ids of a list in the order that it has, joined by spaces. */
static inline void ids_are(const struct gallery_rows *rows, const char *expected)
{
    char ids[2000] = "";
    for (size_t i = 0; i < rows->n; i++) {
        char all[sizeof(ids)];
        (void)str_copy(all, sizeof(all), ids);
        assert_int_equal(
            str_format(ids, sizeof(ids), "%s%s%s", all, i > 0 ? " " : "", rows->row[i].op.id), 0);
    }
    assert_string_equal(ids, expected);
}

static inline int by_id(const void *a, const void *b)
{
    const struct gallery_row *x = a;
    const struct gallery_row *y = b;
    return strcmp(x->op.id, y->op.id);
}

/* What the poll would read: the ids in byte order. */
static inline void listed(const char *expected)
{
    struct err e = ERR_INIT;
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    ok(gallery_list(fx.db, &rows, &e));
    qsort(rows.row, rows.n, sizeof(*rows.row), by_id);
    ids_are(&rows, expected);
}

static inline struct gallery_rows get_op(const char *id)
{
    struct err e = ERR_INIT;
    struct gallery_rows rows = GALLERY_ROWS_INIT;
    ok(gallery_get(fx.db, id, &rows, &e));
    assert_int_equal(rows.n, 1);
    return rows;
}

#endif
