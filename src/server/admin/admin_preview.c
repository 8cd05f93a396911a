/* SPDX-License-Identifier: MIT
 * server/admin/admin_preview.c - POST /v1/preview: how a quota would have
 * limited a recorded load.
 *
 * The page knows the load that was offered to a quota, second by second. The
 * preview runs it through the quota as it would be after an edit, by the
 * arithmetic of limiters: a step's units come in portions at equal distances,
 * and each asks a bucket (of the leaky algorithm, with its band) or a bucket
 * state (of the others). In place of chance, the band refuses by carrying over:
 * at a chance of 1/3 it refuses each third portion. So the same request has the
 * same answer.
 *
 * It is the quota alone, in one process and without delay: without the quotas
 * above it, and without the error of counts on their way to the roots. */

#include <stdlib.h>

#include "codec/json_text.h"
#include "codec/quota_json.h"
#include "core/quota/quota_bucket.h"
#include "server/admin/admin_internal.h"

#define PORTIONS 40 /* of a step, at most */
#define STEP_MIN (WEIR_SECOND / 10)
#define STEP_MAX (60 * WEIR_SECOND)

struct model {
    bool leaky;
    struct weir_bucket bucket;
    uint64_t in;  /* the bucket's sum of passed units, scaled */
    double carry; /* of the band: its chances so far, below 1 */
    struct weir_algorithm_rule rule;
    void *state; /* the bucket state's; owned; NULL: a bucket */
};

/* ---- One portion ---- */

static bool take_from_bucket(struct model *model, uint64_t weight,
                             weir_instant now)
{
    const struct weir_bucket *bucket = &model->bucket;
    if (bucket->high == WEIR_SCALED_MAX)
        return true;
    uint64_t leaked = weir_leaked(bucket->leak, now);
    int64_t fill = (int64_t)(model->in - leaked);
    if (fill < 0) {
        model->in = leaked;
        fill = 0;
    }
    int64_t scaled = (int64_t)(weight << bucket->leak.frac);
    if (fill + scaled > bucket->high)
        return false;
    if (fill > bucket->low) {
        model->carry +=
            (double)(fill - bucket->low) / (double)(bucket->high - bucket->low);
        if (model->carry >= 1) {
            model->carry -= 1;
            return false;
        }
    }
    model->in += (uint64_t)scaled;
    return true;
}

static bool take_portion(struct model *model, uint64_t weight, weir_instant now)
{
    if (model->leaky)
        return take_from_bucket(model, weight, now);
    const struct weir_algorithm_ask one = { .op = WEIR_ALGORITHM_TAKE,
                                            .weight = weight };
    struct weir_algorithm_answer answer;
    weir_algorithm_step(&model->rule, model->state, &one, &answer, now);
    return answer.passed;
}

/* ---- The run ---- */

/* How many of 'offered' units pass in the step that begins at 'now'. */
static uint64_t run_step(struct model *model, uint64_t offered,
                         weir_duration step, weir_instant now)
{
    uint64_t portions = offered < PORTIONS ? offered : PORTIONS;
    uint64_t passed = 0;
    uint64_t given = 0;
    for (uint64_t i = 0; i < portions; i++) {
        uint64_t upto = offered / portions * (i + 1) +
                        offered % portions * (i + 1) / portions;
        uint64_t weight = upto - given;
        given = upto;
        if (take_portion(model, weight, now + step / portions * i))
            passed += weight;
    }
    weir_assert(given == offered && passed <= offered);
    return passed;
}

static json_t *run_steps(struct model *model, const json_t *offered,
                         weir_duration step, weir_instant now)
{
    json_t *passed = json_array();
    size_t index;
    const json_t *units;
    json_array_foreach(offered, index, units)
    {
        uint64_t value = (uint64_t)json_integer_value(units);
        json_array_append_new(passed, json_integer((json_int_t)run_step(
                                          model, value, step, now)));
        now += step;
    }
    return json_pack("{s:o}", "passed", passed);
}

/* ---- The request ---- */

static int check_offered(const json_t *offered, struct weir_diag *diag)
{
    size_t count = json_array_size(offered);
    if (count < 1 || count > WEIR_ADMIN_PREVIEW_MAX)
        return weir_diag_put(
            diag, WEIR_ESYNTAX,
            "\"offered\" is an array of 1 to 600 numbers, units in each step");
    size_t index;
    const json_t *units;
    json_array_foreach(offered, index, units)
    {
        json_int_t value = json_integer_value(units);
        if (!json_is_integer(units) || value < 0 ||
            value > (json_int_t)WEIR_LIMIT_MAX)
            return weir_diag_put(
                diag, WEIR_ESYNTAX,
                "\"offered\" holds whole numbers from 0 to 100G");
    }
    return 0;
}

static int read_step_length(const json_t *body, weir_duration *out,
                            struct weir_diag *diag)
{
    const json_t *step = json_object_get(body, "step");
    *out = WEIR_SECOND;
    if (!step)
        return 0;
    struct weir_text text = { json_string_value(step),
                              json_string_length(step) };
    weir_duration value = 0;
    if (!json_is_string(step) || weir_duration_parse(text, &value, NULL) < 0 ||
        value < STEP_MIN || value > STEP_MAX)
        return weir_diag_put(diag, WEIR_ESYNTAX,
                             "\"step\" is a time from \"100ms\" to \"1min\"");
    *out = value;
    return 0;
}

/* The quota as the edit would leave it; texts are borrowed from 'object'. */
static int read_previewed_quota(struct weir_admin_call *call, json_t *object,
                                struct weir_quota *out, struct weir_diag *diag)
{
    const json_t *name = json_object_get(object, "name");
    struct weir_text text = { json_string_value(name),
                              json_string_length(name) };
    const struct weir_quota *old =
        name ? weir_catalog_get(weir_root_catalog(call->admin->root), text)
             : NULL;
    weir_quota_init(out);
    out->name = WEIR_TEXT("preview"); /* of a quota without a name */
    if (old)
        *out = *old;
    int error = weir_quota_from_json(object, out, diag);
    if (error == WEIR_ENOENT)
        error = WEIR_EQUOTA; /* no such field, not no such quota */
    if (error == 0)
        error = weir_quota_check(out, diag);
    if (error == 0 && out->kind != WEIR_RATE)
        error = weir_diag_put(diag, WEIR_EQUOTA,
                              "only a rate can be previewed: how long units "
                              "are held isn't known from the load");
    return error;
}

static int make_model(const struct weir_quota *quota, struct model *out)
{
    *out = (struct model){ .leaky = quota->algorithm == WEIR_LEAKY };
    weir_quota_bucket(quota, &out->bucket);
    weir_quota_algorithm_rule(quota, 0, &out->rule);
    /* Without a limit the quota is a bucket, for any algorithm. */
    out->leaky |= out->rule.algorithm == WEIR_LEAKY;
    if (out->leaky)
        return 0;
    out->state = calloc(1, weir_algorithm_size(&out->rule));
    return out->state ? 0 : WEIR_ENOMEM;
}

static int make_preview(struct weir_admin_call *call, json_t *body,
                        json_t **out, struct weir_diag *diag)
{
    const json_t *offered = json_object_get(body, "offered");
    struct weir_quota quota;
    struct model model = { 0 };
    weir_duration step = WEIR_SECOND;
    int error = check_offered(offered, diag);
    if (error == 0)
        error = read_step_length(body, &step, diag);
    if (error == 0)
        error = read_previewed_quota(call, json_object_get(body, "quota"),
                                     &quota, diag);
    if (error == 0)
        error = make_model(&quota, &model);
    if (error < 0)
        return error;
    /* The run begins at 0, and so does a calendar's window. */
    *out = run_steps(&model, offered, step, 0);
    free(model.state);
    return 0;
}

void weir_admin_preview(struct weir_admin_call *call)
{
    struct weir_diag diag = { 0 };
    struct weir_text text = call->request->body;
    json_error_t why;
    json_t *body =
        weir_json_read(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    json_t *answer = NULL;
    int error = json_is_object(body) ? make_preview(call, body, &answer, &diag)
                : !body && !why.text[0]
                    ? WEIR_ENOMEM
                    : weir_diag_put(&diag, WEIR_ESYNTAX,
                                    "the body isn't a JSON object: write "
                                    "{\"quota\": {...}, \"offered\": [...]}");
    if (error < 0)
        weir_admin_answer_error(&call->asker, error, &diag);
    else
        weir_admin_answer_json(&call->asker, 200, answer);
    json_decref(body);
}
