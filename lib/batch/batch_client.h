/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BATCH_CLIENT_H
#define WB_BATCH_CLIENT_H

/* Client of the batch service: AIBrix' metadata service, ours, or any server of /v1/batches. A struct
 * batch_client belongs to one thread. A call blocks for at most the time-out (20 s unless set).
 *
 * Nothing is tried again in here: the planner does so by its rows. What a caller needs for that is the
 * outcome, which is set by every call. Texts of the service that end up in *e are cut, printable and
 * free of our token. Rules: jobs contract, section 5 (batch client, intents); reference 1.9, 1.10. */
#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/conf.h"
#include "base/err.h"
#include "model/batch.h"

enum batch_outcome {
    BATCH_DONE,      /* the call returned 0 */
    BATCH_REFUSED,   /* 400, 413, 422, ...: it will never be accepted; the text says why */
    BATCH_NOT_FOUND, /* 404 of a batch */
    BATCH_CONFLICT,  /* 409: cannot be cancelled any more (or, on create, exists) */
    BATCH_DENIED,    /* 401, 403, a create's 404 or 405: token or URL are wrong. Nothing happened */
    BATCH_BUSY,      /* 429. Nothing happened; see note->again_ms */
    BATCH_UNREACHABLE, /* nothing happened: not connected, or a call that only reads failed */
    BATCH_UNSURE,      /* create or cancel may have been done (408, 5xx, no answer): look before a
                          repeat, 60 s later at the earliest */
    BATCH_STOPPED,     /* told to end; create and cancel: may have been done all the same */
    BATCH_OUTCOME__COUNT
};

/* "done", "refused", ...: for metrics and logs. */
const char *batch_outcome_name(enum batch_outcome o);

struct batch_note {
    enum batch_outcome outcome;
    int64_t again_ms;    /* Retry-After, at most five minutes; 0: none */
    int status;          /* of HTTP; 0: no answer */
    char request_id[80]; /* of the service; "" none */
};
#define BATCH_NOTE_INIT \
    { \
        .outcome = BATCH_DONE, .again_ms = 0, .status = 0, .request_id = "" \
    }

struct batch_client_options {
    const char *url;     /* with or without /v1 at its end; borrowed, as the others */
    const char *token;   /* "" none */
    const char *ca_file; /* "" the system's */
    int64_t timeout_ms;
    int stop_fd; /* readable: calls end; -1 none */
};

struct batch_client;
void batch_client_close(struct batch_client *c);

/* ERR_INVALID: the url is none. No call is made. */
int batch_client_open(
    const struct batch_client_options *o, struct batch_client **out, struct err *e) WARN_UNUSED;

/* With the options of section [batch]. */
int batch_client_open_conf(
    const struct conf *conf, int stop_fd, struct batch_client **out, struct err *e) WARN_UNUSED;

static inline void batch_client_close_p(struct batch_client **c)
{
    batch_client_close(*c);
}
#define cleanup_batch_client __attribute__((cleanup(batch_client_close_p)))

/* What a batch is created from; all borrowed. JSON parts that are NULL, and texts that are "", are
 * left out. */
struct batch_create {
    const char *job_id; /* aibrix.job_id: what finds the batch again */
    const char *input_file_id;
    const char *endpoint;
    const char *completion_window; /* batch_window_text() of the minutes left */
    json_object *metadata;
    json_object *output_expires_after; /* anchor and seconds */
    const char *model;
    json_object *runtime;             /* of the hooks */
    json_object *resource_allocation; /* of the hooks */
    const char *template_name;
    const char *template_version;
    json_object *template_spec;
    json_object *profile;
    json_object *client; /* concurrency and retries, as asked for */
};

/* POST /v1/batches. *out is the new batch. */
int batch_client_create(struct batch_client *c, const struct batch_create *r, struct batch *out,
    struct batch_note *note, struct err *e) WARN_UNUSED;

/* GET /v1/batches/{id}. An answer about another id is ERR_INTERNAL. */
int batch_client_get(struct batch_client *c, const char *id, struct batch *out,
    struct batch_note *note, struct err *e) WARN_UNUSED;

/* POST /v1/batches/{id}/cancel. */
int batch_client_cancel(struct batch_client *c, const char *id, struct batch *out,
    struct batch_note *note, struct err *e) WARN_UNUSED;

/* A search for the batches of a job, and what it found so far: newest first. */
struct batch_search {
    const char *job_id; /* borrowed; NULL: those of any job */
    int64_t since;      /* seconds since 1970: batches created earlier end the search */
    char after[BATCH_ID_SIZE];
    int pages;
    struct batch *batch; /* owned */
    size_t n;
};
#define BATCH_SEARCH_INIT(job, since_) \
    { \
        .job_id = (job), .since = (since_), .after = "", .pages = 0, .batch = NULL, .n = 0 \
    }
void batch_search_fini(struct batch_search *s);
#define cleanup_batch_search __attribute__((cleanup(batch_search_fini)))

/* Looks through the service's batches, newest first, for those of a job, back to the first that was
 * created more than a minute (for clocks that differ) before search->since. One page of 100 for each
 * call. 0: searched to the end. 1: call again with the same search. -1: the search stays where it is.
 * A service whose pages go round in circles is ERR_INTERNAL. */
int batch_client_find(struct batch_client *c, struct batch_search *search, struct batch_note *note,
    struct err *e) WARN_UNUSED;

/* GET /v1/files: one page of the service's files. query: "" or what follows the '?', escaped. *out is the answer as it is:
 * an object whose data is an array. The caller's. What the query is refused for is BATCH_REFUSED. */
int batch_client_files(struct batch_client *c, const char *query, json_object **out,
    struct batch_note *note, struct err *e) WARN_UNUSED;

/* The completion window that says so many whole minutes ("90m"); minutes >= 1. */
enum { BATCH_WINDOW_SIZE = 24 };
void batch_window_text(int64_t minutes, char out[BATCH_WINDOW_SIZE]);

/* Reads a batch out of an answer. Only id and status are needed; whatever else is missing, null, of
 * another type, negative or too long counts as not told. ERR_INTERNAL without an id. */
int batch_read(json_object *o, struct batch *out, struct err *e) WARN_UNUSED;

#endif
