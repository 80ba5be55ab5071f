/* SPDX-License-Identifier: Apache-2.0 */
#include "model/batch.h"

#include <string.h>

static const struct {
    const char *name;
    bool ended;
} STATUS[BATCH_STATUS__COUNT] = {
#define BATCH_STATUS(id, name_, ended_) [BATCH_##id] = { .name = (name_), .ended = (ended_) },
#include "model/batch_status.def"
#undef BATCH_STATUS
    [BATCH_STATUS_UNKNOWN] = { .name = "", .ended = false },
};

const char *batch_status_name(enum batch_status s)
{
    return STATUS[s].name;
}

enum batch_status batch_status_parse(const char *word)
{
    for (enum batch_status s = 0; s < BATCH_STATUS_UNKNOWN; s++) {
        if (strcmp(word, STATUS[s].name) == 0)
            return s;
    }
    return BATCH_STATUS_UNKNOWN;
}

bool batch_status_ended(enum batch_status s)
{
    return STATUS[s].ended;
}

void batch_fini(struct batch *b)
{
    free(b->error);
    b->error = NULL;
    b->errors = 0;
}
