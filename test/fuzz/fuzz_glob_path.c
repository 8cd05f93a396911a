/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_glob_path.c - any bytes as a pattern, a line feed and a
 * name, against an oracle that tries all ways to match. */

#include <string.h>

#include "core/quota/glob.h"
#include "glob_path_oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STARS_MAX 6 /* bounds the oracle's time */
#define NAME_LEN_MAX 40

static unsigned stars_of(struct weir_text text)
{
    unsigned stars = 0;
    for (size_t i = 0; i < text.len; i++)
        stars += text.p[i] == '*';
    return stars;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    const char *feed = size > 0 ? memchr(bytes, '\n', size) : NULL;
    if (!feed)
        return 0;
    struct weir_text pattern = { bytes, (size_t)(feed - bytes) };
    struct weir_text name = { feed + 1, size - pattern.len - 1 };
    struct weir_diag diag = { 0 };
    bool sound = weir_glob_path_check(pattern, &diag) == 0;
    weir_assert(sound == (diag.text[0] == '\0'));
    bool match = weir_glob_path_match(pattern, name);
    weir_assert(sound || !match);
    if (!sound || stars_of(pattern) > STARS_MAX || name.len > NAME_LEN_MAX)
        return 0;
    bool wanted = oracle_path(pattern, name);
    weir_assert(wanted || !match);
    if (oracle_path_is_plain(pattern, name))
        weir_assert(match == wanted);
    return 0;
}
