/* SPDX-License-Identifier: Apache-2.0 */
#include "daemons/agent_pull.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "daemons/agent_progress.h"
#include "daemons/agent_sink.h"
#include "store/inspect.h"
#include "depot/land.h"
#include "depot/rehash.h"
#include "depot/reuse.h"
#include "fetch/fetch.h"
#include "store/manifest_json.h"

enum { HASH_THREADS = 2, SAMPLE = 20, AGAIN = 3, BACKOFF_CAP_MS = 60000 };

/* How sources are talked to by the configuration. */
static struct http_get_options http_of(const struct pull *p)
{
    return (struct http_get_options){ .ca_file = p->conf->agent_ca_file,
        .connect_ms = p->conf->agent_connect_ms,
        .header_ms = p->conf->agent_header_ms,
        .silence_ms = p->conf->agent_silence_ms,
        .stop_fd = watch_stop_fd(p->watch) };
}

static struct backoff backoff_of(const struct pull *p)
{
    return (struct backoff){ .base_ms = p->conf->agent_backoff_ms, .cap_ms = BACKOFF_CAP_MS };
}

int pull_manifest(const struct pull *p, enum http_peer peer, struct buf *text, struct mishap *m)
{
    const struct fetch_whole w = { .url = p->manifest_url,
        .token = p->token,
        .peer = peer,
        .max = MANIFEST_BYTES_MAX,
        .http = http_of(p),
        .backoff = backoff_of(p) };

    return fetch_whole(&w, text, m) < 0 ? mishap_wrap(m, "manifest") : 0;
}

static int64_t bytes_had(const struct part *p)
{
    int64_t bytes = 0;

    for (size_t i = 0; i < p->manifest->shards; i++)
        bytes += p->have[i] ? manifest_place(p->manifest, i).size : 0;
    return bytes;
}

/* --- already there --- */

int pull_is_landed(
    const struct depot *d, const char *version, const struct digest *want, struct mishap *m)
{
    cleanup_landed struct landed v = LANDED_INIT;
    const int rc = landed_open(d, version, &v, m);

    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (!digest_equal(&v.digest, want, sizeof *want))
        return mishap_set(m, MISHAP_MANIFEST_MISMATCH,
            "version %s is here already, with another manifest", version);
    if (inspect_tree(&v.manifest, v.files, true, m) < 0 || land_finish(d, version, m) < 0)
        return -1;
    return 1;
}

/* --- what is here --- */

static int hash_leftovers(
    const struct pull *p, struct part *part, struct progress *shown, struct mishap *m)
{
    const struct rehash r = { .manifest = part->manifest,
        .files = part->files,
        .good = part->have,
        .holes_are_missing = true,
        .threads = HASH_THREADS,
        .stop = watch_stop_flag(p->watch) };

    progress_phase(shown, "hashing what is here", 0, part->manifest->total_bytes);
    return rehash_run(&r, m);
}

/* Everything that need not come over the network, before anything is connected to. */
static int gather(const struct pull *p, struct part *part, struct receipt *r,
    struct progress *shown, struct mishap *m)
{
    int64_t cloned = 0;

    if (hash_leftovers(p, part, shown, m) < 0)
        return -1;
    const int64_t found = bytes_had(part);
    const struct reuse_options o = {
        .part = part, .folder = p->adopt, .stop = watch_stop_flag(p->watch)
    };
    if (reuse_shards(&o, &cloned, m) < 0)
        return -1;
    *(part->taken ? &r->bytes_resumed : &r->bytes_avoided) += found;
    r->bytes_avoided += cloned;
    return 0;
}

/* --- what is not --- */

static void note_sources(
    struct receipt *r, const struct sources *s, const struct fetch_result *result)
{
    for (size_t i = 0; i < sources_count(s) && r->sources < RECEIPT_SOURCES_MAX; i++) {
        if (result->bytes[i] == 0)
            continue;
        struct receipt_source *to = &r->source[r->sources++];
        (void)str_copy(to->name, sizeof to->name, sources_name(s, i));
        to->bytes = result->bytes[i];
        r->bytes_fetched += result->bytes[i];
    }
    for (size_t i = 0; i < MISHAP__COUNT; i++)
        r->retries[i] += result->failures[i];
}

/* What is under way, and where it is shown. */
struct showing {
    struct progress *line;
    struct watch *watch;
    struct part *part;
    int64_t had_bytes;
};

static void show(const struct showing *s, struct fetch *f)
{
    const int64_t bytes = fetch_look(f).bytes;

    progress_show(s->line, bytes);
    watch_fetching(s->watch, s->part, s->had_bytes + bytes);
}

static int run_fetch(const struct fetch_options *o, const struct showing *s,
    struct fetch_result *result, struct mishap *m)
{
    struct err e = ERR_INIT;
    struct fetch *f = NULL;
    const _Atomic bool *stop = watch_stop_flag(s->watch);

    if (fetch_start(o, &f, &e) < 0)
        return mishap_err(m, MISHAP_DISK_READ, &e);
    while (!fetch_wait(f, clock_deadline(PROGRESS_MS))) {
        show(s, f);
        if (stop != NULL && atomic_load(stop))
            fetch_stop(f);
    }
    show(s, f);
    return fetch_end(f, result, m);
}

static unsigned per_source(const struct pull *p)
{
    const unsigned wanted = (unsigned)p->conf->agent_per_source;

    return p->per_source > 0 && p->per_source < wanted ? p->per_source : wanted;
}

static int fetch_missing(const struct pull *p, struct part *part, struct receipt *r,
    struct progress *shown, struct mishap *m)
{
    const int64_t had = bytes_had(part);
    const struct source_rules rules = { .token = p->token,
        .token_urls = p->conf->agent_token_urls,
        .local_urls = p->conf->agent_local_urls };
    cleanup_sources struct sources *s = sources_new(part->manifest, p->manifest_url, &rules);
    struct agent_sink into = {
        .part = part, .bytes_per_s = p->conf->agent_bytes_per_s, .stop_fd = watch_stop_fd(p->watch)
    };
    struct fetch_sink sink = agent_sink_of(&into);
    struct fetch_options o = { .manifest = part->manifest,
        .have = part->have,
        .sources = s,
        .sink = &sink,
        .http = http_of(p),
        .in_flight = (unsigned)p->conf->agent_in_flight,
        .per_source = per_source(p),
        .backoff = backoff_of(p) };
    struct fetch_result result = { .bytes = { 0 } };
    const struct showing showing = { shown, p->watch, part, had };

    watch_fetching(p->watch, part, had);
    if (had == part->manifest->total_bytes)
        return 0;
    cleanup_free bool *have = mem_calloc(part->manifest->shards + 1, sizeof *have);
    memcpy(have, part->have, part->manifest->shards * sizeof *have);
    o.have = have;
    into.buffer_bytes = agent_buffer_bytes(fetch_workers(&o));
    progress_phase(shown, "fetching", had, part->manifest->total_bytes);
    const int64_t began_ns = clock_mono_ns();
    const int rc = run_fetch(&o, &showing, &result, m);
    note_sources(r, s, &result);
    r->fetch_ms = (clock_mono_ns() - began_ns) / NS_PER_MS;
    return rc;
}

/* --- verifying --- */

/* Which shards are read back: all, or a twentieth, at random, and one at least. */
static void choose_sample(const struct manifest *m, bool all, bool *only)
{
    for (size_t i = 0; i < m->shards; i++)
        only[i] = all || arc4random_uniform(SAMPLE) == 0;
    if (m->shards > 0)
        only[arc4random_uniform((uint32_t)m->shards)] = true;
}

static int read_back(const struct pull *p, struct part *part, struct receipt *r, struct mishap *m)
{
    const struct manifest *mf = part->manifest;
    cleanup_free bool *only = mem_calloc(mf->shards + 1, sizeof *only);
    cleanup_free bool *good = mem_calloc(mf->shards + 1, sizeof *good);
    _Atomic int64_t bytes = 0;
    const struct rehash rh = { .manifest = mf,
        .files = part->files,
        .only = only,
        .good = good,
        .from_disk = true,
        .threads = HASH_THREADS,
        .stop = watch_stop_flag(p->watch),
        .hashed_bytes = &bytes };

    if (strcmp(p->conf->agent_readback, "none") == 0)
        return 0;
    choose_sample(mf, strcmp(p->conf->agent_readback, "all") == 0, only);
    if (rehash_run(&rh, m) < 0)
        return -1;
    for (size_t i = 0; i < mf->shards; i++) {
        if (only[i] && !good[i])
            return mishap_set(m, MISHAP_DISK_WRITE,
                "what was written to %.80s reads back otherwise: is the disk good?",
                mf->file[manifest_place(mf, i).file].path);
    }
    r->bytes_read_back = atomic_load(&bytes);
    return 0;
}

static int verify_part(const struct pull *p, struct part *part, struct receipt *r, struct mishap *m)
{
    const int64_t began_ns = clock_mono_ns();

    if (part_sync(part, m) < 0 || inspect_tree(part->manifest, part->files, false, m) < 0)
        return -1;
    if (bytes_had(part) != part->manifest->total_bytes)
        return mishap_set(m, MISHAP_MANIFEST_MISMATCH, "not all shards are there");
    watch_verifying(p->watch, part);
    if (read_back(p, part, r, m) < 0)
        return -1;
    r->verify_ms = (clock_mono_ns() - began_ns) / NS_PER_MS;
    return 0;
}

/* --- the whole --- */

static int fill(const struct pull *p, struct part *part, struct receipt *r, struct mishap *m)
{
    struct progress shown;

    progress_begin(&shown, p->manifest->artifact, p->manifest->version);
    int rc = gather(p, part, r, &shown, m);
    if (rc == 0)
        rc = fetch_missing(p, part, r, &shown, m);
    progress_end(&shown);
    if (rc < 0) {
        struct mishap ignored = MISHAP_INIT;
        (void)!part_sync(part, &ignored); /* what came is kept */
        return -1;
    }
    return verify_part(p, part, r, m);
}

static int pull_once(
    const struct pull *p, const struct depot *d, struct receipt *r, struct mishap *m)
{
    cleanup_part struct part *part = NULL;
    const struct digest digest = manifest_digest(p->text, p->size);
    int rc = pull_is_landed(d, p->manifest->version, &digest, m);

    if (rc != 0)
        return rc;
    *r = (struct receipt){ .digest = digest, .total_bytes = p->manifest->total_bytes };
    if (part_open(d, p->manifest, p->text, p->size, &part, m) < 0)
        return -1;
    if (p->adopt != NULL && p->move && reuse_move(part, p->adopt, m) < 0)
        return -1;
    if (part_prepare(part, p->conf->agent_capacity_bytes, m) < 0) {
        struct mishap ignored = MISHAP_INIT;
        if (!part->taken) /* nothing in it is worth the space it takes */
            (void)!part_remove(STEAL(part), &ignored);
        return -1;
    }
    if (fill(p, part, r, m) < 0)
        return -1;
    r->ended_us = clock_wall_us();
    rc = land_part(part, r, m);
    if (rc == 1 && part_remove(STEAL(part), m) < 0)
        return -1;
    return rc;
}

int pull_version(const struct pull *p, struct receipt *r, struct mishap *m)
{
    cleanup_depot struct depot d = DEPOT_INIT;
    int rc = depot_open(&d, p->root, p->manifest->artifact, true, m);

    for (int i = 0; i < AGAIN && rc == 0; i++) {
        rc = pull_once(p, &d, r, m);
        if (rc >= 0 || m->reason != MISHAP_TAKEN_OVER)
            return rc;
        rc = i + 1 < AGAIN ? 0 : -1;
    }
    return -1;
}
