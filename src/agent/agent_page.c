/* SPDX-License-Identifier: MIT
 * agent/agent_page.c - a limiter as a source of views.
 *
 * A root has quotas as they were entered and counts of all limiters; this
 * source has one process's table, with quotas as they are in force
 * (table/table_view.c). So a quota is put together from a slot: a leak of
 * 100 units a second is shown as 100/s, even if 6000/min was entered. Requests
 * for data of roots only (edits, their history, other limiters) are answered
 * by the roots' addresses.
 *
 * Sums. A slot counts on when another name gets it, so a sum is the slot's
 * count less its count when this name was first seen there; in a slot's first
 * life that is 0.
 *
 * Time. The listeners are on this thread: a long task here delays clients. To
 * read a slot takes some 0.4 us, too long for all that may be in use. So a
 * sweep reads some slots a second, more while a page is open, and notes each in
 * a row; a walk reads rows and names only, and reads again the few slots that
 * it chooses. A slot requested by its name is read in any case. */

#include "agent/agent_page.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "front/http_problem.h"
#include "front/uri.h"
#include "front/view.h"
#include "io/clock.h"
#include "libweir/limiter_view.h"

#define BRIEF_SLOTS 2000 /* read for one page of the tree: about 1 ms */
#define SWEEP_IDLE 2000  /* slots a second, … */
#define SWEEP_SEEN 8000  /* … and so many more while a page is open */
#define SWEEP_EVERY (900 * WEIR_MILLISECOND)

/* The last reading of a slot. */
struct row {
    uint32_t generation; /* the generation of the sums; 0: no sums yet */
    bool used;           /* at the last sweep, and so are all members below */
    float fill;
    uint32_t ruler;     /* of an instance: the slot of its template, … */
    uint32_t instances; /* … its row has their sum, during sum_up_instances() */
    uint64_t passed, refused;
    uint64_t count_before, refused_before; /* at the begin of the sums */
};

struct weir_agent_page {
    struct weir *weir; /* borrowed */
    struct weir_views *views;
    struct weir_http_take_views asked;
    struct row *rows;      /* by slot */
    uint32_t hand;         /* the next slot of the sweep */
    weir_instant swept_at; /* for an open page */
    uint32_t walked;       /* the slot of the last usage of a walk, … */
    char walked_name[WEIR_NAME_MAX + 1]; /* … and its name */
    char name[WEIR_NAME_MAX + 1];
    char roots[WEIR_DIAG_MAX]; /* where to edit quotas, for people */
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    weir_instant started;
    /* The texts of the last answer. */
    struct weir_slot_details show;
    struct weir_quota quota;
};

/* ---- A slot's quota ---- */

/* A rate that isn't whole in any period, to a part in a thousand: 1250/1000 s,
 * or one unit in so many seconds, 1/56h. */
static struct weir_limit odd_limit_of(double rate)
{
    double pause = 1 / rate;
    if (rate > 1)
        return (struct weir_limit){ .units = (uint64_t)llround(rate * 1000),
                                    .per = 1000 * WEIR_SECOND };
    return (struct weir_limit){
        .units = 1,
        .per = pause > 1000
                   ? (weir_duration)llround(pause) * WEIR_SECOND
                   : (weir_duration)llround(pause * 1000) * WEIR_MILLISECOND,
    };
}

/* The shortest form: 100/s, 90/min. */
static struct weir_limit limit_of_rate(double rate, bool inflight)
{
    static const uint64_t periods[] = { 1, 60, 3600, 86400 };
    if (isinf(rate))
        return (struct weir_limit){ .unlimited = true };
    if (inflight)
        return (struct weir_limit){ .units = (uint64_t)llround(rate) };
    for (size_t i = 0; i < WEIR_COUNT_OF(periods); i++) {
        double units = rate * (double)periods[i];
        double whole = round(units);
        if (fabs(units - whole) <= 1e-9 * units)
            return (struct weir_limit){ .units = (uint64_t)whole,
                                        .per = periods[i] * WEIR_SECOND };
    }
    return odd_limit_of(rate);
}

/* The limit of a quota that a bucket state, a store or measurements decide. */
static struct weir_limit limit_elsewhere(struct weir *weir,
                                         const struct weir_slot_details *show)
{
    struct weir_policy policy;
    if (weir_policy(weir, show->name, show->name_len, &policy) < 0)
        return (struct weir_limit){ .unlimited = true };
    return (struct weir_limit){ .units = policy.quantity,
                                .per = policy.window };
}

static struct weir_burst burst_of(double units)
{
    return (struct weir_burst){ .amount =
                                    isinf(units) ? 0 : (uint64_t)ceil(units) };
}

/* The quota of the slot in page->show. */
static const struct weir_quota *quota_of_details(struct weir_agent_page *page)
{
    const struct weir_slot_details *show = &page->show;
    struct weir_quota *quota = &page->quota;
    weir_quota_init(quota);
    quota->name = show->ruler_len > 0
                      ? (struct weir_text){ show->ruler, show->ruler_len }
                      : (struct weir_text){ show->name, show->name_len };
    quota->parent = (struct weir_text){ show->parent, show->parent_len };
    quota->mode = show->mode;
    quota->sharing = show->sharing;
    quota->kind = show->inflight ? WEIR_CONCURRENCY : WEIR_RATE;
    quota->limit = show->elsewhere ? limit_elsewhere(page->weir, show)
                                   : limit_of_rate(show->limit, show->inflight);
    double high = show->elsewhere ? (double)quota->limit.units : show->high;
    quota->low_burst = burst_of(show->elsewhere ? high : show->low);
    quota->high_burst = burst_of(high);
    return quota;
}

/* ---- Usage ---- */

static bool has_quota(const struct weir_slot_details *show)
{
    return show->state > WEIR_SLOT_PLACEHOLDER;
}

/* The row of the slot in page->show; begins its sums with a new generation. */
static struct row *row_of_slot(struct weir_agent_page *page, uint32_t slot)
{
    const struct weir_slot_details *show = &page->show;
    struct row *row = &page->rows[slot];
    if (row->generation == show->generation)
        return row;
    *row = (struct row){ .generation = show->generation };
    if (show->generation > 1) {
        row->count_before = show->count;
        row->refused_before = show->refused;
    }
    return row;
}

/* Notes the state of the slot in page->show in its row; returns whether it is
 * in use. */
static bool note_slot(struct weir_agent_page *page, uint32_t slot)
{
    const struct weir_slot_details *show = &page->show;
    struct row *row = row_of_slot(page, slot);
    row->fill = (float)show->fill;
    row->ruler = show->ruler_len > 0 ? show->ruler_slot : WEIR_SLOT_NONE;
    row->passed = show->count - row->count_before;
    /* The count may be low for an instant (table/table.h). */
    row->refused = show->refused > row->refused_before
                       ? show->refused - row->refused_before
                       : 0;
    row->used = has_quota(show) && show->state != WEIR_SLOT_TEMPLATE &&
                (row->passed > 0 || row->refused > 0 || row->fill > 0);
    return row->used;
}

static void sweep_slots(struct weir_agent_page *page, uint32_t count,
                        weir_instant now)
{
    uint32_t end = weir_limiter_view_slots(page->weir);
    for (uint32_t i = 0; i < count && i < end; i++) {
        page->hand = page->hand + 1 < end ? page->hand + 1 : 0;
        if (weir_limiter_view_at(page->weir, page->hand, &page->show, now))
            (void)note_slot(page, page->hand);
        else
            page->rows[page->hand].used = false;
    }
}

static struct weir_used_quota usage_of_row(const struct row *row,
                                           struct weir_text name,
                                           const struct weir_quota *quota)
{
    return (struct weir_used_quota){ .name = name,
                                     .quota = quota,
                                     .fill = (double)row->fill,
                                     .passed = row->passed,
                                     .refused = row->refused,
                                     .limiters = 1 };
}

static size_t count_used(void *context)
{
    const struct weir_agent_page *page = context;
    return weir_limiter_view_slots(page->weir);
}

static bool next_used(void *context, size_t *cursor,
                      struct weir_used_quota *out, weir_instant now)
{
    struct weir_agent_page *page = context;
    uint32_t end = weir_limiter_view_slots(page->weir);
    (void)now;
    while (*cursor < end) {
        uint32_t slot = (uint32_t)(*cursor)++;
        const struct row *row = &page->rows[slot];
        size_t len = row->used ? weir_limiter_view_name(page->weir, slot,
                                                        page->walked_name)
                               : 0;
        if (len == 0)
            continue;
        page->walked = slot;
        *out = usage_of_row(row, (struct weir_text){ page->walked_name, len },
                            NULL);
        return true;
    }
    return false;
}

static void complete_usage(void *context, struct weir_used_quota *usage,
                           weir_instant now)
{
    struct weir_agent_page *page = context;
    if (weir_limiter_view_at(page->weir, page->walked, &page->show, now) &&
        note_slot(page, page->walked))
        *usage = usage_of_row(&page->rows[page->walked], usage->name,
                              quota_of_details(page));
}

static bool find_used_slot(void *context, struct weir_text name,
                           struct weir_used_quota *out, weir_instant now)
{
    struct weir_agent_page *page = context;
    uint32_t slot;
    if (!weir_limiter_view_find(page->weir, name, false, &page->show, &slot,
                                now) ||
        !note_slot(page, slot))
        return false;
    *out =
        usage_of_row(&page->rows[slot],
                     (struct weir_text){ page->show.name, page->show.name_len },
                     quota_of_details(page));
    return true;
}

/* ---- The rule of a name ---- */

static const char *why_adaptive(enum weir_gate_source source)
{
    switch (source) {
    case WEIR_GATE_PART:
        return "this process keeps to its part of the fleet's limit";
    case WEIR_GATE_ALONE:
        return "no root answers, so this process finds a limit for itself, "
               "beginning with its part of the fleet's";
    case WEIR_GATE_OWN:
        break;
    }
    return "this process has a limit of its own, by its measurements";
}

static const char *why_slot_elsewhere(const struct weir_slot_details *show,
                                      const struct weir_limit *limit)
{
    if (!show->elsewhere)
        return NULL;
    if (show->sharing != WEIR_ADAPTIVE &&
        (limit->unlimited || limit->units == 0))
        return NULL;
    if (show->sharing == WEIR_EXACT)
        return "its store, or a root, decides each request";
    if (show->sharing == WEIR_ADAPTIVE)
        return why_adaptive(show->source);
    return "a window or a log decides, and no bucket";
}

static bool read_rule_of_slot(void *context, struct weir_text name,
                              struct weir_ruled *out, weir_instant now)
{
    struct weir_agent_page *page = context;
    const struct weir_slot_details *show = &page->show;
    uint32_t slot;
    if (!weir_limiter_view_find(page->weir, name, true, &page->show, &slot,
                                now) ||
        !has_quota(show))
        return false;
    const struct weir_quota *quota = quota_of_details(page);
    *out = (struct weir_ruled){
        .name = quota->name,
        .parent = quota->parent,
        .mode = quota->mode,
        .kind = quota->kind,
        .limit = quota->limit,
        .low = show->low,
        .high = show->elsewhere ? (double)quota->limit.units : show->high,
        .leak = show->granted,
        .leased = show->sharing == WEIR_LEASED && !isinf(show->granted),
        .elsewhere = why_slot_elsewhere(show, &quota->limit),
        .asks = show->sharing == WEIR_EXACT,
    };
    return true;
}

static void peek_at_weir(void *context, struct weir_text name, uint64_t weight,
                         struct weir_reply *out, weir_instant now)
{
    const struct weir_agent_page *page = context;
    (void)weir_peek_by_name(page->weir, name.p, name.len, weight, out, now);
}

/* ---- Other parts of the source ---- */

static const char *describe_trouble(const struct weir_status *status)
{
    if (status->stale)
        return "No root answered for stale_after: each quota goes by its "
               "on_stale";
    if (status->roots > 0 && status->roots_up == 0)
        return "No root can be reached: decisions go by this process's counts";
    return NULL;
}

static void read_limiter_facts(void *context, struct weir_view_facts *out)
{
    const struct weir_agent_page *page = context;
    struct weir_status status;
    weir_status(page->weir, &status);
    *out = (struct weir_view_facts){
        .kind = "limiter",
        .name = page->name,
        .version = weir_version(),
        .incarnation = page->incarnation,
        .ready = status.ready,
        .trouble = describe_trouble(&status),
        .started = page->started,
        .epoch = status.epoch,
        .quotas = status.slots_used,
        .unknown = status.unknown,
        .contended = status.contended,
        .limiters = weir_limiter_view_fleet(page->weir),
        .reports = status.reports,
    };
}

/* A template has no usage of its own: its row gets the sum of its instances.
 * Returns how many templates there are. */
static size_t sum_up_instances(struct weir_agent_page *page,
                               uint32_t templates[WEIR_TEMPLATES_MAX])
{
    uint32_t end = weir_limiter_view_slots(page->weir);
    size_t count = 0;
    for (uint32_t slot = 0; slot < end; slot++) {
        const struct row *row = &page->rows[slot];
        if (!row->used || row->ruler == WEIR_SLOT_NONE)
            continue;
        struct row *sum = &page->rows[row->ruler];
        bool first = sum->instances == 0;
        if (first && count == WEIR_TEMPLATES_MAX)
            continue;
        if (first) {
            templates[count++] = row->ruler;
            sum->passed = sum->refused = 0;
        }
        sum->instances++;
        sum->passed += row->passed;
        sum->refused += row->refused;
    }
    weir_assert(count <= WEIR_TEMPLATES_MAX);
    return count;
}

static json_t *list_slot_templates(void *context, weir_instant now)
{
    struct weir_agent_page *page = context;
    uint32_t used[WEIR_TEMPLATES_MAX];
    size_t count = sum_up_instances(page, used);
    json_t *sums = json_object();
    (void)now;
    for (size_t i = 0; i < count; i++) {
        struct row *sum = &page->rows[used[i]];
        char name[WEIR_NAME_MAX + 1];
        if (weir_limiter_view_name(page->weir, used[i], name) > 0)
            json_object_set_new(
                sums, name,
                weir_view_sum(sum->passed, sum->refused, sum->instances));
        sum->instances = 0;
    }
    return sums;
}

/* ---- The tree, and the roots ---- */

/* NULL: the slot in page->show has neither a quota nor a template. */
static json_t *brief_row(struct weir_agent_page *page)
{
    const struct weir_slot_details *show = &page->show;
    if (show->state != WEIR_SLOT_QUOTA && show->state != WEIR_SLOT_TEMPLATE)
        return NULL;
    return weir_view_brief(quota_of_details(page));
}

/* In the order of slots: 'after' is the slot to begin at. */
static int answer_brief(struct weir_agent_page *page, struct weir_text query,
                        json_t **out, struct weir_diag *diag, weir_instant now)
{
    size_t slot = 0;
    int error = weir_query_number(query, "after", WEIR_SLOTS_MAX, &slot, diag);
    if (error < 0)
        return error;
    uint32_t end = weir_limiter_view_slots(page->weir);
    json_t *list = json_array();
    size_t till = slot + BRIEF_SLOTS < end ? slot + BRIEF_SLOTS : end;
    for (; slot < till; slot++) {
        json_t *row =
            weir_limiter_view_at(page->weir, (uint32_t)slot, &page->show, now)
                ? brief_row(page)
                : NULL;
        if (row)
            json_array_append_new(list, row);
    }
    struct weir_status status;
    weir_status(page->weir, &status);
    *out = json_pack("{s:I, s:I, s:o}", "epoch", (json_int_t)status.epoch,
                     "total", (json_int_t)status.slots_used, "quotas", list);
    if (slot < end)
        json_object_set_new(*out, "next", json_sprintf("%zu", slot));
    return 0;
}

static json_t *root_object(const struct weir_limiter_view_root *root,
                           uint64_t epoch, weir_instant now)
{
    bool received = root->received_at > 0;
    double silent =
        now > root->received_at ? (double)(now - root->received_at) : 0;
    uint64_t behind = root->epoch > epoch ? root->epoch - epoch : 0;
    return json_pack("{s:s, s:b, s:o, s:I, s:I, s:s*}", "address",
                     root->address, "up", root->up, "silent_s",
                     received ? json_real(silent / 1e9) : json_null(), "epoch",
                     (json_int_t)root->epoch, "behind", (json_int_t)behind,
                     "problem", root->up ? NULL : root->why);
}

static int answer_roots(struct weir_agent_page *page, struct weir_text query,
                        json_t **out, struct weir_diag *diag, weir_instant now)
{
    struct weir_limiter_view_root root[WEIR_ROOTS_MAX];
    struct weir_status status;
    (void)query;
    (void)diag;
    uint32_t count = weir_limiter_view_roots(page->weir, root);
    weir_status(page->weir, &status);
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(list, root_object(&root[i], status.epoch, now));
    /* With a shared table another process may have the links. */
    *out = json_pack("{s:o, s:I, s:I, s:b}", "roots", list, "named",
                     (json_int_t)status.roots, "reports",
                     (json_int_t)status.reports, "elsewhere",
                     count < status.roots);
    return 0;
}

/* ---- Paths ---- */

static bool path_begins(struct weir_text path, const char *with)
{
    size_t len = strlen(with);
    return path.len >= len && memcmp(path.p, with, len) == 0;
}

static void name_roots(struct weir_agent_page *page)
{
    struct weir_limiter_view_root root[WEIR_ROOTS_MAX];
    uint32_t count = weir_limiter_view_roots(page->weir, root);
    size_t len = 0;
    page->roots[0] = '\0';
    for (uint32_t i = 0; i < count && len < sizeof page->roots; i++)
        len += (size_t)snprintf(page->roots + len, sizeof page->roots - len,
                                "%s%s", i > 0 ? ", " : "", root[i].address);
}

/* Refuses paths of data that roots have and a limiter hasn't. */
static int send_to_root(struct weir_agent_page *page, struct weir_text path,
                        struct weir_diag *diag)
{
    static const char *const theirs[] = { "/v1/quotas", "/v1/log", "/v1/undo",
                                          "/v1/preview", "/v1/shadow" };
    for (size_t i = 0; i < WEIR_COUNT_OF(theirs); i++) {
        if (!path_begins(path, theirs[i]))
            continue;
        name_roots(page);
        weir_diag_set(diag, WEIR_ENOENT,
                      "this is a limiter: quotas as they were entered, their "
                      "edits and the log of those are at its roots (",
                      page->roots[0] ? page->roots : "none", ")", NULL);
        return 404;
    }
    return 0;
}

/* The agent's own views, in addition to weir_views. */
static const struct {
    const char *path;
    int (*answer)(struct weir_agent_page *page, struct weir_text query,
                  json_t **out, struct weir_diag *diag, weir_instant now);
} own[] = {
    { "/v1/quotas:brief", answer_brief },
    { "/v1/roots", answer_roots },
};

static const char *path_of_agent_view(size_t i)
{
    size_t at = 0;
    while (weir_views_path(at))
        at++;
    if (i < at)
        return weir_views_path(i);
    return i - at < WEIR_COUNT_OF(own) ? own[i - at].path : NULL;
}

static int answer_agent_view(void *context, struct weir_text target,
                             json_t **out, struct weir_diag *diag,
                             weir_instant now)
{
    struct weir_agent_page *page = context;
    struct weir_uri uri = weir_uri_split(target);
    if (now >= page->swept_at + SWEEP_EVERY) {
        page->swept_at = now;
        sweep_slots(page, SWEEP_SEEN, now);
    }
    int error = WEIR_ENOENT;
    bool found = weir_views_have(uri.path);
    if (found)
        error = weir_views_answer(page->views, &uri, out, diag, now);
    for (size_t i = 0; i < WEIR_COUNT_OF(own) && !found; i++) {
        found = weir_text_equal(uri.path, weir_text_of(own[i].path));
        if (found)
            error = own[i].answer(page, uri.query, out, diag, now);
    }
    if (!found)
        return send_to_root(page, uri.path, diag);
    return error < 0 ? weir_error_status(error) : 200;
}

/* ---- Life ---- */

static void set_page_name(struct weir_agent_page *page, const char *name)
{
    if (name && name[0])
        snprintf(page->name, sizeof page->name, "%s", name);
    else if (gethostname(page->name, sizeof page->name - 1) < 0)
        snprintf(page->name, sizeof page->name, "an agent");
}

struct weir_agent_page *weir_agent_page_new(struct weir *weir, const char *name,
                                            weir_instant now)
{
    struct weir_agent_page *page = calloc(1, sizeof *page);
    if (!page)
        return NULL;
    struct weir_status status;
    weir_status(weir, &status);
    page->weir = weir;
    page->rows = calloc(status.slots, sizeof *page->rows);
    page->started = now;
    page->asked = (struct weir_http_take_views){ .context = page,
                                                 .answer = answer_agent_view,
                                                 .path = path_of_agent_view };
    weir_entropy(page->incarnation, sizeof page->incarnation);
    set_page_name(page, name);
    const struct weir_view_source source = {
        .usages = { .context = page,
                    .count = count_used,
                    .next = next_used,
                    .of = find_used_slot,
                    .complete = complete_usage },
        .context = page,
        .facts = read_limiter_facts,
        .rule = read_rule_of_slot,
        .peek = peek_at_weir,
        .templates = list_slot_templates,
    };
    page->views = weir_views_new(&source);
    if (!page->rows || !page->views)
        weir_agent_page_free(&page);
    return page;
}

void weir_agent_page_free(struct weir_agent_page **page)
{
    if (!*page)
        return;
    weir_views_free(&(*page)->views);
    free((*page)->rows);
    free(*page);
    *page = NULL;
}

const struct weir_http_take_views *weir_agent_page_views(
    const struct weir_agent_page *page)
{
    return &page->asked;
}

void weir_agent_page_tick(struct weir_agent_page *page, weir_instant now)
{
    sweep_slots(page, SWEEP_IDLE, now);
    weir_views_tick(page->views, now);
}
