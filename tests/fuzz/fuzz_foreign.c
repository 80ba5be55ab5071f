/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the answer of a foreign API: a batch or an error is read out of it, or nothing, and what is read
 * is fit for rows and logs. */
#include <ctype.h>
#include <string.h>

#include "base/str.h"
#include "batch/batch_client.h"
#include "http/http_json.h"
#include "json/jx_xml.h"
#include "model/gpu_match.h"
#include "provision/aws_read.h"
#include "provision/hooks.h"
#include "provision/kubernetes_read.h"
#include "tests/fuzz/fuzz.h"

enum { TEXT_SIZE = 64, SECRET_SIZE = 4 };

static void check_text(const char *text, size_t size)
{
    assert(strlen(text) < size);
    assert(str_utf8_valid(text, strlen(text)));
    for (const char *p = text; *p; p++)
        assert(!iscntrl((unsigned char)*p));
}

static void check_batch(json_object *o)
{
    cleanup_batch struct batch b = BATCH_INIT;
    if (batch_read(o, &b, NULL) < 0)
        return;
    assert(b.id[0] != '\0');
    assert(b.errors <= BATCH_ERRORS_MAX);
    assert(b.times.created_at >= 0 && b.times.expires_at >= 0);
    assert(b.counts.total >= 0 && b.counts.completed >= 0 && b.counts.failed >= 0);
    assert(b.usage.total_tokens >= 0);
    check_text(b.id, sizeof b.id);
    check_text(b.job_id, sizeof b.job_id);
    check_text(b.status_word, sizeof b.status_word);
    check_text(b.output_file_id, sizeof b.output_file_id);
    for (size_t i = 0; i < b.errors; i++) {
        check_text(b.error[i].message, sizeof b.error[i].message);
        assert(b.error[i].line >= 0);
    }
}

/* The first bytes of the answer are taken for our secret: it must not come out. */
static void check_error(json_object *o, const uint8_t *data, size_t size)
{
    char text[TEXT_SIZE];
    char secret[SECRET_SIZE + 1] = "";
    for (size_t i = 0; i < SECRET_SIZE && i < size; i++)
        secret[i] = (char)('a' + data[i] % 26);
    http_error_text(o, secret, text, sizeof text);
    check_text(text, sizeof text);
    assert(secret[0] == '\0' || strstr(text, secret) == NULL);
}

static void check_spec(json_object *o)
{
    struct provision_spec spec;
    const struct hook_job job = { .model = "m", .replicas = 1, .spec = o, .provider_config = o };
    if (provision_spec_read(o, &spec, NULL) == 0)
        assert(spec.replicas >= 1 && spec.gpus_per_replica >= 0);
    if (PROVISION_DEFAULT_HOOKS.schedule(&job, &spec, NULL) < 0)
        return;
    assert(spec.replicas == 1 && spec.gpus_per_replica <= PROVISION_GPUS_MAX);
    (void)gpu_match(spec.gpu_type, "gpu_8x_a100_80gb_sxm4", spec.region);
    cleanup_json json_object *back = provision_spec_json(&spec);
    int read = provision_spec_read(back, &spec, NULL);
    assert(read == 0);
}

/* What a cluster and a cloud tell: whatever is read is within bounds. */
static void check_machines(json_object *o)
{
    struct kubernetes_deployment_state d;
    struct kubernetes_trouble trouble = { .unschedulable = 0 };
    const struct aws_reading how = { .region = "r", .ssh_user = "u" };
    cleanup_fleet struct fleet_machines l = FLEET_MACHINES_INIT;
    struct aws_type type;
    if (kubernetes_read_deployment(o, &d, NULL) == 0) {
        assert(d.ready >= 0 && d.replicas >= 0);
        check_text(d.uid, sizeof d.uid);
        check_text(d.text, sizeof d.text);
    }
    kubernetes_read_pod(o, &trouble);
    check_text(trouble.text, sizeof trouble.text);
    aws_read_reservations(o, &how, &l);
    for (size_t i = 0; i < l.n; i++) {
        assert(l.at[i].m.id[0] != '\0' && l.at[i].replica >= -1);
        check_text(l.at[i].m.id, sizeof l.at[i].m.id);
        check_text(l.at[i].m.url, sizeof l.at[i].m.url);
        (void)aws_age_s(l.at[i].launched, 0);
    }
    if (aws_read_type(o, &type))
        assert(type.gpus > 0 && type.gpus <= PROVISION_GPUS_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_json json_object *o = NULL;
    const bool xml = size > 0 && data[0] == '<';
    if ((xml ? jx_parse_xml((const char *)data, size, &o, NULL)
             : jx_parse((const char *)data, size, 1 << 16, &o, NULL)) < 0)
        return 0;
    check_batch(o);
    check_error(o, data, size);
    check_spec(o);
    check_machines(o);
    return 0;
}
