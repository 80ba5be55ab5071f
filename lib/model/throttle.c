/* SPDX-License-Identifier: Apache-2.0 */
#include "model/throttle.h"

struct throttle throttle_fixed(int64_t limit)
{
    return (struct throttle){ .adaptive = false, .limit = limit, .most = limit };
}

struct throttle throttle_adaptive(int64_t start, int64_t most, int64_t step, int64_t window)
{
    return (struct throttle){
        .adaptive = true, .limit = start, .most = most, .step = step, .window = window
    };
}

void throttle_answer(struct throttle *t, uint64_t era, bool overloaded)
{
    if (!t->adaptive)
        return;
    if (overloaded) {
        t->good = 0;
        if (era != t->era)
            return;
        t->era++;
        t->limit = t->limit > 1 ? t->limit / 2 : 1;
        return;
    }
    if (++t->good < (t->window > 0 ? t->window : t->limit))
        return;
    t->good = 0;
    t->limit = t->limit + t->step < t->most ? t->limit + t->step : t->most;
}
