/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TEST_STAGING_FIXTURE_H
#define WB_TEST_STAGING_FIXTURE_H

/* A Redis of its own for the tests of store/staging.h, and calls that must end as they say. */
#include <stdint.h>

#include "kv/kv.h"
#include "store/staging.h"
#include "tests/fake/redis_server.h"

enum { PATIENT_MS = 10000 };

extern struct redis_server staging_server;
extern struct kv *staging_kv;

int staging_open(void **state); /* of the group */
int staging_close(void **state);
int staging_flush(void **state); /* before each test */
struct kv *staging_connect(void);

/* A raw command; its integer, if that is its answer. */
long long staging_raw(struct kv_args a);
#define RAW(...) staging_raw(KV_ARGS(__VA_ARGS__))
#define T(text)  kv_text(text)

struct report report_of(const char *session, int64_t stamp_us, int64_t sent);
enum report_fate must_report(const char *key, struct report r);
void must_refuse(const char *key, struct report r, enum err_code code, const char *part);
void must_end(const char *key);
struct overlays must_get(const char *key, int want);
struct overlays must_list(void);
void list_is(size_t n, size_t malformed);

#define TEST(f) cmocka_unit_test_setup(f, staging_flush)

#endif
