/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FAULT_H
#define WB_FAULT_H

/* Fault injection: named points at which a process kills or stops itself, waits or fails. Compiled in, off
 * unless [faults] allow is on. Jobs contract section 5, "Fault injection".
 *
 * A set of faults is text: words separated by spaces,
 *
 *     POINT=ACTION[:MS][@PROBABILITY][!FILE]
 *
 * POINT is a name of fault_points.def or `*` for all. ACTION: `kill` (SIGKILL to this process), `stop` (SIGSTOP),
 * `delay:MS`, `fail` (the step fails as if the other side were out of reach). PROBABILITY: 0 to 1, default 1.
 * FILE: the fault happens once for all processes: whoever makes that file first. */
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum fault_point {
#define FAULT(id, name, when) FAULT_##id,
#include "base/fault_points.def"
    FAULT__OF_PLANNERS,
    FAULT__LAST_OF_PLANNERS = FAULT__OF_PLANNERS - 1,
#include "base/artifact_fault_points.def"
#undef FAULT
    FAULT__COUNT
};

const char *fault_name(enum fault_point p);
const char *fault_when(enum fault_point p);

struct faults;
void faults_free(struct faults *f);
static inline void faults_free_p(struct faults **f)
{
    faults_free(*f);
}
#define cleanup_faults __attribute__((cleanup(faults_free_p)))

/* Reads a set. "" is none: *out NULL. ERR_INVALID names the word. */
int faults_parse(const char *text, struct faults **out, struct err *e) WARN_UNUSED;

/* The set of the whole process, from now on until another is set; NULL: none. f must outlive its use. Before
 * threads start. */
void faults_set(const struct faults *f);

/* A further set for this thread, of the job in hand; NULL: none. Borrowed. */
void faults_set_job(const struct faults *f);

/* At a point: 0 to go on (perhaps after a delay), -1 with ERR_UNAVAILABLE to fail. Any thread. */
int fault_at(enum fault_point p, struct err *e) WARN_UNUSED;

#endif
