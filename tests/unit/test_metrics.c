/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/metrics.h"

static int64_t page[METRIC__COUNT];

static void print_is_text_exposition(void **state)
{
    cleanup_buf struct buf out = BUF_INIT(65536);

    (void)state;
    metric_add(METRIC_REQUESTS_2XX, 3);
    metric_add(METRIC_REQUESTS_5XX, 1);
    metric_set(METRIC_CONNS_OPEN, 12);
    metrics_print(&out);
    assert_false(out.overflow);
    static const char BEGIN[] =
        "# HELP weighbridge_http_requests_total Requests answered, by class of status\n"
        "# TYPE weighbridge_http_requests_total counter\n"
        "weighbridge_http_requests_total{code=\"2xx\"} 3\n"
        "weighbridge_http_requests_total{code=\"3xx\"} 0\n"
        "weighbridge_http_requests_total{code=\"4xx\"} 0\n"
        "weighbridge_http_requests_total{code=\"5xx\"} 1\n"
        "# HELP ";
    assert_memory_equal(out.data, BEGIN, sizeof BEGIN - 1);
    assert_non_null(strstr(out.data, "\n# TYPE weighbridge_fcgi_connections gauge\n"
                                     "weighbridge_fcgi_connections 12\n"));
    metric_add(METRIC_REQUESTS_2XX, -3);
    metric_add(METRIC_REQUESTS_5XX, -1);
    metric_set(METRIC_CONNS_OPEN, 0);
}

static void times_are_printed_in_seconds(void **state)
{
    cleanup_buf struct buf out = BUF_INIT(65536);
    cleanup_buf struct buf low = BUF_INIT(65536);

    (void)state;
    metric_set(METRIC_REQUEST_SECONDS, 12000034);
    metrics_print(&out);
    assert_non_null(strstr(out.data, "\nweighbridge_http_request_seconds_total 12.000034\n"));
    metric_set(METRIC_REQUEST_SECONDS, -1);
    metrics_print(&low);
    assert_non_null(strstr(low.data, "\nweighbridge_http_request_seconds_total -0.000001\n"));
    metric_set(METRIC_REQUEST_SECONDS, 0);
}

/* Prometheus refuses a page that tells of one name twice. */
static void every_name_is_described_once(void **state)
{
    cleanup_buf struct buf out = BUF_INIT(65536);
    int described = 0;

    (void)state;
    metrics_print(&out);
    for (const char *p = out.data; (p = strstr(p, "# TYPE ")) != NULL; p++) {
        char line[128] = "";
        memcpy(line, p, strcspn(p, "\n") + 1);
        assert_null(strstr(p + 1, line));
        described++;
    }
    assert_in_range(described, 5, METRIC__COUNT);
}

/* Last: the values stay in the page from here on. */
static void attaching_adds_what_was_counted(void **state)
{
    (void)state;
    assert_int_equal(metrics_size(), sizeof page);
    metric_add(METRIC_RELOADS, 2);
    page[METRIC_RELOADS] = 40;
    metrics_attach(page);
    assert_int_equal(metric_get(METRIC_RELOADS), 42);
    metric_add(METRIC_RELOADS, 1);
    assert_int_equal(page[METRIC_RELOADS], 43);
    metrics_attach(page);
    assert_int_equal(page[METRIC_RELOADS], 43);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(print_is_text_exposition),
        cmocka_unit_test(times_are_printed_in_seconds),
        cmocka_unit_test(every_name_is_described_once),
        cmocka_unit_test(attaching_adds_what_was_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
