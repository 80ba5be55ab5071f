/* SPDX-License-Identifier: Apache-2.0 */
/* A main for fuzz targets where there is no libFuzzer: runs each file named on the command line. */
#include <stdio.h>

#include "base/mem.h"
#include "tests/fuzz/fuzz.h"

static int replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        perror(path);
        return -1;
    }
    size_t size = 0;
    size_t room = 1;
    uint8_t *data = mem_alloc(room);
    for (;;) {
        size_t n = fread(data + size, 1, room - size, f);
        size += n;
        if (n == 0)
            break;
        if (size == room)
            data = mem_resize(data, room *= 2, 1);
    }
    int failed = ferror(f);
    (void)fclose(f);
    /* A block of just that size, so that the sanitizer sees reads past the input. */
    char *exact = mem_alloc(size == 0 ? 1 : size);
    for (size_t i = 0; i < size; i++)
        exact[i] = (char)data[i];
    free(data);
    (void)LLVMFuzzerTestOneInput((const uint8_t *)exact, size);
    free(exact);
    return failed ? -1 : 0;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (replay(argv[i]) < 0)
            return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
