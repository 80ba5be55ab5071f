/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FCGI_CLIENT_H
#define WB_FCGI_CLIENT_H

/* The web server's side of FastCGI 1.0, record by record, so that tests can send what no web server
 * would. Requests are put together in a buffer; replies are checked as they are read. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
    CLIENT_BEGIN = 1,
    CLIENT_ABORT = 2,
    CLIENT_END = 3,
    CLIENT_PARAMS = 4,
    CLIENT_STDIN = 5,
    CLIENT_STDOUT = 6,
    CLIENT_GET_VALUES = 9,
    CLIENT_RECORD_MAX = 65535,
    CLIENT_REQUEST_MAX = 1 << 26,
    CLIENT_GUARD_MS = 20000, /* longer than anything here takes: it hangs */
};

/* What came back. */
struct client_reply {
    struct buf out;  /* content of all STDOUT records */
    int records;     /* STDOUT records with content */
    size_t largest;  /* content of the largest one */
    bool misaligned; /* content and padding of some record are no multiple of 8 */
    bool ended;      /* STDOUT's end came before END_REQUEST */
    unsigned request_id;
    unsigned app_status;
    unsigned protocol_status;
};

#define CLIENT_REPLY_INIT \
    { \
        .out = BUF_INIT(CLIENT_REQUEST_MAX) \
    }

void client_reply_free(struct client_reply *r);
#define cleanup_reply __attribute__((cleanup(client_reply_free)))

/* A connected socket; -1 with errno. */
int client_connect(const char *path);

/* --- a request, record by record --- */
void client_record(
    struct buf *b, unsigned type, unsigned id, const void *data, size_t size, unsigned padding);
void client_begin(struct buf *b, unsigned id, unsigned role, bool keep);
/* One name and value into pairs; lengths of one or four bytes as needed. */
void client_pair(struct buf *pairs, const char *name, const char *value);
/* pairs as PARAMS records, and their end. */
void client_params(struct buf *b, unsigned id, const struct buf *pairs);
/* data as STDIN records of at most record_size, and their end when `whole`. */
void client_body(
    struct buf *b, unsigned id, const void *data, size_t size, size_t record_size, bool whole);

/* --- on the wire; each gives up after CLIENT_GUARD_MS --- */

/* All of data; -1 when the peer is gone or does not read. */
int client_send(int fd, const void *data, size_t size);
/* One reply into *r, which is emptied first. 0; 1 when the peer closed before its first byte; -1 when
 * it closed in the middle, sent what is no reply, or hangs. */
int client_receive(int fd, struct client_reply *r);
/* True when the peer has closed (whatever it sent before is thrown away). */
bool client_closed(int fd);

#endif
