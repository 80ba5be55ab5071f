/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_METRICS_MEMORY_H
#define WB_METRICS_MEMORY_H

/* Memory for metrics that a test's processes share, for cmocka tests. */
#include <stdint.h>

/* Ready for metrics_attach(), METRICS_WORDS words, shared with children; NULL when there is none. Goes with
 * the process. */
int64_t *metrics_memory(void);

#endif
