/* SPDX-License-Identifier: Apache-2.0 */
#include "model/gpu_match.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"

enum { WORDS_MAX = 8, WORD_SIZE = 24 };

/* What a text says of a GPU. */
struct gpu {
    char model[WORDS_MAX][WORD_SIZE]; /* what is left once all else is taken out */
    size_t n;
    char memory[WORD_SIZE]; /* "80gb", or "" */
    char form[WORD_SIZE];   /* "sxm5", "pcie", "nvl", or "" */
};

static bool is_noise(const char *word)
{
    static const char *const NOISE[] = { "nvidia", "amd", "tesla", "geforce", "quadro", "instinct",
        "gpu", "cpu", "generation", "edition", "hbm2", "hbm2e", "hbm3", "hbm3e", "oam" };
    for (size_t i = 0; i < sizeof NOISE / sizeof NOISE[0]; i++) {
        if (strcmp(word, NOISE[i]) == 0)
            return true;
    }
    size_t digits = strspn(word, "0123456789");
    return digits > 0 && strcmp(word + digits, "x") == 0; /* how many: "8x" */
}

static bool is_memory(const char *word)
{
    size_t digits = strspn(word, "0123456789");
    return digits > 0 && strcmp(word + digits, "gb") == 0;
}

static bool is_form(const char *word)
{
    return str_starts(word, "sxm") || strcmp(word, "pcie") == 0 || strcmp(word, "nvl") == 0;
}

/* "rtx a6000" and "rtxa6000" are the A6000; "rtx 4090" is one word. */
static void add_model(struct gpu *g, const char *word)
{
    const bool after_rtx = g->n > 0 && strcmp(g->model[g->n - 1], "rtx") == 0;
    if (str_starts(word, "rtxa"))
        word += 3;
    if (after_rtx && isdigit((unsigned char)word[0])) {
        (void)str_format(g->model[g->n - 1], WORD_SIZE, "rtx%.*s", WORD_SIZE - 4, word);
        return;
    }
    if (after_rtx && word[0] == 'a' && isdigit((unsigned char)word[1]))
        g->n--;
    if (g->n < WORDS_MAX)
        (void)str_copy(g->model[g->n++], WORD_SIZE, word);
}

static void take_word(struct gpu *g, const char *word)
{
    if (strcmp(word, "gb") == 0 && g->n > 0 && isdigit((unsigned char)g->model[g->n - 1][0])) {
        g->n--; /* "80 GB" */
        (void)str_format(g->memory, WORD_SIZE, "%.*sgb", WORD_SIZE - 3, g->model[g->n]);
    } else if (is_memory(word)) {
        (void)str_copy(g->memory, WORD_SIZE, word);
    } else if (is_form(word)) {
        (void)str_copy(g->form, WORD_SIZE, word);
    } else if (!is_noise(word)) {
        add_model(g, word);
    }
}

static struct gpu read_gpu(const char *text)
{
    struct gpu g = { .n = 0 };
    char word[WORD_SIZE] = "";
    size_t used = 0;
    for (const char *p = text;; p++) {
        if (isalnum((unsigned char)*p)) {
            if (used < WORD_SIZE - 1)
                word[used++] = (char)tolower((unsigned char)*p);
            continue;
        }
        word[used] = '\0';
        if (used > 0)
            take_word(&g, word);
        used = 0;
        if (*p == '\0')
            return g;
    }
}

static bool same_model(const struct gpu *a, const struct gpu *b)
{
    if (a->n == 0 || a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        if (strcmp(a->model[i], b->model[i]) != 0)
            return false;
    }
    return true;
}

/* What one of them does not tell stands against nothing; "sxm" is any SXM. */
static bool agree(const char *a, const char *b)
{
    return a[0] == '\0' || b[0] == '\0' || strcmp(a, b) == 0 ||
           (strcmp(a, "sxm") == 0 && str_starts(b, "sxm")) ||
           (strcmp(b, "sxm") == 0 && str_starts(a, "sxm"));
}

bool gpu_match(const char *wanted, const char *offered, const char *described)
{
    if (wanted[0] == '\0' || strcasecmp(wanted, offered) == 0)
        return true;
    const struct gpu w = read_gpu(wanted);
    const struct gpu name = read_gpu(offered);
    const struct gpu more = read_gpu(described);
    const char *memory = name.memory[0] != '\0' ? name.memory : more.memory;
    const char *form = name.form[0] != '\0' ? name.form : more.form;
    return (same_model(&w, &name) || same_model(&w, &more)) && agree(w.memory, memory) &&
           agree(w.form, form);
}
