/* SPDX-License-Identifier: Apache-2.0 */
#include "daemons/agent_tell.h"

#include "base/clock.h"
#include "base/str.h"
#include "json/jx.h"
#include "model/overlay.h"

enum { SPEED_SIZE = 48 };

void tell_begin(struct tell *r)
{
    *r = (struct tell){ .at_ns = 0 };
}

/* Since the last report; "" when there was none. */
static void speed_text(const struct tell *r, int64_t bytes, int64_t now_ns, char out[SPEED_SIZE])
{
    char number[32];

    out[0] = '\0';
    if (r->at_ns == 0 || now_ns <= r->at_ns || bytes < r->bytes)
        return;
    const double seconds = (double)(now_ns - r->at_ns) / (double)NS_PER_S;
    overlay_bytes_text(number, (int64_t)((double)(bytes - r->bytes) / seconds));
    (void)str_format(out, SPEED_SIZE, "%s/s", number);
}

void tell_print(struct tell *r, struct watch *w, struct buf *out)
{
    const int64_t now_ns = clock_mono_ns();
    char speed[SPEED_SIZE];
    cleanup_json json_object *o = jx_object();
    cleanup_unlock pthread_mutex_t *held = thread_lock(&w->lock);

    speed_text(r, w->bytes, now_ns, speed);
    *r = (struct tell){ w->bytes, now_ns };
    jx_set_str(o, "phase", w->verifying ? "verify" : "fetch");
    jx_set_int(o, "bytes", w->bytes);
    if (w->verified.len > 0)
        jx_set_str(o, "verified", w->verified.data);
    jx_set_some(o, "file_name", w->file);
    jx_set_some(o, "speed", speed);
    jx_print(o, out);
}
