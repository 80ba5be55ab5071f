/* SPDX-License-Identifier: Apache-2.0 */
#include "daemons/agent_sink.h"

#include <poll.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/wait.h"
#include "depot/shard_writer.h"

enum { MIB = 1 << 20, BUFFER_MAX = 4 * MIB, BUFFERS = 16 * MIB };

size_t agent_buffer_bytes(unsigned threads)
{
    const size_t each = (size_t)BUFFERS / (threads > 0 ? threads : 1) / MIB * MIB;

    return each > BUFFER_MAX ? BUFFER_MAX : each < MIB ? MIB : each;
}

/* A thread's. */
struct hand {
    struct agent_sink *sink;
    struct shard_writer *writer;
};

static void *open_hand(void *ctx)
{
    struct agent_sink *s = ctx;
    struct hand *h = mem_calloc(1, sizeof *h);

    *h = (struct hand){ s, shard_writer_new(s->part, s->buffer_bytes) };
    return h;
}

static void close_hand(void *hand)
{
    struct hand *h = hand;

    shard_writer_free(h->writer);
    free(h);
}

/* Waits until so many bytes may be taken: each has its time on one line that all threads share. While nobody takes them, they stay in the
 * connection, which holds the sender back. */
static void pace(struct agent_sink *s, size_t size)
{
    const int64_t takes_ns = (int64_t)((double)size / (double)s->bytes_per_s * (double)NS_PER_S);
    int64_t free_ns = atomic_load(&s->free_ns);
    int64_t begin_ns = 0;

    do {
        const int64_t now_ns = clock_mono_ns();
        begin_ns = free_ns > now_ns ? free_ns : now_ns;
    } while (!atomic_compare_exchange_weak(&s->free_ns, &free_ns, begin_ns + takes_ns));
    (void)!wait_fd(s->stop_fd, POLLIN, begin_ns + takes_ns);
}

static int begin(void *hand, size_t shard, struct mishap *m)
{
    return shard_writer_begin(((struct hand *)hand)->writer, shard, m);
}

static int add(void *hand, const void *data, size_t size, struct mishap *m)
{
    const struct hand *h = hand;

    if (h->sink->bytes_per_s > 0)
        pace(h->sink, size);
    return shard_writer_add(h->writer, data, size, m);
}

static int end(void *hand, struct mishap *m)
{
    return shard_writer_end(((struct hand *)hand)->writer, m);
}

struct fetch_sink agent_sink_of(struct agent_sink *s)
{
    return (struct fetch_sink){
        .open = open_hand, .close = close_hand, .begin = begin, .add = add, .end = end, .ctx = s
    };
}
