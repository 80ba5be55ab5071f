/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a manifest: refused, or one that holds, prints, and reads back the same; and whose URLs lead nowhere they may not. */
#include "fetch/source.h"
#include "store/manifest_json.h"
#include "tests/fuzz/fuzz.h"

enum { PRINT_MAX = 1 << 24 };

static void check_places(const struct manifest *m)
{
    int64_t total = 0;

    for (size_t i = 0; i < m->shards; i++) {
        const struct shard_place at = manifest_place(m, i);
        assert(at.file < m->files && at.size > 0 && at.size <= m->shard_bytes);
        assert(at.offset >= 0 && at.offset + at.size <= m->file[at.file].size);
        total += at.size;
    }
    assert(total == m->total_bytes);
}

static void check_sources(const struct manifest *m)
{
    const struct source_rules none = { .token = "secret" };
    cleanup_sources struct sources *s = sources_new(m, NULL, &none);

    for (size_t i = 0; i < sources_count(s); i++) {
        for (size_t k = 0; k < m->files; k++) {
            cleanup_buf struct buf url = BUF_INIT(SOURCE_URL_MAX);
            const char *token = NULL;
            enum http_peer peer = HTTP_PEER_ANY;
            if (!sources_has(s, i, k))
                continue;
            sources_url(s, i, k, &url, &token, &peer);
            assert(token == NULL && peer == HTTP_PEER_FAR);
            assert(strncasecmp(url.data, "https://", 8) == 0);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_manifest struct manifest m = MANIFEST_INIT;
    cleanup_manifest struct manifest again = MANIFEST_INIT;
    cleanup_buf struct buf text = BUF_INIT(PRINT_MAX);

    if (manifest_read((const char *)data, size, &m, NULL) < 0) {
        assert(m.files == 0 && m.file == NULL);
        return 0;
    }
    const int checked = manifest_check(&m, NULL);
    assert(checked == 0);
    check_places(&m);
    check_sources(&m);
    manifest_print(&m, NULL, &text);
    if (text.len > MANIFEST_BYTES_MAX)
        return 0;
    const int rc = manifest_read(text.data, text.len, &again, NULL);
    assert(rc == 0 && again.files == m.files && again.shards == m.shards);
    return 0;
}
