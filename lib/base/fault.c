/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

enum { DELAY_MAX_MS = 600000, WORD_SIZE = 512 };

enum action { ACTION_KILL, ACTION_STOP, ACTION_DELAY, ACTION_FAIL };

struct fault {
    struct fault *next;
    int point; /* FAULT__COUNT: every one */
    enum action action;
    int64_t delay_ms;
    double probability;
    char *file; /* NULL: always */
};

struct faults {
    struct fault *first;
};

static const struct {
    const char *name;
    const char *when;
} POINTS[FAULT__COUNT] = {
#define FAULT(id, name_, when_) [FAULT_##id] = { .name = (name_), .when = (when_) },
#include "base/fault_points.def"
#include "base/artifact_fault_points.def"
#undef FAULT
};

static const struct faults *process_faults;
static _Thread_local const struct faults *job_faults;

const char *fault_name(enum fault_point p)
{
    return POINTS[p].name;
}

const char *fault_when(enum fault_point p)
{
    return POINTS[p].when;
}

void faults_free(struct faults *f)
{
    if (f == NULL)
        return;
    for (struct fault *one = f->first, *next = NULL; one != NULL; one = next) {
        next = one->next;
        free(one->file);
        free(one);
    }
    free(f);
}

static int parse_point(const char *name, int *out)
{
    for (int p = 0; p < FAULT__COUNT; p++) {
        if (strcmp(name, POINTS[p].name) == 0) {
            *out = p;
            return 0;
        }
    }
    *out = FAULT__COUNT;
    return strcmp(name, "*") == 0 ? 0 : -1;
}

static int parse_action(const char *text, struct fault *f)
{
    static const char *const NAMES[] = {
        [ACTION_KILL] = "kill", [ACTION_STOP] = "stop", [ACTION_FAIL] = "fail"
    };

    f->action = ACTION_DELAY;
    if (str_starts(text, "delay:"))
        return str_to_i64(text + strlen("delay:"), 0, DELAY_MAX_MS, &f->delay_ms);
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (NAMES[i] != NULL && strcmp(text, NAMES[i]) == 0) {
            f->action = (enum action)i;
            return 0;
        }
    }
    return -1;
}

/* Cuts text at the first c and hands out what follows it; NULL: there is none. */
static char *cut(char *text, char c)
{
    char *at = strchr(text, c);
    if (at == NULL)
        return NULL;
    *at = '\0';
    return at + 1;
}

/* word is taken apart. */
static int parse_word(char *word, struct fault *f)
{
    const char *file = cut(word, '!');
    const char *probability = cut(word, '@');
    const char *action = cut(word, '=');

    f->probability = 1;
    if (action == NULL || parse_point(word, &f->point) < 0 || parse_action(action, f) < 0)
        return -1;
    if (probability != NULL && (str_to_double(probability, &f->probability) < 0 ||
                                   f->probability < 0 || f->probability > 1))
        return -1;
    if (file != NULL && *file != '/')
        return -1;
    f->file = file == NULL ? NULL : mem_strdup(file);
    return 0;
}

static int add_word(struct faults *f, const char *word, size_t size, struct err *e)
{
    char text[WORD_SIZE];
    struct fault one = { .next = NULL };

    if (size >= sizeof text)
        return err_set(e, ERR_INVALID, "a fault of more than %d bytes", WORD_SIZE);
    memcpy(text, word, size);
    text[size] = '\0';
    if (parse_word(text, &one) < 0)
        return err_set(e, ERR_INVALID,
            "'%.*s' is no fault: POINT=kill|stop|fail|delay:MS[@PROBABILITY][!/FILE]", (int)size,
            word);
    struct fault **last = &f->first;
    while (*last != NULL)
        last = &(*last)->next;
    *last = mem_kept(mem_alloc(sizeof **last));
    **last = one;
    return 0;
}

int faults_parse(const char *text, struct faults **out, struct err *e)
{
    cleanup_faults struct faults *f = mem_calloc(1, sizeof *f);

    for (text += strspn(text, " "); *text != '\0'; text += strspn(text, " ")) {
        const size_t size = strcspn(text, " ");
        if (add_word(f, text, size, e) < 0)
            return -1;
        text += size;
    }
    *out = f->first == NULL ? NULL : STEAL(f);
    return 0;
}

void faults_set(const struct faults *f)
{
    process_faults = f;
}

void faults_set_job(const struct faults *f)
{
    job_faults = f;
}

static bool happens(const struct fault *f)
{
    uint32_t random = 0;

    if (f->probability < 1) {
        arc4random_buf(&random, sizeof random);
        if ((double)random / UINT32_MAX >= f->probability)
            return false;
    }
    if (f->file == NULL)
        return true;
    cleanup_fd int fd = open(f->file, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    return fd >= 0;
}

static int carry_out(const struct fault *f, enum fault_point p, struct err *e)
{
    log_warn(LOG_MSG("a fault is injected"), LOG_S("point", POINTS[p].name));
    switch (f->action) {
    case ACTION_KILL:
        (void)raise(SIGKILL);
        break;
    case ACTION_STOP:
        (void)raise(SIGSTOP);
        break;
    case ACTION_DELAY:
        (void)poll(NULL, 0, (int)f->delay_ms);
        break;
    case ACTION_FAIL:
        return err_set(e, ERR_UNAVAILABLE, "injected at %s", POINTS[p].name);
    }
    return 0;
}

static int look_at(const struct faults *set, enum fault_point p, struct err *e)
{
    for (const struct fault *f = set == NULL ? NULL : set->first; f != NULL; f = f->next) {
        if ((f->point == (int)p || f->point == FAULT__COUNT) && happens(f) &&
            carry_out(f, p, e) < 0)
            return -1;
    }
    return 0;
}

int fault_at(enum fault_point p, struct err *e)
{
    if (process_faults == NULL && job_faults == NULL)
        return 0;
    return look_at(process_faults, p, e) < 0 ? -1 : look_at(job_faults, p, e);
}
