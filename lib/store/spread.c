/* SPDX-License-Identifier: Apache-2.0 */
#include "store/spread.h"

#include <string.h>

#include "db/db_row.h"

enum stmt { REPLICAS, BYTES, AVOIDED, RETRIES, QUEUE, DISK, DURATION, LONGEST, VERSIONS };

/* Histogram's bounds: 2^0 ... 2^14 s, the last one 4 h. */
#define BOUNDS     "(SELECT (2 ^ n)::bigint AS le FROM generate_series(0, 13) n UNION ALL SELECT 14400)"
#define OF_VERSION " JOIN artifact_version v ON v.id = r.version_id"

static const struct db_stmt STMTS[] = {
    [REPLICAS] = { "spread_replicas",
        "SELECT v.artifact, v.version, s.state, count(DISTINCT s.name)::text FROM artifact_version v JOIN"
        " (SELECT n.name, t.artifact, t.version, t.state FROM node n,"
        "  jsonb_to_recordset(n.versions) t(artifact text, version text, state text)"
        "  UNION ALL SELECT a.node, v.artifact, v.version, a.state FROM assignment a"
        "  JOIN artifact_version v ON v.id = a.version_id JOIN node n ON n.name = a.node"
        "  WHERE a.state <> 'cancelled' AND NOT EXISTS (SELECT FROM"
        "  jsonb_to_recordset(n.versions) t(artifact text, version text)"
        "  WHERE t.artifact = v.artifact AND t.version = v.version)) s"
        " ON s.artifact = v.artifact AND s.version = v.version GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        0 },
    [BYTES] = { "spread_bytes",
        "SELECT v.artifact, v.version, sum(r.bytes_fetched)::text FROM receipt r" OF_VERSION
        " GROUP BY 1, 2 ORDER BY 1, 2",
        0 },
    [AVOIDED] = { "spread_avoided",
        "SELECT v.artifact, v.version, sum(r.bytes_avoided)::text FROM receipt r" OF_VERSION
        " GROUP BY 1, 2 ORDER BY 1, 2",
        0 },
    [RETRIES] = { "spread_retries",
        "SELECT v.artifact, v.version, CASE WHEN f.reason IN ('timeout', 'shard_digest_mismatch', 'upstream_throttle',"
        "  'manifest_mismatch', 'artifact_missing', 'disk_full') THEN f.reason ELSE 'other' END, sum(f.n)::text"
        " FROM (SELECT a.version_id, f.reason, 1 AS n FROM assignment_failure f JOIN assignment a ON a.id = f.assignment"
        "  UNION ALL SELECT r.version_id, t.key, t.value::numeric::bigint FROM receipt r, jsonb_each_text("
        "   CASE WHEN jsonb_typeof(r.retries) = 'object' THEN r.retries ELSE '{}' END) t"
        "  WHERE t.value ~ '^[0-9]{1,9}$') f JOIN artifact_version v ON v.id = f.version_id"
        " GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        0 },
    [QUEUE] = { "spread_queue", "SELECT count(*)::text FROM assignment a WHERE a.state = 'queued'",
        0 },
    [DISK] = { "spread_disk",
        "SELECT n.name, m.path, round(least(1, max(m.used_bytes / m.total_bytes)), 4)::text FROM node n,"
        " jsonb_to_recordset(n.mounts) m(path text, total_bytes numeric, used_bytes numeric)"
        " WHERE m.total_bytes > 0 AND m.used_bytes IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2",
        0 },
    [DURATION] = { "spread_duration",
        "SELECT b.le::text, (SELECT count(*) FROM receipt r WHERE r.took_ms <= b.le * 1000)::text FROM " BOUNDS
        " b UNION ALL SELECT '+Inf', count(*)::text FROM receipt"
        " UNION ALL SELECT 'sum', coalesce(sum(took_ms) / 1000, 0)::text FROM receipt",
        0 },
    [LONGEST] = { "spread_longest", "SELECT coalesce(max(took_ms) / 1000.0, 0)::text FROM receipt",
        0 },
    [VERSIONS] = { "spread_versions",
        "SELECT state, count(*)::text FROM artifact_version GROUP BY 1 ORDER BY 1", 0 },
};

const struct db_stmts SPREAD_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

/* A metric whose statement gives its labels and then its value. */
struct series {
    enum stmt which;
    const char *name;
    const char *type;
    const char *help;
    const char *labels[4]; /* NULL ends them */
};

static const struct series SERIES[] = {
    { REPLICAS, "version_replicas", "gauge", "Nodes that have a version, by the state it has there",
        { "artifact", "version", "state" } },
    { BYTES, "dist_bytes_total", "counter", "Bytes that nodes fetched, by their receipts",
        { "artifact", "version" } },
    { AVOIDED, "cache_avoided_bytes_total", "counter",
        "Bytes that nodes had already, by their receipts", { "artifact", "version" } },
    { RETRIES, "dist_retry_total", "counter",
        "Attempts that failed and what was fetched again, by reason",
        { "artifact", "version", "reason" } },
    { DISK, "disk_used_ratio", "gauge", "Used part of a node's disks, 0 to 1",
        { "node", "mount" } },
    { QUEUE, "dist_queue_size", "gauge", "Assignments that wait for their node", { NULL } },
    { LONGEST, "dist_duration_seconds_max", "gauge",
        "Longest time from an assignment to its receipt", { NULL } },
    { VERSIONS, "weighbridge_artifact_versions", "gauge", "Versions in the store, by state",
        { "state" } },
};

static void put_label(struct buf *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '"')
            buf_putc(out, '\\');
        if (*text == '\n')
            buf_puts(out, "\\n");
        else
            buf_putc(out, *text);
    }
}

static void put_row(struct buf *out, const struct series *s, const struct db_rows *rows, int row)
{
    int n = 0;

    buf_puts(out, s->name);
    for (; s->labels[n] != NULL; n++) {
        buf_printf(out, "%s%s=\"", n == 0 ? "{" : ",", s->labels[n]);
        put_label(out, db_text(rows, row, n));
        buf_putc(out, '"');
    }
    buf_printf(out, "%s %s\n", n > 0 ? "}" : "", db_text(rows, row, n));
}

static int put_series(struct db *db, const struct series *s, struct buf *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    if (db_many(db, &STMTS[s->which], DB_NO_ARGS, &rows, e) < 0)
        return err_wrap(e, "%s", s->name);
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", s->name, s->help, s->name, s->type);
    for (int i = 0; i < db_rows_count(&rows); i++)
        put_row(out, s, &rows, i);
    return 0;
}

static int put_durations(struct db *db, struct buf *out, struct err *e)
{
    static const char NAME[] = "dist_duration_seconds";
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    if (db_many(db, &STMTS[DURATION], DB_NO_ARGS, &rows, e) < 0)
        return err_wrap(e, "%s", NAME);
    buf_printf(
        out, "# HELP %s Time from an assignment to its receipt\n# TYPE %s histogram\n", NAME, NAME);
    for (int i = 0; i < db_rows_count(&rows); i++) {
        const char *le = db_text(&rows, i, 0);
        const char *n = db_text(&rows, i, 1);
        if (strcmp(le, "sum") == 0)
            buf_printf(out, "%s_sum %s\n", NAME, n);
        else
            buf_printf(out, "%s_bucket{le=\"%s\"} %s\n", NAME, le, n);
        if (strcmp(le, "+Inf") == 0)
            buf_printf(out, "%s_count %s\n", NAME, n);
    }
    return 0;
}

int spread_metrics(struct db *db, struct buf *out, struct err *e)
{
    for (size_t i = 0; i < sizeof SERIES / sizeof SERIES[0]; i++) {
        if (put_series(db, &SERIES[i], out, e) < 0)
            return -1;
    }
    return put_durations(db, out, e);
}
