/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/operation_json.h"

#include <inttypes.h>
#include <string.h>

#include "base/str.h"
#include "handlers/json_text.h"

/* The list is printed five times a second with up to thousands of entries. An object of json-c for each
 * entry, with its hash table and a value for each member, takes about twice the time: so the keys are
 * written directly, and one json-c string is used over and over for the texts. */
struct printer {
    json_object *text;
    struct buf *out;
};

static const char *task_name(enum op_task task)
{
    switch (task) {
    case OP_TASK_STAGING:
        return "staging";
    case OP_TASK_DELETION:
        return "deletion";
    case OP_TASK_INSTALLATION:
        break;
    }
    return "installation";
}

/* prefix: the key with what stands before and after it. NULL text leaves the member out. */
static void put_text(struct printer *p, const char *prefix, const char *text)
{
    if (!text)
        return;
    buf_puts(p->out, prefix);
    if (text[0] == '\0') {
        /* json-c 0.16 loses the memory of a string that is set to the empty one. */
        buf_puts(p->out, "\"\"");
        return;
    }
    cleanup_buf struct buf room = BUF_INIT(0);
    const char *valid = json_text(text, &room);
    size_t size = strlen(valid);
    if (size > INT32_MAX || !json_object_set_string_len(p->text, valid, (int)size))
        abort();
    jx_print(p->text, p->out);
}

static void put_bool(struct printer *p, const char *prefix, bool b)
{
    buf_puts(p->out, prefix);
    buf_puts(p->out, b ? "true" : "false");
}

static void put_int(struct printer *p, const char *prefix, int64_t n)
{
    char digits[24];
    (void)str_format(digits, sizeof(digits), "%" PRId64, n);
    buf_puts(p->out, prefix);
    buf_puts(p->out, digits);
}

static void put_bytes(struct printer *p, const char *prefix, int64_t bytes, enum op_task task)
{
    if (bytes != 0 || task == OP_TASK_STAGING)
        put_int(p, prefix, bytes);
}

/* The order is part of the contract: the UI compares the text of two polls. */
static void put_entry(struct printer *p, const struct op_entry *e)
{
    put_text(p, "{\"id\":", e->id);
    put_text(p, ",\"jobID\":", e->job_id);
    put_text(p, ",\"name\":", e->name);
    put_text(p, ",\"fullName\":", e->full_name);
    put_int(p, ",\"progress\":", e->progress);
    put_text(p, ",\"taskType\":", task_name(e->task));
    put_bool(p, ",\"isDeletion\":", e->is_deletion);
    put_bool(p, ",\"isBackend\":", e->is_backend);
    put_bool(p, ",\"isQueued\":", e->is_queued);
    put_bool(p, ",\"cancellable\":", e->cancellable);
    put_text(p, ",\"message\":", e->message);
    put_text(p, ",\"nodeID\":", e->node_id);
    put_text(p, ",\"nodeName\":", e->node_name);
    put_text(p, ",\"phase\":", e->phase);
    put_bytes(p, ",\"currentBytes\":", e->current_bytes, e->task);
    put_bytes(p, ",\"totalBytes\":", e->total_bytes, e->task);
    put_text(p, ",\"error\":", e->error);
    buf_putc(p->out, '}');
}

void operations_print(const struct ops_list *l, struct buf *out)
{
    cleanup_json json_object *text = json_object_new_string("");
    if (!text)
        abort();
    struct printer p = { .text = text, .out = out };
    buf_puts(out, "{\"operations\":[");
    for (size_t i = 0; i < l->n; i++) {
        if (i > 0)
            buf_putc(out, ',');
        put_entry(&p, &l->entry[i]);
    }
    buf_puts(out, "]}");
}
