/* SPDX-License-Identifier: Apache-2.0 */
/* Input: changes to a good block, three bytes each (where, low byte first, and what is flipped there). The first byte
 * chooses: odd, all that follows is the block itself. What is taken merges, prints as JSON and comes back the same. */
#include "base/buf.h"
#include "base/mem.h"
#include "handlers/operation_json.h"
#include "json/jx.h"
#include "model/ops.h"
#include "tests/fake/poll_scene.h"
#include "tests/fuzz/fuzz.h"

enum { BLOCK_MAX = 1 << 20, PRINT_MAX = 1 << 24 };

static void check_merge(const struct poll_state *s, bool postgres_up)
{
    const struct ops_input in = poll_scene_input(s, postgres_up);
    cleanup_ops_list struct ops_list list = OPS_LIST_INIT;
    cleanup_buf struct buf out = BUF_INIT(PRINT_MAX);
    cleanup_json json_object *top = NULL;
    ops_merge(&in, &list);
    operations_print(&list, &out);
    assert(!out.overflow);
    assert(jx_parse(out.data, out.len, PRINT_MAX, &top, NULL) == 0);
    assert(json_object_array_length(json_object_object_get(top, "operations")) == list.n);
}

static void check_again(const struct poll_state *s)
{
    struct err e = ERR_INIT;
    cleanup_buf struct buf first = BUF_INIT(PRINT_MAX);
    cleanup_buf struct buf second = BUF_INIT(PRINT_MAX);
    cleanup_poll_state struct poll_state again = POLL_STATE_INIT;
    poll_state_pack(s, &first);
    assert(!first.overflow && poll_state_unpack(first.data, first.len, &again, &e) == 0);
    poll_state_pack(&again, &second);
    assert(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
}

/* The block of the input, in memory of just its size. */
static char *block_of(const uint8_t *data, size_t size, size_t *block_size)
{
    if (size > 0 && data[0] % 2 == 1) {
        *block_size = size - 1;
        return mem_dup(data + 1, size - 1);
    }
    cleanup_buf struct buf block = BUF_INIT(BLOCK_MAX);
    const struct poll_state scene = poll_scene();
    poll_state_pack(&scene, &block);
    for (size_t i = 1; i + 2 < size; i += 3)
        block.data[((size_t)data[i + 1] << 8 | data[i]) % block.len] ^= (char)data[i + 2];
    *block_size = block.len;
    return mem_dup(block.data, block.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = ERR_INIT;
    size_t block_size = 0;
    cleanup_poll_state struct poll_state s = POLL_STATE_INIT;
    cleanup_free char *block = block_of(data, size, &block_size);
    if (poll_state_unpack(block, block_size, &s, &e) < 0) {
        assert(e.code == ERR_INVALID);
        return 0;
    }
    check_merge(&s, true);
    check_merge(&s, false);
    check_again(&s);
    return 0;
}
