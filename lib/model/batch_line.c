/* SPDX-License-Identifier: Apache-2.0 */
#include "model/batch_line.h"

#include <string.h>

static const struct batch_endpoint ENDPOINTS[] = {
    { "/v1/chat/completions", "messages", NULL },
    { "/v1/completions", "prompt", NULL },
    { "/v1/embeddings", "input", NULL },
    { "/v1/responses", "input", NULL },
    { "/v1/rerank", "query", "documents" },
};

const struct batch_fault BATCH_FAULT_JSON = { "invalid_json_line", NULL,
    "This line is not parseable as valid JSON, or is no object." };
const struct batch_fault BATCH_FAULT_LONG = { "line_too_long", NULL, "This line is too long." };
const struct batch_fault BATCH_FAULT_TWICE = { "duplicate_custom_id", "custom_id",
    "The custom_id of this line is that of another line, too." };
const struct batch_fault BATCH_FAULT_MODEL = { "model_not_found", "body.model",
    "No inference server is known for this model." };
const struct batch_fault BATCH_FAULT_EMPTY = { "empty_file", NULL, "The input file has no lines." };
const struct batch_fault BATCH_FAULT_MANY = { "too_many_lines", NULL,
    "The input file has more lines than a batch may have." };

const struct batch_endpoint *batch_endpoint_find(const char *path)
{
    for (size_t i = 0; i < sizeof ENDPOINTS / sizeof ENDPOINTS[0]; i++) {
        if (strcmp(ENDPOINTS[i].path, path) == 0)
            return &ENDPOINTS[i];
    }
    return NULL;
}

static bool is_empty(const char *text)
{
    return text == NULL || text[0] == '\0';
}

int batch_line_check(
    const struct batch_line *line, const struct batch_endpoint *endpoint, struct batch_fault *f)
{
    const struct {
        bool wrong;
        struct batch_fault fault;
    } rules[] = {
        { is_empty(line->custom_id) || strlen(line->custom_id) > BATCH_CUSTOM_ID_MAX,
            { "invalid_custom_id", "custom_id",
                "custom_id must be text, not empty and of at most 512 bytes." } },
        { line->method == NULL || strcmp(line->method, "POST") != 0,
            { "invalid_method", "method", "method must be POST." } },
        { line->url == NULL || strcmp(line->url, endpoint->path) != 0,
            { "invalid_url", "url", "url must be the endpoint of the batch." } },
        { !line->has_body, { "invalid_body", "body", "body must be an object." } },
        { is_empty(line->model),
            { "missing_required_parameter", "body.model", "body must name a model." } },
        { !line->has_input,
            { "missing_required_parameter", "body",
                "body has not what the endpoint needs: messages, prompt, input, or query and documents." } },
        { line->streams,
            { "invalid_body", "body.stream", "an answer in pieces cannot be taken by a batch." } },
    };

    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (rules[i].wrong) {
            *f = rules[i].fault;
            return -1;
        }
    }
    return 0;
}
