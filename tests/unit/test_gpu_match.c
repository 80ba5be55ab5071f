/* SPDX-License-Identifier: Apache-2.0
 * Which GPU is which (reference 1.8). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/gpu_match.h"

static void same(const char *wanted, const char *offered, const char *described)
{
    if (!gpu_match(wanted, offered, described))
        fail_msg("\"%s\" should be \"%s\" (%s)", wanted, offered, described);
}

static void other(const char *wanted, const char *offered, const char *described)
{
    if (gpu_match(wanted, offered, described))
        fail_msg("\"%s\" should not be \"%s\" (%s)", wanted, offered, described);
}

static void words_are_compared_not_texts(void **state)
{
    (void)state;
    same("A10", "gpu_1x_a10", "A10 (24 GB PCIe)");
    other("A10", "gpu_1x_a100", "A100 (40 GB PCIe)");
    other("A100", "gpu_1x_a10", "A10 (24 GB PCIe)");
    other("H100", "gpu_1x_gh200", "GH200 (96 GB)");
    other("L40", "NVIDIA L40S", "");
    same("L40S", "NVIDIA L40S", "");
    other("A6000", "NVIDIA RTX 6000 Ada Generation", "");
}

static void makers_and_counts_do_not_matter(void **state)
{
    (void)state;
    same("NVIDIA-A100", "gpu_8x_a100", "A100 (40 GB SXM4)");
    same("nvidia_h100", "NVIDIA H100 80GB HBM3", "");
    same("Tesla V100", "gpu_8x_v100", "Tesla V100 (16 GB)");
    same("V100", "p3.2xlarge", "Tesla V100 (16 GB)"); /* a name that says nothing */
    same("MI300X", "AMD Instinct MI300X OAM", "");
    same("GeForce RTX 4090", "NVIDIA GeForce RTX 4090", "");
}

/* What the job says of memory and form must not be contradicted. */
static void memory_and_form_are_kept_to(void **state)
{
    (void)state;
    same("A100-80GB", "gpu_8x_a100_80gb_sxm4", "A100 (80 GB SXM4)");
    other("A100-80GB", "gpu_8x_a100", "A100 (40 GB SXM4)");
    same("A100 40 GB", "gpu_8x_a100", "A100 (40 GB SXM4)");
    same("H100-80GB", "gpu_1x_h100_pcie", "");
    same("H100-SXM5-80GB", "gpu_1x_h100_sxm5", "H100 (80 GB SXM5)");
    same("H100 SXM", "gpu_1x_h100_sxm5", "H100 (80 GB SXM5)");
    same("H100 SXM5", "h100-sxm", "");
    other("H100-PCIE", "gpu_1x_h100_sxm5", "H100 (80 GB SXM5)");
    other("H100-SXM5", "NVIDIA H100 NVL", "");
    same("A100", "gpu_8x_a100_80gb_sxm4", "A100 (80 GB SXM4)");
}

static void rtx_is_written_in_several_ways(void **state)
{
    (void)state;
    same("RTX6000", "gpu_1x_rtx6000", "Quadro RTX 6000 (24 GB)");
    same("RTX 6000", "gpu_1x_rtx6000", "");
    same("RTX A6000", "gpu_1x_a6000", "RTX A6000 (48 GB)");
    same("RTXA6000", "gpu_1x_a6000", "");
    same("A6000", "NVIDIA RTX A6000", "");
    other("RTX 6000", "gpu_1x_a6000", "RTX A6000 (48 GB)");
    other("RTX 6000", "NVIDIA RTX 6000 Ada Generation", "");
    same("RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation", "");
}

static void nothing_wanted_is_any(void **state)
{
    (void)state;
    same("", "gpu_1x_a10", "");
    other("NVIDIA", "gpu_1x_a10", "");
    other("80GB", "gpu_8x_a100_80gb_sxm4", "");
    other("A10", "", "");
}

static void the_exact_name_always_is(void **state)
{
    (void)state;
    same("GPU_1X_A10", "gpu_1x_a10", "something else");
    same("gpu", "gpu", "");
}

static void long_and_odd_texts_are_borne(void **state)
{
    char text[600];
    (void)state;
    for (size_t i = 0; i < sizeof text - 1; i++)
        text[i] = i % 3 == 0 ? ' ' : i % 2 == 0 ? 'x' : '7';
    text[sizeof text - 1] = '\0';
    other(text, "gpu_1x_a10", "");
    other("A10", "gpu_1x_x", text);
    for (size_t i = 0; i < sizeof text - 1; i++)
        text[i] = 'a';
    other(text, "A", "");
    other("\xff\xfe", "gpu_1x_a10", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_compared_not_texts),
        cmocka_unit_test(makers_and_counts_do_not_matter),
        cmocka_unit_test(memory_and_form_are_kept_to),
        cmocka_unit_test(rtx_is_written_in_several_ways),
        cmocka_unit_test(nothing_wanted_is_any),
        cmocka_unit_test(the_exact_name_always_is),
        cmocka_unit_test(long_and_odd_texts_are_borne),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
