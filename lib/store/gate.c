/* SPDX-License-Identifier: Apache-2.0 */
#include "store/gate.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "store/artifact.h"
#include "store/artifact_disk.h"
#include "store/artifact_gate.h"
#include "store/artifact_shard.h"
#include "store/manifest_json.h"

enum { RENEW_S = 15 };

/* One version in hand. */
struct judging {
    struct db *db;
    const struct gate *gate;
    const struct gate_claim *claim;
    struct manifest manifest;
    struct disk_part part;
    int fd;
    int64_t renewed_ns;
    bool landed; /* its folder is in place already */
};

void gate_init(struct gate *g, const char *root, int64_t drop_hours)
{
    char host[32] = "";
    char token[TOKEN_HEX_SIZE];

    (void)!gethostname(host, sizeof host - 1);
    digest_token(token);
    *g = (struct gate){ .root = root, .drop_hours = drop_hours };
    (void)!str_format(g->holder, sizeof g->holder, "%s/%ld/%.16s", host, (long)getpid(), token);
}

bool gate_is_here(const struct gate *g)
{
    struct stat st;
    return stat(g->root, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

/* Called while reading: the claim must not run out under it. */
static int tick(void *ctx, struct err *e)
{
    struct judging *j = ctx;
    const int64_t now_ns = clock_mono_ns();

    if (j->gate->stopping != NULL && j->gate->stopping(j->gate->ctx))
        return err_set(e, ERR_UNAVAILABLE, "stopping");
    if (now_ns - j->renewed_ns < RENEW_S * NS_PER_S)
        return 0;
    if (gate_renew(j->db, j->claim->id, j->gate->holder, e) < 0)
        return -1;
    j->renewed_ns = now_ns;
    return 0;
}

/* --- clones --- */

/* 0: it is there now; 1: it is bad where it lies. */
static int clone_one(struct judging *j, const struct shard_at *s, struct err *e)
{
    const struct disk_tick t = { tick, j };
    cleanup_fd int from = -1;
    cleanup_fd int to = -1;
    struct digest want;
    struct digest got;

    if (digest_parse_bare(s->digest, &want, e) < 0)
        return -1;
    if (str_empty(s->from_path) ||
        disk_file(j->gate->root, s->from_artifact, s->from_version, s->from_path, &from, e) < 0)
        return str_empty(s->from_path) || e->code == ERR_NOT_FOUND ? 1 : -1;
    if (disk_part_file(j->fd, s->path, true, &to, e) < 0 ||
        disk_copy((struct file_range){ from, s->from_at }, (struct file_range){ to, s->at },
            s->size, e) < 0)
        return -1;
    if (disk_hash(to, s->at, s->size, &t, &got, e) < 0)
        return e->code == ERR_INVALID ? 1 : -1;
    return memcmp(got.byte, want.byte, sizeof got.byte) == 0 ? 0 : 1;
}

/* *bad counts contents that have to be uploaded after all. Places of one content stand together. */
static int clone_shards(struct judging *j, int64_t *bad, struct err *e)
{
    cleanup_shards_at struct shards_at todo = SHARDS_AT_INIT;
    bool ignored = false;
    int spoiled = 0;

    if (shard_clones(j->db, j->claim->id, &todo, e) < 0)
        return -1;
    for (size_t i = 0; i < todo.n; i++) {
        const struct shard_at *s = &todo.place[i];
        const bool last = i + 1 == todo.n || strcmp(s->digest, s[1].digest) != 0;
        if (spoiled == 0)
            spoiled = clone_one(j, s, e);
        if (spoiled < 0 || tick(j, e) < 0 || fault_at(FAULT_GATE_CLONED, e) < 0)
            return -1;
        if (!last)
            continue;
        if (spoiled == 1) {
            log_error(LOG_MSG("a shard of a published version is bad"),
                LOG_S("artifact", s->from_artifact), LOG_S("version", s->from_version),
                LOG_S("shard", s->digest));
            ++*bad;
        }
        if (spoiled == 1
                ? shard_spoiled(j->db, j->claim->id, s->from_id, s->digest, e) < 0
                : shard_landed(j->db, j->claim->id, j->claim->part, s->digest, &ignored, e) < 0)
            return -1;
        spoiled = 0;
    }
    return 0;
}

/* --- reading back --- */

/* Where a file of the version lies now; empty ones are made here, since nobody sends them. */
static int open_file(struct judging *j, const struct manifest_file *f, int *fd, struct err *e)
{
    if (j->landed)
        return disk_file(j->gate->root, j->claim->artifact, j->claim->version, f->path, fd, e);
    return disk_part_file(j->fd, f->path, f->size == 0, fd, e);
}

/* 0; 1 with the reason in why. */
static int read_back(
    struct judging *j, const struct manifest_file *f, struct err *why, struct err *e)
{
    const struct disk_tick t = { tick, j };
    cleanup_fd int fd = -1;
    struct digest got;
    struct stat st;

    if (open_file(j, f, &fd, e) < 0) {
        if (e->code != ERR_NOT_FOUND)
            return -1;
        (void)err_set(why, ERR_INVALID, "%.150s: missing", f->path);
        return 1;
    }
    if (fstat(fd, &st) < 0)
        return err_errno(e, ERR_UNAVAILABLE, "%.100s", f->path);
    if (!S_ISREG(st.st_mode) || st.st_size != f->size) {
        (void)err_set(why, ERR_INVALID, "%.150s: has %lld bytes, not %lld", f->path,
            (long long)st.st_size, (long long)f->size);
        return 1;
    }
    /* What the disk has, not what memory has. */
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (disk_hash(fd, 0, f->size, &t, &got, e) < 0)
        return -1;
    if (memcmp(got.byte, f->sha256.byte, sizeof got.byte) != 0) {
        (void)err_set(why, ERR_INVALID, "%.150s: its sha256 is another", f->path);
        return 1;
    }
    return tick(j, e);
}

static int read_back_all(struct judging *j, struct err *why, struct err *e)
{
    for (size_t i = 0; i < j->manifest.files; i++) {
        const int rc = read_back(j, &j->manifest.file[i], why, e);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* --- verdict --- */

static int land(struct judging *j, struct err *why, struct err *e)
{
    if (j->landed)
        return disk_seal(j->gate->root, j->claim->artifact, j->claim->version, e);
    if (disk_land(&j->part, j->fd, &j->manifest, j->claim->text, (size_t)j->claim->size, e) == 0)
        return 0;
    if (e->code != ERR_INVALID && e->code != ERR_CONFLICT)
        return -1;
    *why = *e;
    return 1;
}

static int judge(struct judging *j, struct gate_done *done, struct err *e)
{
    struct err why = ERR_INIT;
    int64_t bad = 0;

    if (!j->landed && clone_shards(j, &bad, e) < 0)
        return -1;
    if (bad > 0) {
        done->back++;
        return 0;
    }
    int rc = read_back_all(j, &why, e);
    if (fault_at(FAULT_GATE_READ, e) < 0)
        return -1;
    if (rc == 0)
        rc = land(j, &why, e);
    if (rc < 0)
        return -1;
    if (rc == 1) {
        if (gate_reject(j->db, j->claim->id, j->gate->holder, why.msg, e) < 0)
            return -1;
        done->rejected++;
        log_warn(LOG_MSG("version rejected"), LOG_S("artifact", j->claim->artifact),
            LOG_S("version", j->claim->version), LOG_S("reason", why.msg));
        return j->landed ? 0 : disk_part_remove(&j->part, e);
    }
    if (fault_at(FAULT_GATE_MOVED, e) < 0 ||
        gate_publish(j->db, j->claim->id, j->gate->holder, e) < 0 ||
        fault_at(FAULT_GATE_PUBLISHED, e) < 0)
        return -1;
    done->published++;
    log_info(LOG_MSG("version published"), LOG_S("artifact", j->claim->artifact),
        LOG_S("version", j->claim->version));
    return 0;
}

static int judge_claim(struct db *db, const struct gate *g, const struct gate_claim *c,
    struct gate_done *done, struct err *e)
{
    struct judging j = { .db = db,
        .gate = g,
        .claim = c,
        .manifest = MANIFEST_INIT,
        .part = { g->root, c->artifact, c->version, c->part },
        .fd = -1,
        .renewed_ns = clock_mono_ns() };
    int rc = fault_at(FAULT_GATE_CLAIMED, e);

    if (rc == 0)
        rc = manifest_read(c->text, (size_t)c->size, &j.manifest, e);

    j.landed = disk_has_version(g->root, c->artifact, c->version);
    if (rc == 0 && !j.landed)
        rc = disk_part_open(&j.part, true, false, &j.fd, e);
    if (rc == 0)
        rc = judge(&j, done, e);
    if (j.fd >= 0)
        close(j.fd);
    manifest_free(&j.manifest);
    return rc;
}

int gate_run(struct db *db, const struct gate *g, struct gate_done *done, struct err *e)
{
    int rc = 0;

    while (rc == 0 && (g->stopping == NULL || !g->stopping(g->ctx))) {
        cleanup_gate_claim struct gate_claim c = GATE_CLAIM_INIT;
        struct err ignored = ERR_INIT;
        rc = gate_claim_next(db, g->holder, &c, e);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
        rc = judge_claim(db, g, &c, done, e);
        if (rc != 0)
            (void)!gate_release(db, c.id, g->holder, &ignored);
    }
    return rc < 0 ? -1 : 0;
}
