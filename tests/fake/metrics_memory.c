/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/metrics_memory.h"

#include <stddef.h>
#include <sys/mman.h>

#include "base/metrics.h"

int64_t *metrics_memory(void)
{
    const size_t size = METRICS_WORDS * sizeof(int64_t);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    metrics_format(memory);
    return memory;
}
