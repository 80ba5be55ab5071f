/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_GPU_MATCH_H
#define WB_GPU_MATCH_H

/* Does what a job asks for name the same GPU as what a provider offers? The words are compared, not the
 * texts: "A100" is "gpu_1x_a100" and "NVIDIA A100-SXM4-80GB", but "A10" is neither, and "A100-40GB" is
 * not the latter. Pure. Rule: reference section 1.8 (GPU token match). */
#include <stdbool.h>

/* wanted: as the template has it; "" wants any. offered: the provider's name of the type; described:
 * its description, which may tell of memory and form what the name does not ("A10 (24 GB PCIe)"), or "". */
bool gpu_match(const char *wanted, const char *offered, const char *described);

#endif
