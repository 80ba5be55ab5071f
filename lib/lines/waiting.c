/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "base/mem.h"
#include "lines/engine_internal.h"

void waiting_put(struct flow *f, const struct waiting *w)
{
    if (f->n_waiting == f->cap_waiting) {
        f->cap_waiting = f->cap_waiting == 0 ? 64 : f->cap_waiting * 2;
        f->waiting = mem_resize(f->waiting, f->cap_waiting, sizeof *f->waiting);
    }
    f->waiting[f->n_waiting++] = *w;
    if (w->due_ns < f->next_due_ns)
        f->next_due_ns = w->due_ns;
}

bool waiting_take(struct flow *f, int64_t now_ns, struct waiting *out)
{
    size_t found = f->n_waiting;
    int64_t next_ns = INT64_MAX;

    for (size_t i = 0; i < f->n_waiting; i++) {
        const int64_t due_ns = f->waiting[i].due_ns;
        if (found == f->n_waiting && due_ns <= now_ns)
            found = i;
        else if (due_ns < next_ns)
            next_ns = due_ns;
    }
    f->next_due_ns = next_ns;
    if (found == f->n_waiting)
        return false;
    *out = f->waiting[found];
    f->waiting[found] = f->waiting[--f->n_waiting];
    return true;
}

char *waiting_text(const struct flow *f, const struct waiting *w, struct err *e)
{
    cleanup_free char *text = mem_calloc(w->size + 1, 1);

    if (file_read_at(f->o.input, text, w->size, w->offset) < 0) {
        (void)err_errno(e, ERR_UNAVAILABLE, "the input file cannot be read");
        return NULL;
    }
    return STEAL(text);
}
