/* SPDX-License-Identifier: Apache-2.0 */
#include "model/job.h"

#include <assert.h>
#include <string.h>

#include "base/str.h"

static const char PREFIX[] = "job_";
static const char HEX[] = "0123456789abcdef";

bool job_uuid_valid(const char *text)
{
    static const size_t GROUP[] = { 8, 4, 4, 4, 12 };
    for (size_t g = 0; g < sizeof GROUP / sizeof GROUP[0]; g++) {
        if (strspn(text, HEX) != GROUP[g])
            return false;
        text += GROUP[g];
        if (g + 1 < sizeof GROUP / sizeof GROUP[0] && *text++ != '-')
            return false;
    }
    return *text == '\0';
}

void job_wire_id(const char *uuid, char out[JOB_WIRE_ID_SIZE])
{
    int cut = str_format(out, JOB_WIRE_ID_SIZE, "%s%s", PREFIX, uuid);
    assert(cut == 0);
}

bool job_wire_id_parse(const char *text, char uuid[UUID_SIZE])
{
    if (!str_starts(text, PREFIX) || !job_uuid_valid(text + strlen(PREFIX)))
        return false;
    (void)str_copy(uuid, UUID_SIZE, text + strlen(PREFIX));
    return true;
}

const char *intent_kind_name(enum intent_kind kind)
{
    static const char *const NAMES[] = {
        [INTENT_PROVISION] = "provision",
        [INTENT_CREATE_BATCH] = "create_batch",
        [INTENT_CANCEL_BATCH] = "cancel_batch",
        [INTENT_RELEASE] = "release",
        [INTENT_STRAY_BATCH] = "stray_batch",
    };
    return kind < INTENT__COUNT ? NAMES[kind] : "unknown";
}
