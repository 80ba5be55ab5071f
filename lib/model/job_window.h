/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JOB_WINDOW_H
#define WB_JOB_WINDOW_H

/* The completion window: `[<n>d][<n>h][<n>m|min]`, at least one part, in this order, more than nothing,
 * nothing around it or between, not even blanks; "" is 24h (reference 1.5). Pure. */
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"

#define JOB_WINDOW_DEFAULT "24h"

enum { JOB_WINDOW_MINUTES_MAX = 366 * 24 * 60 };

/* 0 with *minutes, at most JOB_WINDOW_MINUTES_MAX (so that no deadline leaves the range of a timestamp); -1
 * when text is no window. */
int job_window_parse(const char *text, int64_t *minutes) WARN_UNUSED;

#endif
