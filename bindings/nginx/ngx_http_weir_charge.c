/* SPDX-License-Identifier: MIT
 * ngx_http_weir_charge.c - costs that are known when a request has ended.
 *
 * With "charge=" a request takes its weight before the work, as without it. In
 * the log phase the difference to the cost is charged or given back
 * (weir_settle()), also if the client went away. A request that was refused has
 * taken nothing, and costs nothing. */

#include "ngx_http_weir_module.h"


static void ngx_http_weir_settle(ngx_http_request_t *r, struct weir *weir,
    ngx_http_weir_ask_t *ask, weir_instant now);
static ngx_int_t ngx_http_weir_read_cost(ngx_http_request_t *r,
    ngx_http_weir_limit_t *limit, uint64_t *cost);


ngx_int_t
ngx_http_weir_log_handler(ngx_http_request_t *r)
{
    ngx_uint_t            i;
    struct weir          *weir;
    weir_instant          now;
    ngx_http_weir_ask_t  *asked;
    ngx_http_weir_ctx_t  *ctx;

    if (r != r->main) {
        return NGX_OK;
    }

    ctx = ngx_http_weir_get_ctx(r);
    weir = ngx_http_weir_limiter();

    /* the client of a request that still waits doesn't get its units back */

    if (ctx == NULL || weir == NULL || ctx->timer.timer_set) {
        return NGX_OK;
    }

    asked = ctx->asked.elts;
    now = 0;

    /* in a dry run further ones were asked after the first, which refused */

    i = ctx->verdict >= ngx_http_weir_limited ? 1 : 0;

    for ( /* void */ ; i < ctx->asked.nelts; i++) {

        if (asked[i].limit->charge == NULL) {
            continue;
        }

        if (now == 0) {
            now = ngx_http_weir_now();
        }

        ngx_http_weir_settle(r, weir, &asked[i], now);
    }

    return NGX_OK;
}


static void
ngx_http_weir_settle(ngx_http_request_t *r, struct weir *weir,
    ngx_http_weir_ask_t *ask, weir_instant now)
{
    uint64_t  charged, cost;

    if (ngx_http_weir_read_cost(r, ask->limit, &cost) != NGX_OK) {
        return;
    }

    charged = ask->peek ? 0 : ask->weight;

    if (ask->limit->quota.weir) {
        weir_settle(ask->limit->quota, &charged, cost, now);
        return;
    }

    (void) weir_settle_by_name(weir, (char *) ask->name.data, ask->name.len,
                               &charged, cost, now);
}


/* NGX_DECLINED: there is none, and the units taken stay charged. */
static ngx_int_t
ngx_http_weir_read_cost(ngx_http_request_t *r, ngx_http_weir_limit_t *limit,
    uint64_t *cost)
{
    off_t      n;
    ngx_str_t  value;

    if (ngx_http_complex_value(r, limit->charge, &value) != NGX_OK) {
        return NGX_ERROR;
    }

    if (value.len == 0) {
        return NGX_DECLINED;
    }

    n = ngx_atoof(value.data, value.len);

    if (n == NGX_ERROR) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "the value of the \"%V\" charge is no number: \"%V\", "
                      "the request's weight stays charged",
                      &limit->charge->value, &value);
        return NGX_DECLINED;
    }

    *cost = (uint64_t) n;

    return NGX_OK;
}
