/* SPDX-License-Identifier: MIT
 * ngx_http_weir_handler.c - the quotas of a request are checked.
 *
 * The quotas of its location are checked in order. All or none are charged: if
 * one refuses, the charges of those before it are given back. Two rounds, first
 * with peeks, would cost each request that passes; so only refused ones pay.
 *
 * A decision costs a third if only the verdict is wanted. So the details for
 * variables, headers and the log are computed on demand, by a peek at the
 * quotas checked before (ngx_http_weir_explain()).
 *
 * Finding a name costs as much again as the decision. So a name without
 * variables is found once, by its first request, and its place is kept for as
 * long as the worker lives.
 *
 * An error page and other internal redirects aren't checked again: the context,
 * which outlives them, knows it (ngx_http_weir_get_ctx()). A refused request
 * isn't checked "after_access" on its way to the error page.
 *
 * Quotas are checked in the preaccess phase, as limit_req's zones are; those
 * that need the client's identity are checked "after_access", in the phase
 * after that. Subrequests aren't checked there, nor in the access phase: that
 * of auth_request inherits the request's quotas, and comes before them. */

#include "ngx_http_weir_module.h"


#define NGX_HTTP_WEIR_INTEGER_MAX    999999999999999    /* RFC 9651 */


typedef struct {
    ngx_http_weir_limit_t        *limit;
    ngx_str_t                     name;
    uint64_t                      weight;
    ngx_uint_t                    peek;    /* unsigned  peek:1 */
} ngx_http_weir_ask_t;


typedef enum {
    ngx_http_weir_unknown = 0,
    ngx_http_weir_pass,
    ngx_http_weir_limited,
    ngx_http_weir_limited_dry_run
} ngx_http_weir_verdict_e;


typedef struct {
    ngx_uint_t                    phases;  /* already checked */
    ngx_http_weir_verdict_e       verdict;
    ngx_array_t                   asked;   /* the last one may have refused */
    struct weir_reply            *reply;   /* NULL: details not wanted yet */
} ngx_http_weir_ctx_t;


static ngx_int_t ngx_http_weir_handler(ngx_http_request_t *r,
    ngx_uint_t phase);
static ngx_int_t ngx_http_weir_ask(ngx_http_request_t *r,
    ngx_http_weir_ctx_t *ctx, struct weir *weir, ngx_uint_t phase);
static ngx_int_t ngx_http_weir_read(ngx_http_request_t *r,
    ngx_http_weir_limit_t *limit, ngx_http_weir_ask_t *ask);
static uint64_t ngx_http_weir_read_weight(ngx_http_request_t *r,
    ngx_http_weir_limit_t *limit, ngx_str_t *value);
static enum weir_verdict ngx_http_weir_decide(struct weir *weir,
    ngx_http_weir_ask_t *ask, weir_instant now);
static ngx_uint_t ngx_http_weir_find(struct weir *weir,
    ngx_http_weir_limit_t *limit);
static void ngx_http_weir_refund(struct weir *weir, ngx_http_weir_ctx_t *ctx,
    weir_instant now);
static ngx_int_t ngx_http_weir_refuse(ngx_http_request_t *r,
    ngx_http_weir_ctx_t *ctx, ngx_http_weir_limit_t *limit);
static struct weir_reply *ngx_http_weir_explain(ngx_http_request_t *r,
    ngx_http_weir_ctx_t *ctx);
static weir_instant ngx_http_weir_now(void);

static ngx_http_weir_ctx_t *ngx_http_weir_get_ctx(ngx_http_request_t *r);
static ngx_http_weir_ctx_t *ngx_http_weir_create_ctx(ngx_http_request_t *r,
    ngx_uint_t n);
static void ngx_http_weir_cleanup(void *data);

static ngx_int_t ngx_http_weir_add_headers(ngx_http_request_t *r,
    ngx_http_weir_ctx_t *ctx);
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
    ngx_string("limited"),
    ngx_string("limited_dry_run")
};


ngx_int_t
ngx_http_weir_preaccess_handler(ngx_http_request_t *r)
{
    return ngx_http_weir_handler(r, NGX_HTTP_WEIR_PREACCESS);
}


ngx_int_t
ngx_http_weir_precontent_handler(ngx_http_request_t *r)
{
    if (r != r->main) {
        return NGX_DECLINED;
    }

    return ngx_http_weir_handler(r, NGX_HTTP_WEIR_AFTER_ACCESS);
}


static ngx_int_t
ngx_http_weir_handler(ngx_http_request_t *r, ngx_uint_t phase)
{
    ngx_int_t              rc;
    struct weir           *weir;
    ngx_http_weir_ctx_t   *ctx;
    ngx_http_weir_conf_t  *wlcf;

    wlcf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);

    if (!(wlcf->phases & phase)) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_weir_get_ctx(r->main);

    if (ctx && (ctx->phases & phase)) {
        return NGX_DECLINED;
    }

    weir = ngx_http_weir_limiter();

    if (weir == NULL) {
        return NGX_DECLINED;
    }

    if (ctx == NULL) {
        ctx = ngx_http_weir_create_ctx(r->main, wlcf->limits.nelts);
        if (ctx == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    ctx->phases |= phase;

    rc = ngx_http_weir_ask(r, ctx, weir, phase);

    /* headers are added once, after all checks */

    if (rc == NGX_DECLINED && wlcf->headers
        && !(wlcf->phases & ~ctx->phases)
        && ctx->verdict == ngx_http_weir_pass
        && ngx_http_weir_add_headers(r, ctx) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return rc;
}


/* NGX_DECLINED: it passes. */
static ngx_int_t
ngx_http_weir_ask(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx,
    struct weir *weir, ngx_uint_t phase)
{
    ngx_int_t               rc;
    ngx_uint_t              i;
    weir_instant            now;
    ngx_http_weir_ask_t    *ask;
    ngx_http_weir_conf_t   *wlcf;
    ngx_http_weir_limit_t  *limits;

    wlcf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);

    limits = wlcf->limits.elts;
    now = ngx_http_weir_now();

    /* details of the phase before are incomplete now */

    if (ctx->verdict <= ngx_http_weir_pass) {
        ctx->verdict = ngx_http_weir_pass;
        ctx->reply = NULL;
    }

    for (i = 0; i < wlcf->limits.nelts; i++) {

        if (limits[i].phase != phase) {
            continue;
        }

        ask = ngx_array_push(&ctx->asked);
        if (ask == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        rc = ngx_http_weir_read(r, &limits[i], ask);

        if (rc != NGX_OK) {
            ctx->asked.nelts--;

            if (rc == NGX_DECLINED) {
                continue;
            }

            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        if (ngx_http_weir_decide(weir, ask, now) == WEIR_LIMITED) {
            ngx_http_weir_refund(weir, ctx, now);
            return ngx_http_weir_refuse(r, ctx, &limits[i]);
        }
    }

    return NGX_DECLINED;
}


/* The quotas to check; NGX_DECLINED: none. */
static ngx_int_t
ngx_http_weir_read(ngx_http_request_t *r, ngx_http_weir_limit_t *limit,
    ngx_http_weir_ask_t *ask)
{
    ngx_str_t  weight;

    if (limit->name.lengths == NULL) {
        ask->name = limit->name.value;

    } else if (ngx_http_complex_value(r, &limit->name, &ask->name) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ask->name.len == 0) {
        return NGX_DECLINED;
    }

    ask->limit = limit;
    ask->weight = 1;
    ask->peek = limit->peek;

    if (limit->weight == NULL) {
        return NGX_OK;
    }

    if (ngx_http_complex_value(r, limit->weight, &weight) != NGX_OK) {
        return NGX_ERROR;
    }

    ask->weight = ngx_http_weir_read_weight(r, limit, &weight);

    return NGX_OK;
}


/* An invalid number weighs 1: a client must not evade a limit by it. */
static uint64_t
ngx_http_weir_read_weight(ngx_http_request_t *r, ngx_http_weir_limit_t *limit,
    ngx_str_t *value)
{
    off_t  weight;

    if (value->len == 0) {
        return 1;
    }

    weight = ngx_atoof(value->data, value->len);

    if (weight == NGX_ERROR) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "the value of the \"%V\" weight is no number: \"%V\"",
                      &limit->weight->value, value);
        return 1;
    }

    return ngx_min((uint64_t) weight, WEIR_WEIGHT_MAX);
}


/*
 * A name that can't be a quota's is refused: clients make names, and one that
 * is too long must not be the way around a limit.
 */
static enum weir_verdict
ngx_http_weir_decide(struct weir *weir, ngx_http_weir_ask_t *ask,
    weir_instant now)
{
    char  *name;

    if (ngx_http_weir_find(weir, ask->limit)) {
        return (ask->peek ? weir_peek : weir_take)
                   (ask->limit->quota, ask->weight, NULL, now);
    }

    name = (char *) ask->name.data;

    if (!weir_name_is_valid(name, ask->name.len)) {
        return WEIR_LIMITED;
    }

    return (ask->peek ? weir_peek_by_name : weir_take_by_name)
               (weir, name, ask->name.len, ask->weight, NULL, now);
}


/*
 * Whether its quota has a place that is kept: not if its name has variables. If
 * the table is full, the next request tries again.
 */
static ngx_uint_t
ngx_http_weir_find(struct weir *weir, ngx_http_weir_limit_t *limit)
{
    int                  error;
    struct weir_handle   quota;

    if (limit->quota.weir) {
        return 1;
    }

    if (limit->name.lengths) {
        return 0;
    }

    error = weir_handle_open(weir, (char *) limit->name.value.data,
                             limit->name.value.len, &quota);

    if (error == WEIR_OK) {
        limit->quota = quota;
        return 1;
    }

    if (error == WEIR_EFULL) {
        weir_handle_close(quota);
    }

    return 0;
}


/* Refunds all but the last, which refused, and keeps only that one. */
static void
ngx_http_weir_refund(struct weir *weir, ngx_http_weir_ctx_t *ctx,
    weir_instant now)
{
    ngx_uint_t            i;
    struct weir_handle    quota;
    ngx_http_weir_ask_t  *asked;

    asked = ctx->asked.elts;

    for (i = 0; i + 1 < ctx->asked.nelts; i++) {

        if (asked[i].peek) {
            continue;
        }

        if (asked[i].limit->quota.weir) {
            weir_refund(asked[i].limit->quota, asked[i].weight, now);
            continue;
        }

        if (weir_handle_open(weir, (char *) asked[i].name.data,
                             asked[i].name.len, &quota)
            == WEIR_ENAME)
        {
            continue;
        }

        weir_refund(quota, asked[i].weight, now);
        weir_handle_close(quota);
    }

    asked[0] = asked[i];
    asked[0].peek = 1;
    ctx->asked.nelts = 1;
    ctx->reply = NULL;
}


static ngx_int_t
ngx_http_weir_refuse(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx,
    ngx_http_weir_limit_t *limit)
{
    struct weir_reply     *reply;
    ngx_http_weir_conf_t  *wlcf;

    wlcf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);

    ctx->verdict = wlcf->dry_run ? ngx_http_weir_limited_dry_run
                                 : ngx_http_weir_limited;

    reply = ngx_http_weir_explain(r, ctx);
    if (reply == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (reply->unknown) {
        ngx_log_error(wlcf->log_level, r->connection->log, 0,
                      "limiting requests%s, the value of \"%V\" can't be "
                      "the name of a quota",
                      wlcf->dry_run ? ", dry run" : "", &limit->name.value);

    } else {
        ngx_log_error(wlcf->log_level, r->connection->log, 0,
                      "limiting requests%s, fill: %L of quota \"%s\"%s",
                      wlcf->dry_run ? ", dry run" : "",
                      (int64_t) reply->fill, reply->quota,
                      reply->stale ? ", stale" : "");
    }

    if (wlcf->dry_run) {
        return NGX_DECLINED;
    }

    ctx->phases = NGX_HTTP_WEIR_PREACCESS|NGX_HTTP_WEIR_AFTER_ACCESS;

    if (ngx_http_weir_add_headers(r, ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return limit->status;
}


/*
 * The reply of the quota that refused, or else of the checked one that is
 * nearest to its limit; NULL: no memory, or no limiter.
 */
static struct weir_reply *
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


/* nginx's own clock has steps of some ms. One reading serves all quotas. */
static weir_instant
ngx_http_weir_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (weir_instant) ts.tv_sec * WEIR_SECOND + ts.tv_nsec;
}


/* An internal redirect forgets contexts, but not the pool's cleanups. */
static ngx_http_weir_ctx_t *
ngx_http_weir_get_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t   *cln;
    ngx_http_weir_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_weir_module);

    if (ctx || (!r->internal && !r->filter_finalize)) {
        return ctx;
    }

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_weir_cleanup) {
            ngx_http_set_ctx(r, cln->data, ngx_http_weir_module);
            return cln->data;
        }
    }

    return NULL;
}


/* 'n': so many will be checked, or somewhat more. */
static ngx_http_weir_ctx_t *
ngx_http_weir_create_ctx(ngx_http_request_t *r, ngx_uint_t n)
{
    ngx_pool_cleanup_t   *cln;
    ngx_http_weir_ctx_t  *ctx;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_weir_ctx_t));
    if (cln == NULL) {
        return NULL;
    }

    cln->handler = ngx_http_weir_cleanup;

    ctx = cln->data;
    ctx->phases = 0;
    ctx->verdict = ngx_http_weir_pass;
    ctx->reply = NULL;

    if (ngx_array_init(&ctx->asked, r->pool, n, sizeof(ngx_http_weir_ask_t))
        != NGX_OK)
    {
        return NULL;
    }

    ngx_http_set_ctx(r, ctx, ngx_http_weir_module);

    return ctx;
}


/* Does nothing: it marks the context. */
static void
ngx_http_weir_cleanup(void *data)
{
}


/*
 * As the answers of /v1/take: Retry-After if waiting helps; and, if
 * weir_headers is on, draft-ietf-httpapi-ratelimit-headers-10, in which names
 * are strings of RFC 9651: ASCII, all else is encoded as %XX.
 */
static ngx_int_t
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

    if (ctx->verdict == ngx_http_weir_pass || reply->unknown || reply->never
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
