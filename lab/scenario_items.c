/* SPDX-License-Identifier: MIT
 * lab/scenario_items.c - what the statements of all kinds use: the bound of
 * their number, quotas that they name, and their words for a run's log. */

#include "lab/scenario_internal.h"

int weir_build_room(struct weir_builder *builder, size_t count)
{
    if (count < WEIR_SCENARIO_ITEMS_MAX)
        return 0;
    return WEIR_REFUSE(builder, &builder->line.words[0],
                       "there are more than "
                       "%d of these, the most that a scenario may have",
                       WEIR_SCENARIO_ITEMS_MAX);
}

char *weir_build_mention(struct weir_builder *builder,
                         const struct weir_word *word)
{
    *WEIR_APPEND(builder, builder->mentions, builder->mention_count) =
        (struct weir_mention){ word->text, word->where };
    return weir_scenario_text(builder->scenario, word->text);
}

int weir_build_find_load(struct weir_builder *builder,
                         const struct weir_word *name,
                         const struct weir_load **out)
{
    const struct weir_scenario *scenario = builder->scenario;
    size_t count = scenario->load_count;
    const char **names =
        weir_scenario_alloc(builder->scenario, (count + 1) * sizeof *names);
    for (size_t i = 0; i < count; i++) {
        names[i] = scenario->loads[i].name;
        if (!weir_text_equal(weir_text_of(names[i]), name->text))
            continue;
        *out = &scenario->loads[i];
        return 0;
    }
    return weir_script_unknown(builder->diag, name, "load above here called",
                               names);
}

char *weir_build_words(struct weir_builder *builder, size_t from)
{
    weir_assert(from <= builder->line.next);
    const struct weir_line *line = &builder->line;
    size_t len = 1;
    for (size_t i = from; i < line->next; i++)
        len += line->words[i].text.len + 1;
    char *text = weir_scenario_alloc(builder->scenario, len);
    size_t at = 0;
    for (size_t i = from; i < line->next; i++) {
        struct weir_text word = line->words[i].text;
        if (at > 0)
            text[at++] = ' ';
        memcpy(text + at, word.p, word.len);
        at += word.len;
    }
    return text;
}
