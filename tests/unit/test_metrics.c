/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/metrics.h"
#include "tests/fake/metrics_memory.h"

_Alignas(64) static int64_t page[METRICS_WORDS];

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

/* A program tells of what it counts itself, and not of what others would. */
static void programs_tell_of_their_own_metrics(void **state)
{
    cleanup_buf struct buf every = BUF_INIT(65536);
    cleanup_buf struct buf operations = BUF_INIT(65536);
    cleanup_buf struct buf planner = BUF_INIT(65536);

    (void)state;
    metrics_print(&every);
    metrics_show(METRICS_OF_OPERATIONS);
    metrics_print(&operations);
    metrics_show(METRICS_OF_PLANNER);
    metrics_print(&planner);
    metrics_show(0);
    assert_null(strstr(every.data, "weighbridge_snapshots_total"));
    assert_null(strstr(every.data, "weighbridge_planner_"));
    assert_non_null(strstr(operations.data, "\nweighbridge_snapshots_total 0\n"));
    assert_null(strstr(operations.data, "weighbridge_planner_"));
    assert_non_null(strstr(planner.data, "\nweighbridge_planner_refused_total 0\n"));
    assert_null(strstr(planner.data, "weighbridge_snapshots_total"));
    assert_non_null(strstr(planner.data, "\nweighbridge_http_response_bytes_total 0\n"));
}

/* Sum and count are one family of Prometheus' text format: described once, by the name without its ending. */
static void a_summary_is_one_family(void **state)
{
    cleanup_buf struct buf out = BUF_INIT(65536);

    (void)state;
    metric_set(METRIC_TOOK_PLAN, 1500000);
    metric_set(METRIC_TIMES_PLAN, 3);
    metrics_show(METRICS_OF_PLANNER);
    metrics_print(&out);
    metrics_show(0);
    const char *type = "\n# TYPE console_planner_duration_seconds summary\n"
                       "console_planner_duration_seconds_sum{method=\"plan\"} 1.500000\n"
                       "console_planner_duration_seconds_count{method=\"plan\"} 3\n"
                       "console_planner_duration_seconds_sum{method=\"provision\"} 0.000000\n";
    assert_non_null(strstr(out.data, type));
    const char *help = strstr(out.data, "# HELP console_planner_duration_seconds ");
    assert_non_null(help);
    assert_null(strstr(help + 1, "# HELP console_planner_duration_seconds"));
    metric_set(METRIC_TOOK_PLAN, 0);
    metric_set(METRIC_TIMES_PLAN, 0);
}

/* The values stay in the page from here on. */
static void attaching_adds_what_was_counted(void **state)
{
    (void)state;
    metric_add(METRIC_RELOADS, 2);
    page[METRIC_RELOADS] = 40;
    metrics_attach(page);
    assert_int_equal(metric_get(METRIC_RELOADS), 42);
    metric_add(METRIC_RELOADS, 1);
    assert_int_equal(page[METRIC_RELOADS], 43);
    metrics_attach(page);
    assert_int_equal(page[METRIC_RELOADS], 43);
}

/* A process that opens connections, told by bytes on a pipe what to do: 'j' take a part of the memory,
 * '+' open one, '-' close one. */
struct opener {
    pid_t pid;
    int tell;
    int done;
};

static _Noreturn void be_opener(int told, int done)
{
    char what = 0;
    alarm(60);
    while (read(told, &what, 1) == 1) {
        if (what == 'j')
            metrics_join();
        else
            metric_add(METRIC_CONNS_OPEN, what == '+' ? 1 : -1);
        if (write(done, &what, 1) != 1)
            break;
    }
    _exit(0);
}

static void opener_tell(const struct opener *o, const char *what)
{
    for (char byte = 0; *what; what++) {
        assert_int_equal(write(o->tell, what, 1), 1);
        assert_int_equal(read(o->done, &byte, 1), 1);
    }
}

static struct opener opener_start(const char *what)
{
    int tell[2];
    int done[2];
    assert_int_equal(pipe2(tell, O_CLOEXEC), 0);
    assert_int_equal(pipe2(done, O_CLOEXEC), 0);
    struct opener o = { .pid = fork(), .tell = tell[1], .done = done[0] };
    assert_true(o.pid >= 0);
    if (o.pid == 0) {
        close(tell[1]);
        be_opener(tell[0], done[1]);
    }
    close(tell[0]);
    close(done[1]);
    opener_tell(&o, what);
    return o;
}

static void opener_end(const struct opener *o, int sig)
{
    if (sig != 0)
        assert_int_equal(kill(o->pid, sig), 0);
    close(o->tell);
    close(o->done);
    assert_int_equal(waitpid(o->pid, NULL, 0), o->pid);
}

static int64_t *share_memory(void)
{
    int64_t *memory = metrics_memory();
    assert_non_null(memory);
    metrics_attach(memory);
    return memory;
}

static void what_a_killed_process_had_open_does_not_count(void **state)
{
    (void)state;
    share_memory();
    struct opener lives = opener_start("j++");
    struct opener killed = opener_start("j+++");
    struct opener ends = opener_start("j+");
    assert_int_equal(metric_get(METRIC_CONNS_OPEN), 6);
    opener_end(&killed, SIGKILL);
    assert_int_equal(metric_get(METRIC_CONNS_OPEN), 3);
    opener_end(&ends, 0);
    assert_int_equal(metric_get(METRIC_CONNS_OPEN), 2);
    opener_tell(&lives, "-");
    assert_int_equal(metric_get(METRIC_CONNS_OPEN), 1);
    opener_end(&lives, SIGKILL);
    assert_int_equal(metric_get(METRIC_CONNS_OPEN), 0);
}

/* More processes than there are parts, one after the other: parts come back. */
static void parts_of_ended_processes_are_taken_again(void **state)
{
    (void)state;
    share_memory();
    struct opener lives = opener_start("j++");
    for (int i = 0; i < METRICS_PARTS + 2; i++) {
        struct opener o = opener_start("j+");
        opener_end(&o, SIGKILL);
    }
    assert_int_equal(metric_get(METRIC_CONNS_OPEN), 2);
    opener_end(&lives, SIGKILL);
}

/* Only the kill of such a one is not noticed. */
static void a_process_without_a_part_is_counted_all_the_same(void **state)
{
    (void)state;
    int64_t *memory = share_memory();
    struct opener o = opener_start("++");
    assert_int_equal(memory[METRIC_CONNS_OPEN], 2);
    assert_int_equal(metric_get(METRIC_CONNS_OPEN), 2);
    opener_tell(&o, "--");
    opener_end(&o, 0);
    assert_int_equal(metric_get(METRIC_CONNS_OPEN), 0);
}

/* What is shared stays, whoever ends: only gauges of what a process has open go with it. */
static void counters_of_a_killed_process_stay(void **state)
{
    (void)state;
    share_memory();
    pid_t pid = fork();
    if (pid == 0) {
        metrics_join();
        metric_add(METRIC_RELOADS, 5);
        metric_set(METRIC_DEGRADED_REDIS, 1);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(metric_get(METRIC_RELOADS), 5);
    assert_int_equal(metric_get(METRIC_DEGRADED_REDIS), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(print_is_text_exposition),
        cmocka_unit_test(times_are_printed_in_seconds),
        cmocka_unit_test(every_name_is_described_once),
        cmocka_unit_test(programs_tell_of_their_own_metrics),
        cmocka_unit_test(a_summary_is_one_family),
        cmocka_unit_test(attaching_adds_what_was_counted),
        cmocka_unit_test(what_a_killed_process_had_open_does_not_count),
        cmocka_unit_test(parts_of_ended_processes_are_taken_again),
        cmocka_unit_test(a_process_without_a_part_is_counted_all_the_same),
        cmocka_unit_test(counters_of_a_killed_process_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
