/* SPDX-License-Identifier: Apache-2.0 */
#include "daemons/agent_sink.h"

#include "depot/shard_writer.h"

enum { MIB = 1 << 20, BUFFER_MAX = 4 * MIB, BUFFERS = 16 * MIB };

size_t agent_buffer_bytes(unsigned threads)
{
    const size_t each = (size_t)BUFFERS / (threads > 0 ? threads : 1) / MIB * MIB;

    return each > BUFFER_MAX ? BUFFER_MAX : each < MIB ? MIB : each;
}

static void *open_hand(void *ctx)
{
    const struct agent_sink *s = ctx;
    return shard_writer_new(s->part, s->buffer_bytes);
}

static void close_hand(void *hand)
{
    shard_writer_free(hand);
}

static int begin(void *hand, size_t shard, struct mishap *m)
{
    return shard_writer_begin(hand, shard, m);
}

static int add(void *hand, const void *data, size_t size, struct mishap *m)
{
    return shard_writer_add(hand, data, size, m);
}

static int end(void *hand, struct mishap *m)
{
    return shard_writer_end(hand, m);
}

struct fetch_sink agent_sink_of(struct agent_sink *s)
{
    return (struct fetch_sink){
        .open = open_hand, .close = close_hand, .begin = begin, .add = add, .end = end, .ctx = s
    };
}
