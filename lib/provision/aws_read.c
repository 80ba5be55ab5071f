/* SPDX-License-Identifier: Apache-2.0 */
#include "provision/aws_read.h"

#include <limits.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/str.h"
#include "json/jx.h"

enum { SSH_PORT = 22, MIB_PER_GB = 1024, EIGHT_GB = 8 * MIB_PER_GB };

static size_t length(json_object *list)
{
    return json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
}

static int64_t number(json_object *o, const char *key)
{
    const char *text = "";
    int64_t n = 0;
    (void)jx_get_str(o, key, &text);
    return str_to_i64(text, 0, INT_MAX, &n) < 0 ? 0 : n;
}

/* --- instances -------------------------------------------------------------------------------- */

static enum fleet_state state_of(const struct machine *m)
{
    static const struct {
        const char *word;
        enum fleet_state state;
    } WORDS[] = {
        { "running", FLEET_RUNNING },
        { "stopping", FLEET_BROKEN },
        { "stopped", FLEET_BROKEN },
        { "shutting-down", FLEET_GONE },
        { "terminated", FLEET_GONE },
    };
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        if (strcmp(m->state, WORDS[i].word) == 0)
            return WORDS[i].state == FLEET_RUNNING && m->host[0] == '\0' ? FLEET_STARTING
                                                                         : WORDS[i].state;
    }
    return FLEET_STARTING;
}

static void read_tags(json_object *tags, struct fleet_machine *out)
{
    for (size_t i = 0; i < length(tags); i++) {
        json_object *tag = json_object_array_get_idx(tags, i);
        const char *key = "";
        const char *value = "";
        int64_t replica = 0;
        if (!jx_get_str(tag, "key", &key) || !jx_get_str(tag, "value", &value))
            continue;
        if (strcmp(key, "Name") == 0 && str_copy(out->name, sizeof out->name, value) < 0)
            out->name[0] = '\0';
        if (strcmp(key, AWS_TAG_REPLICA) == 0 &&
            str_to_i64(value, 0, PROVISION_REPLICAS_MAX, &replica) == 0)
            out->replica = (int)replica;
    }
}

void aws_read_instance(json_object *item, const struct aws_reading *how, struct fleet_machine *out)
{
    struct fleet_machine f = { .name = "", .replica = -1 };
    struct machine *m = &f.m;
    char reason[PROVISION_TEXT_SIZE];
    char address[PROVISION_TEXT_SIZE];
    fleet_read_text(item, "instanceId", m->id, sizeof m->id);
    fleet_read_text(item, "instanceType", m->type, sizeof m->type);
    fleet_read_text(jx_get(item, "instanceState"), "name", m->state, sizeof m->state);
    fleet_read_text(item, "privateIpAddress", m->private_host, sizeof m->private_host);
    fleet_read_text(item, "ipAddress", address, sizeof address);
    fleet_read_text(item, "launchTime", f.launched, sizeof f.launched);
    fleet_read_text(jx_get(item, "stateReason"), "code", reason, sizeof reason);
    (void)str_copy(f.region, sizeof f.region, how->region);
    (void)str_copy(m->host, sizeof m->host,
        how->private_address || address[0] == '\0' ? m->private_host : address);
    if (m->host[0] != '\0') {
        (void)str_copy(m->ssh_user, sizeof m->ssh_user, how->ssh_user);
        m->ssh_port = SSH_PORT;
        (void)str_format(m->url, sizeof m->url, "http://%s:8000", m->host);
    }
    read_tags(jx_get(item, "tagSet"), &f);
    f.state = state_of(m);
    f.no_room = f.state == FLEET_GONE && strcmp(reason, "Server.InsufficientInstanceCapacity") == 0;
    *out = f;
}

void aws_read_reservations(
    json_object *answer, const struct aws_reading *how, struct fleet_machines *out)
{
    json_object *reservations = jx_get(answer, "reservationSet");
    for (size_t i = 0; i < length(reservations); i++) {
        json_object *set = jx_get(json_object_array_get_idx(reservations, i), "instancesSet");
        for (size_t j = 0; j < length(set); j++) {
            struct fleet_machine m;
            aws_read_instance(json_object_array_get_idx(set, j), how, &m);
            if (m.m.id[0] != '\0')
                fleet_add(out, &m);
        }
    }
}

int64_t aws_age_s(const char *launched, int64_t now_us)
{
    struct tm t = { .tm_sec = 0 };
    if (launched[0] == '\0' || strptime(launched, "%Y-%m-%dT%H:%M:%S", &t) == NULL)
        return INT64_MAX;
    return now_us / US_PER_S - (int64_t)timegm(&t);
}

/* --- types ------------------------------------------------------------------------------------ */

/* What the maker prints on it: some report a little less than it has, and that is left out. */
static void describe_gpu(json_object *gpu, struct aws_type *out)
{
    char maker[PROVISION_TEXT_SIZE / 3];
    char name[PROVISION_TEXT_SIZE / 3];
    const int64_t mib = number(jx_get(gpu, "memoryInfo"), "sizeInMiB");
    fleet_read_text(gpu, "manufacturer", maker, sizeof maker);
    fleet_read_text(gpu, "name", name, sizeof name);
    if (mib > 0 && mib % EIGHT_GB == 0)
        (void)str_format(out->gpu, sizeof out->gpu, "%s %s (%lld GB)", maker, name,
            (long long)(mib / MIB_PER_GB));
    else
        (void)str_format(out->gpu, sizeof out->gpu, "%s %s", maker, name);
}

bool aws_read_type(json_object *item, struct aws_type *out)
{
    struct aws_type t = { .name = "" };
    json_object *gpus = jx_get(jx_get(item, "gpuInfo"), "gpus");
    fleet_read_text(item, "instanceType", t.name, sizeof t.name);
    for (size_t i = 0; i < length(gpus); i++) {
        const int64_t n = number(json_object_array_get_idx(gpus, i), "count");
        t.gpus += n > 0 && n <= PROVISION_GPUS_MAX ? (int)n : 0;
    }
    if (t.name[0] == '\0' || t.gpus <= 0 || t.gpus > PROVISION_GPUS_MAX)
        return false;
    describe_gpu(json_object_array_get_idx(gpus, 0), &t);
    t.vcpus = number(jx_get(item, "vCpuInfo"), "defaultVCpus");
    t.memory_mib = number(jx_get(item, "memoryInfo"), "sizeInMiB");
    *out = t;
    return true;
}
