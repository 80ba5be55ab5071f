/* SPDX-License-Identifier: Apache-2.0 */
#include "store/guess.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"

/* Each key has two places, so that keys rarely contend for one until the table is full. A value takes
 * about 600 bytes here, 2 KiB at most. */
enum { PLACES = 4096, VALUE_MAX = 1024 };

/* room: the overlay, whose texts are offsets into room; the texts; the value. */
struct place {
    uint64_t hash; /* of the key */
    size_t size;   /* 0: nothing is here */
    size_t value_size;
    size_t capacity;
    char *room;
};

static struct place places[PLACES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const size_t TEXTS[] = {
    offsetof(struct overlay, key),
    offsetof(struct overlay, node_name),
    offsetof(struct overlay, file_name),
    offsetof(struct overlay, speed),
    offsetof(struct overlay, message),
    offsetof(struct overlay, started_at),
    offsetof(struct overlay, claim),
    offsetof(struct overlay, session),
};
enum { N_TEXTS = sizeof(TEXTS) / sizeof(TEXTS[0]) };

_Static_assert(sizeof(uintptr_t) == sizeof(const char *), "an offset takes a pointer's place");

/* FNV-1a, and the end of MurmurHash3, without which the upper half of similar keys' hashes is similar. */
static uint64_t hash_of(const char *key)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *key != '\0'; key++)
        h = (h ^ (unsigned char)*key) * UINT64_C(1099511628211);
    h = (h ^ (h >> 33)) * UINT64_C(0xFF51AFD7ED558CCD);
    return h ^ (h >> 33);
}

static struct place *first_of(uint64_t hash)
{
    return &places[hash % PLACES];
}

static struct place *second_of(uint64_t hash)
{
    return &places[(hash >> 32) % PLACES];
}

/* Two keys with one hash take each other's place. Under the lock. */
static struct place *find(uint64_t hash)
{
    struct place *first = first_of(hash);
    struct place *second = second_of(hash);
    if (first->size > 0 && first->hash == hash)
        return first;
    return second->size > 0 && second->hash == hash ? second : NULL;
}

void guess_free(struct guess *g)
{
    buf_free(&g->room);
}

/* Puts pointers where the offsets were. */
static void point(struct guess *g, size_t value_size)
{
    memcpy(&g->overlay, g->room.data, sizeof(g->overlay));
    for (size_t i = 0; i < N_TEXTS; i++) {
        uintptr_t offset = 0;
        memcpy(&offset, (char *)&g->overlay + TEXTS[i], sizeof(offset));
        const char *text = g->room.data + offset;
        memcpy((char *)&g->overlay + TEXTS[i], &text, sizeof(text));
    }
    g->size = value_size;
    g->value = g->room.data + g->room.len - value_size;
}

bool guess_recall(const char *key, struct guess *g)
{
    const uint64_t hash = hash_of(key);
    size_t value_size = 0;

    pthread_mutex_lock(&lock);
    const struct place *p = find(hash);
    if (p != NULL) {
        buf_add(&g->room, p->room, p->size);
        value_size = p->value_size;
    }
    pthread_mutex_unlock(&lock);
    if (value_size == 0)
        return false;
    point(g, value_size);
    if (strcmp(g->overlay.key, key) == 0)
        return true;
    g->value = NULL;
    return false;
}

/* The overlay, its texts and the value in one piece. */
static void pack(const struct overlay *o, const struct buf *value, struct buf *out)
{
    struct overlay offsets = *o;
    buf_add(out, &offsets, sizeof(offsets));
    for (size_t i = 0; i < N_TEXTS; i++) {
        const char *text = NULL;
        uintptr_t offset = out->len;
        memcpy(&text, (const char *)o + TEXTS[i], sizeof(text));
        buf_add(out, text, strlen(text) + 1);
        memcpy((char *)&offsets + TEXTS[i], &offset, sizeof(offset));
    }
    memcpy(out->data, &offsets, sizeof(offsets));
    buf_add(out, value->data, value->len);
}

/* Where a key that is nowhere yet goes. Under the lock. */
static struct place *vacate(uint64_t hash)
{
    struct place *first = first_of(hash);
    return first->size > 0 && second_of(hash)->size == 0 ? second_of(hash) : first;
}

void guess_remember(const struct overlay *o, const struct buf *value)
{
    cleanup_buf struct buf room = BUF_INIT(SIZE_MAX / 2);
    if (value->len > VALUE_MAX) {
        guess_forget(o->key);
        return;
    }
    pack(o, value, &room);
    const uint64_t hash = hash_of(o->key);

    pthread_mutex_lock(&lock);
    struct place *p = find(hash);
    if (p == NULL)
        p = vacate(hash);
    if (p->capacity < room.len) {
        p->room = mem_resize(p->room, room.len, 1);
        p->capacity = room.len;
    }
    memcpy(p->room, room.data, room.len);
    p->hash = hash;
    p->size = room.len;
    p->value_size = value->len;
    pthread_mutex_unlock(&lock);
}

void guess_forget(const char *key)
{
    pthread_mutex_lock(&lock);
    struct place *p = find(hash_of(key));
    if (p != NULL) {
        free(p->room);
        *p = (struct place){ .size = 0 };
    }
    pthread_mutex_unlock(&lock);
}
