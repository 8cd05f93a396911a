/* SPDX-License-Identifier: MIT
 * ngx_http_weir_reply.c - the details of a decision: for variables, headers and
 * the log.
 *
 * A decision costs a third if only the verdict is wanted. So the details are
 * computed on demand, by a peek at the quotas checked before
 * (ngx_http_weir_explain()). */

#include "ngx_http_weir_module.h"


#define NGX_HTTP_WEIR_INTEGER_MAX    999999999999999    /* RFC 9651 */


static uint64_t ngx_http_weir_excess(struct weir_reply *reply, uint64_t weight,
    struct weir_policy *policy);
static ngx_int_t ngx_http_weir_add_header(ngx_http_request_t *r,
    const char *key, u_char *value, u_char *last);
static u_char *ngx_http_weir_quote(u_char *p, struct weir_reply *reply);
static time_t ngx_http_weir_retry_after(ngx_http_weir_ctx_t *ctx);

static ngx_int_t ngx_http_weir_verdict_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_weir_reply_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);


static ngx_http_variable_t  ngx_http_weir_vars[] = {

    { ngx_string("weir_verdict"), NULL,
      ngx_http_weir_verdict_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("weir_remaining"), NULL,
      ngx_http_weir_reply_variable, 'm', NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("weir_retry_after"), NULL,
      ngx_http_weir_reply_variable, 't', NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("weir_quota"), NULL,
      ngx_http_weir_reply_variable, 'q', NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


static ngx_str_t  ngx_http_weir_verdicts[] = {
    ngx_string("unknown"),
    ngx_string("passed"),
    ngx_string("delayed"),
    ngx_string("delayed_dry_run"),
    ngx_string("limited"),
    ngx_string("limited_dry_run")
};


/*
 * The reply of the quota that refused, or else of the checked one that is
 * nearest to its limit; NULL: no memory, or no limiter.
 */
struct weir_reply *
ngx_http_weir_explain(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx)
{
    ngx_uint_t            i;
    struct weir          *weir;
    struct weir_reply    *reply, *spare, *replies;
    ngx_http_weir_ask_t  *asked;

    weir = ngx_http_weir_limiter();

    if (ctx->reply || weir == NULL) {
        return ctx->reply;
    }

    replies = ngx_palloc(r->pool, 2 * sizeof(struct weir_reply));
    if (replies == NULL) {
        return NULL;
    }

    asked = ctx->asked.elts;
    reply = &replies[0];
    spare = &replies[1];

    for (i = 0; i < ctx->asked.nelts; i++) {

        (void) weir_peek_by_name(weir, (char *) asked[i].name.data,
                                 asked[i].name.len, asked[i].weight, spare,
                                 ngx_http_weir_now());

        if (ctx->reply && (spare->unknown
                           || spare->remaining >= reply->remaining))
        {
            continue;
        }

        ctx->reply = spare;
        spare = reply;
        reply = ctx->reply;
    }

    if (ctx->verdict == ngx_http_weir_pass && reply->unknown) {
        ctx->verdict = ngx_http_weir_unknown;
    }

    return ctx->reply;
}


void
ngx_http_weir_log_refusal(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx,
    ngx_http_weir_limit_t *limit)
{
    uint64_t               excess;
    const char            *dry_run, *stale;
    ngx_log_t             *log;
    struct weir_reply     *reply;
    struct weir_policy     policy;
    ngx_http_weir_ask_t   *asked;
    ngx_http_weir_conf_t  *wlcf;

    wlcf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);

    log = r->connection->log;
    reply = ctx->reply;
    asked = ctx->asked.elts;
    dry_run = wlcf->dry_run ? ", dry run" : "";
    stale = reply->stale ? ", stale" : "";

    if (reply->unknown) {
        ngx_log_error(wlcf->log_level, log, 0,
                      "limiting requests%s, the value of \"%V\" can't be "
                      "the name of a quota", dry_run, &limit->name.value);
        return;
    }

    ngx_memzero(&policy, sizeof(struct weir_policy));
    (void) weir_policy(ngx_http_weir_limiter(), reply->quota,
                       reply->quota_len, &policy);

    if (policy.concurrency) {
        ngx_log_error(wlcf->log_level, log, 0,
                      "limiting connections%s, in flight: %L of quota "
                      "\"%s\"%s", dry_run, (int64_t) reply->fill, reply->quota,
                      stale);
        return;
    }

    excess = ngx_http_weir_excess(reply, asked[0].weight, &policy);

    ngx_log_error(wlcf->log_level, log, 0,
                  "limiting requests%s, excess: %uL.%03uL of quota \"%s\"%s",
                  dry_run, excess / 1000, excess % 1000, reply->quota, stale);
}


/* A delay is less serious than a refusal: one level lower. */
void
ngx_http_weir_log_delay(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx)
{
    uint64_t               excess;
    struct weir_reply     *reply;
    struct weir_policy     policy;
    ngx_http_weir_conf_t  *wlcf;

    wlcf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);

    reply = ctx->delaying;

    ngx_memzero(&policy, sizeof(struct weir_policy));
    (void) weir_policy(ngx_http_weir_limiter(), reply->quota,
                       reply->quota_len, &policy);

    excess = ngx_http_weir_excess(reply, 0, &policy);

    ngx_log_error(ngx_min(wlcf->log_level + 1, NGX_LOG_INFO),
                  r->connection->log, 0,
                  "delaying request%s, excess: %uL.%03uL of quota \"%s\"%s",
                  wlcf->dry_run ? ", dry run" : "", excess / 1000,
                  excess % 1000, reply->quota, reply->stale ? ", stale" : "");
}


/*
 * How far a request of the weight goes beyond the burst, in thousandths of a
 * unit: of a reservation exactly, by the wait; else in whole units.
 */
static uint64_t
ngx_http_weir_excess(struct weir_reply *reply, uint64_t weight,
    struct weir_policy *policy)
{
    int64_t  units;

    if (reply->wait && reply->wait != WEIR_NEVER && policy->window) {
        return (uint64_t) ((double) reply->wait * policy->quantity * 1000
                           / policy->window);
    }

    units = reply->fill + (int64_t) weight - (int64_t) policy->quantity;

    return units > 0 ? (uint64_t) units * 1000 : 0;
}


/*
 * As the answers of /v1/take: Retry-After if waiting helps; and, if
 * weir_headers is on, draft-ietf-httpapi-ratelimit-headers-10, in which names
 * are strings of RFC 9651: ASCII, all else is encoded as %XX.
 */
ngx_int_t
ngx_http_weir_add_headers(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx)
{
    time_t                 wait;
    u_char                *p, *last;
    uint64_t               quantity;
    struct weir_reply     *reply;
    struct weir_policy     policy;
    ngx_http_weir_conf_t  *wlcf;
    u_char                 buf[3 * WEIR_NAME_MAX
                               + sizeof("\"\";q=;w=;qu=\"concurrent-requests\"")
                               + 2 * NGX_INT64_LEN];

    if (r != r->main || ctx->asked.nelts == 0) {
        return NGX_OK;
    }

    reply = ngx_http_weir_explain(r, ctx);
    if (reply == NULL) {
        return NGX_ERROR;
    }

    last = buf + sizeof(buf);
    wait = ngx_http_weir_retry_after(ctx);

    if (wait) {
        p = ngx_slprintf(buf, last, "%T", wait);

        if (ngx_http_weir_add_header(r, "Retry-After", buf, p) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    wlcf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);

    if (!wlcf->headers
        || weir_policy(ngx_http_weir_limiter(), reply->quota,
                       reply->quota_len, &policy)
           < 0)
    {
        return NGX_OK;
    }

    quantity = ngx_min(policy.quantity, NGX_HTTP_WEIR_INTEGER_MAX);

    p = ngx_http_weir_quote(buf, reply);
    p = ngx_slprintf(p, last, ";q=%uL", quantity);

    if (policy.window) {
        p = ngx_slprintf(p, last, ";w=%uL",
                         (policy.window + WEIR_SECOND - 1) / WEIR_SECOND);
    }

    if (policy.concurrency) {
        p = ngx_slprintf(p, last, ";qu=\"concurrent-requests\"");
    }

    if (ngx_http_weir_add_header(r, "RateLimit-Policy", buf, p) != NGX_OK) {
        return NGX_ERROR;
    }

    p = ngx_http_weir_quote(buf, reply);
    p = ngx_slprintf(p, last, ";r=%uL", ngx_min(reply->remaining, quantity));

    if (wait) {
        p = ngx_slprintf(p, last, ";t=%T", wait);
    }

    return ngx_http_weir_add_header(r, "RateLimit", buf, p);
}


static ngx_int_t
ngx_http_weir_add_header(ngx_http_request_t *r, const char *key, u_char *value,
    u_char *last)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    h->key.data = (u_char *) key;
    h->key.len = ngx_strlen(key);
    h->value.len = last - value;

    h->value.data = ngx_pnalloc(r->pool, h->value.len);
    if (h->value.data == NULL) {
        h->hash = 0;
        return NGX_ERROR;
    }

    ngx_memcpy(h->value.data, value, h->value.len);

    return NGX_OK;
}


static u_char *
ngx_http_weir_quote(u_char *p, struct weir_reply *reply)
{
    u_char      c;
    ngx_uint_t  i;

    *p++ = '"';

    for (i = 0; i < reply->quota_len; i++) {
        c = (u_char) reply->quota[i];

        if (c >= ' ' && c <= '~' && c != '"' && c != '\\' && c != '%') {
            *p++ = c;
            continue;
        }

        p = ngx_sprintf(p, "%%%02Xd", (ngx_int_t) c);
    }

    *p++ = '"';

    return p;
}


/* In seconds; 0: it passed, or never will. */
static time_t
ngx_http_weir_retry_after(ngx_http_weir_ctx_t *ctx)
{
    struct weir_reply  *reply;

    reply = ctx->reply;

    if (ctx->verdict < ngx_http_weir_limited || reply->unknown || reply->never
        || reply->retry_after == WEIR_NEVER)
    {
        return 0;
    }

    /* at least 1: there may be room again since it refused */

    return (time_t) (ngx_max(reply->retry_after, WEIR_SECOND)
                     + WEIR_SECOND - 1) / WEIR_SECOND;
}


static ngx_int_t
ngx_http_weir_verdict_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_weir_ctx_t  *ctx;

    ctx = ngx_http_weir_get_ctx(r->main);

    if (ctx == NULL || ctx->asked.nelts == 0
        || ngx_http_weir_explain(r->main, ctx) == NULL)
    {
        v->not_found = 1;
        return NGX_OK;
    }

    v->valid = 1;
    v->no_cacheable = 1;
    v->not_found = 0;
    v->len = ngx_http_weir_verdicts[ctx->verdict].len;
    v->data = ngx_http_weir_verdicts[ctx->verdict].data;

    return NGX_OK;
}


/* 'data': the reply's field, see ngx_http_weir_vars. */
static ngx_int_t
ngx_http_weir_reply_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    time_t                wait;
    u_char               *p;
    struct weir_reply    *reply;
    ngx_http_weir_ctx_t  *ctx;

    ctx = ngx_http_weir_get_ctx(r->main);

    reply = NULL;

    if (ctx && ctx->asked.nelts) {
        reply = ngx_http_weir_explain(r->main, ctx);
    }

    if (reply == NULL || reply->unknown) {
        v->not_found = 1;
        return NGX_OK;
    }

    v->valid = 1;
    v->no_cacheable = 1;
    v->not_found = 0;

    if (data == 'q') {
        v->len = reply->quota_len;
        v->data = (u_char *) reply->quota;
        return NGX_OK;
    }

    wait = ngx_http_weir_retry_after(ctx);

    if (data == 't' ? wait == 0 : reply->remaining > NGX_HTTP_WEIR_INTEGER_MAX)
    {
        v->not_found = 1;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    v->data = p;
    v->len = ((data == 't') ? ngx_sprintf(p, "%T", wait)
                            : ngx_sprintf(p, "%uL", reply->remaining)) - p;

    return NGX_OK;
}


ngx_int_t
ngx_http_weir_add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_weir_vars; v->name.len; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}
