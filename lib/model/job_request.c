/* SPDX-License-Identifier: Apache-2.0 */
#include "model/job_request.h"

#include <string.h>

#include "base/str.h"
#include "model/job_window.h"

static const char *const ENDPOINTS[] = { "/v1/responses", "/v1/chat/completions", "/v1/embeddings",
    "/v1/completions", "/v1/moderations", "/v1/images/generations", "/v1/images/edits",
    "/v1/videos", "/v1/rerank" };

static const char *const NAMES[FIELD__COUNT][2] = {
    [FIELD_INPUT_FILE] = { "input_dataset", "input_file_id" },
    [FIELD_ENDPOINT] = { "endpoint", "endpoint" },
    [FIELD_COMPLETION_WINDOW] = { "completion_window", "completion_window" },
    [FIELD_NAME] = { "name", "metadata" },
    [FIELD_MODEL] = { "model_id", "aibrix.model" },
    [FIELD_TEMPLATE_NAME] = { "model_template_name", "aibrix.model_template.name" },
    [FIELD_TEMPLATE_VERSION] = { "model_template_version", "aibrix.model_template.version" },
    [FIELD_REQUEST_COUNT_TOTAL] = { "request_count_total", "request_count_total" },
    [FIELD_REPLICAS] = { "resource_request.replicas", "aibrix.resource_request.replicas" },
    [FIELD_METADATA] = { "metadata", "metadata" },
    [FIELD_PRIORITY] = { "priority", "weighbridge.priority" },
    [FIELD_POOL] = { "resource_request.provider_config.pool",
        "aibrix.resource_request.provider_config.pool" },
    [FIELD_OUTPUT_ANCHOR] = { "output_expires_after.anchor", "output_expires_after.anchor" },
    [FIELD_OUTPUT_EXPIRES] = { "output_expires_after.seconds", "output_expires_after.seconds" },
    [FIELD_MAX_CONCURRENCY] = { "client.max_concurrency", "aibrix.client.max_concurrency" },
    [FIELD_ADAPTIVE_CONCURRENCY] = { "client.adaptive_concurrency",
        "aibrix.client.adaptive_concurrency" },
    [FIELD_ADAPTIVE_MAX_FACTOR] = { "client.adaptive_max_factor",
        "aibrix.client.adaptive_max_factor" },
    [FIELD_ADAPTIVE_HEALTHY_WINDOW] = { "client.adaptive_healthy_window",
        "aibrix.client.adaptive_healthy_window" },
    [FIELD_ADAPTIVE_ADDITIVE_INCREASE] = { "client.adaptive_additive_increase",
        "aibrix.client.adaptive_additive_increase" },
    [FIELD_REQUEST_TIMEOUT] = { "client.request_timeout_seconds",
        "aibrix.client.request_timeout_seconds" },
    [FIELD_MAX_RETRIES] = { "client.retry_policy.max_retries",
        "aibrix.client.retry_policy.max_retries" },
    [FIELD_BASE_DELAY] = { "client.retry_policy.base_delay_seconds",
        "aibrix.client.retry_policy.base_delay_seconds" },
    [FIELD_MAX_DELAY] = { "client.retry_policy.max_delay_seconds",
        "aibrix.client.retry_policy.max_delay_seconds" },
    [FIELD_NO_ENDPOINT_MAX_RETRIES] = { "client.retry_policy.no_endpoint_max_retries",
        "aibrix.client.retry_policy.no_endpoint_max_retries" },
};

enum {
    OUTPUT_EXPIRES_MIN_S = 3600,
    OUTPUT_EXPIRES_MAX_S = 2592000,
};

const char *job_field_name(enum job_dialect dialect, enum job_field field)
{
    return NAMES[field][dialect];
}

bool job_endpoint_known(const char *endpoint)
{
    for (size_t i = 0; i < sizeof ENDPOINTS / sizeof ENDPOINTS[0]; i++) {
        if (strcmp(endpoint, ENDPOINTS[i]) == 0)
            return true;
    }
    return false;
}

/* What is wrong, as it is found: the field, and the words that follow its name. */
struct fault {
    const struct job_request *r;
    enum job_field bad;
    struct err *e;
};

static int refuse(struct fault *f, enum job_field field, const char *words)
{
    f->bad = field;
    return err_set(f->e, ERR_INVALID, "%s: %s", job_field_name(f->r->dialect, field), words);
}

static int check_text(
    struct fault *f, enum job_field field, const char *text, size_t most, bool required)
{
    if (str_empty(text))
        return required ? refuse(f, field, "is required") : 0;
    if (!str_utf8_valid(text, strlen(text)))
        return refuse(f, field, "must be UTF-8");
    if (str_utf8_length(text) > most) {
        char words[64];
        (void)str_format(words, sizeof words, "must have at most %zu characters", most);
        return refuse(f, field, words);
    }
    return 0;
}

static int check_texts(struct fault *f)
{
    const struct job_request *r = f->r;
    const struct {
        const char *text;
        size_t most;
        enum job_field field;
        bool required;
    } texts[] = {
        { r->input_file, JOB_TEXT_MAX, FIELD_INPUT_FILE, true },
        { r->endpoint, JOB_TEXT_MAX, FIELD_ENDPOINT, true },
        { r->name, JOB_NAME_MAX, FIELD_NAME, false },
        { r->model, JOB_TEXT_MAX, FIELD_MODEL, false },
        { r->template_name, JOB_TEXT_MAX, FIELD_TEMPLATE_NAME, false },
        { r->template_version, JOB_TEXT_MAX, FIELD_TEMPLATE_VERSION, false },
        { r->pool, JOB_POOL_MAX, FIELD_POOL, false },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (check_text(f, texts[i].field, texts[i].text, texts[i].most, texts[i].required) < 0)
            return -1;
    }
    return 0;
}

static int check_numbers(struct fault *f)
{
    const struct job_request *r = f->r;
    const struct {
        enum job_field field;
        int64_t value;
        int64_t min;
        int64_t max;
    } numbers[] = {
        { FIELD_REQUEST_COUNT_TOTAL, r->request_count_total, 0, INT32_MAX },
        { FIELD_REPLICAS, r->replicas, 0, JOB_REPLICAS_MAX },
        { FIELD_PRIORITY, r->priority, -JOB_PRIORITY_MAX, JOB_PRIORITY_MAX },
        { FIELD_OUTPUT_EXPIRES, r->output_expires_s, OUTPUT_EXPIRES_MIN_S, OUTPUT_EXPIRES_MAX_S },
        { FIELD_MAX_CONCURRENCY, r->client.max_concurrency, 1, JOB_CONCURRENCY_MAX },
        { FIELD_ADAPTIVE_MAX_FACTOR, r->client.adaptive_max_factor, 1, INT32_MAX },
        { FIELD_ADAPTIVE_HEALTHY_WINDOW, r->client.adaptive_healthy_window, 1, INT32_MAX },
        { FIELD_ADAPTIVE_ADDITIVE_INCREASE, r->client.adaptive_additive_increase, 1, INT32_MAX },
        { FIELD_REQUEST_TIMEOUT, r->client.request_timeout_s, 1, INT32_MAX },
        { FIELD_MAX_RETRIES, r->client.max_retries, 0, INT32_MAX },
        { FIELD_NO_ENDPOINT_MAX_RETRIES, r->client.no_endpoint_max_retries, 0, INT32_MAX },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char words[96];
        if (numbers[i].value == JOB_UNSET ||
            (numbers[i].value >= numbers[i].min && numbers[i].value <= numbers[i].max))
            continue;
        (void)str_format(words, sizeof words, "must be from %lld to %lld",
            (long long)numbers[i].min, (long long)numbers[i].max);
        return refuse(f, numbers[i].field, words);
    }
    if (!isnan(r->client.base_delay_s) && !(r->client.base_delay_s >= 0))
        return refuse(f, FIELD_BASE_DELAY, "must not be negative");
    if (!isnan(r->client.max_delay_s) && !(r->client.max_delay_s >= 0))
        return refuse(f, FIELD_MAX_DELAY, "must not be negative");
    return 0;
}

static bool fits(const char *text, size_t most)
{
    return str_utf8_valid(text, strlen(text)) && str_utf8_length(text) <= most;
}

static int check_metadata(struct fault *f)
{
    const struct job_request *r = f->r;
    if (r->n_metadata > JOB_METADATA_MAX)
        return refuse(f, FIELD_METADATA, "must have at most 16 pairs");
    for (size_t i = 0; i < r->n_metadata; i++) {
        if (!fits(r->metadata[i].key, JOB_METADATA_KEY_MAX))
            return refuse(f, FIELD_METADATA, "a key must be UTF-8 of at most 64 characters");
        if (!fits(r->metadata[i].value, JOB_METADATA_VALUE_MAX))
            return refuse(f, FIELD_METADATA, "a value must be UTF-8 of at most 512 characters");
    }
    return 0;
}

/* As OpenAI has it: both or neither. */
static int check_output_expires(struct fault *f)
{
    const struct job_request *r = f->r;
    const bool anchored = !str_empty(r->output_anchor);
    if (anchored && strcmp(r->output_anchor, "created_at") != 0)
        return refuse(f, FIELD_OUTPUT_ANCHOR, "must be created_at");
    if (anchored && r->output_expires_s == JOB_UNSET)
        return refuse(f, FIELD_OUTPUT_EXPIRES, "is required");
    if (!anchored && r->output_expires_s != JOB_UNSET)
        return refuse(f, FIELD_OUTPUT_ANCHOR, "is required, and must be created_at");
    return 0;
}

/* A name for the batch service, which makes a path of it. */
static bool is_file_id(const char *id)
{
    bool only_dots = true;
    for (const char *c = id; *c != '\0'; c++) {
        if ((unsigned char)*c <= ' ' || *c == 0x7f || *c == '/' || *c == '\\')
            return false;
        only_dots &= *c == '.';
    }
    return !only_dots;
}

static int check(struct fault *f, int64_t *minutes)
{
    const struct job_request *r = f->r;
    if (check_texts(f) < 0)
        return -1;
    if (!is_file_id(r->input_file))
        return refuse(f, FIELD_INPUT_FILE, "must be a file id: no blanks, slashes or dots alone");
    if (!job_endpoint_known(r->endpoint))
        return refuse(f, FIELD_ENDPOINT, "is none of the endpoints that batches are made of");
    if (job_window_parse(r->completion_window, minutes) < 0)
        return refuse(f, FIELD_COMPLETION_WINDOW,
            "must be days, hours and minutes such as 24h, 1d2h or 90m, up to 366 days");
    return check_numbers(f) < 0 || check_output_expires(f) < 0 ? -1 : check_metadata(f);
}

int job_request_check(
    const struct job_request *r, struct job_terms *terms, enum job_field *bad, struct err *e)
{
    struct fault f = { .r = r, .bad = FIELD__COUNT, .e = e };
    int64_t minutes = 0;
    if (check(&f, &minutes) < 0) {
        *bad = f.bad;
        return -1;
    }
    *terms = (struct job_terms){
        .window_minutes = minutes,
        .replicas = r->replicas == JOB_UNSET || r->replicas == 0 ? 1 : r->replicas,
        .priority = r->priority == JOB_UNSET ? 0 : r->priority,
    };
    return 0;
}
