/* SPDX-License-Identifier: MIT
 * ngx_http_weir_module.h - declarations shared by the files of the module. */

#ifndef _NGX_HTTP_WEIR_MODULE_H_INCLUDED_
#define _NGX_HTTP_WEIR_MODULE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <weir/weir.h>


#define NGX_HTTP_WEIR_LIMITS_MAX     16     /* in a location */

/* the shortest and longest delay of a request: timers are in ms, and epoll's
   are an int */
#define NGX_HTTP_WEIR_WAIT_MIN       WEIR_MILLISECOND
#define NGX_HTTP_WEIR_WAIT_MAX       (24 * 3600 * WEIR_SECOND)

#define NGX_HTTP_WEIR_PREACCESS      0x01
#define NGX_HTTP_WEIR_AFTER_ACCESS   0x02


/* of memory_max, at least what a name takes in a shared table */
#define NGX_HTTP_WEIR_NAME_BYTES  1152


typedef struct {
    /* the same for all users of the memory */
    ngx_str_t                     roots;
    void                         *memory;
    size_t                        size;
    uint32_t                      names_max;
} ngx_http_weir_zone_t;


typedef struct {
    struct weir_options           options;
    ngx_shm_zone_t               *shm_zone;
    ngx_uint_t                    used;    /* unsigned  used:1 */

    /* of the worker */
    struct weir                  *weir;
    ngx_event_t                   retry;
    char                          why[sizeof(((struct weir_event *) 0)->text)];
} ngx_http_weir_main_conf_t;


typedef struct {
    ngx_http_complex_value_t      name;
    ngx_http_complex_value_t     *weight;
    ngx_http_complex_value_t     *charge;
    ngx_uint_t                    status;
    ngx_uint_t                    phase;
    ngx_uint_t                    peek;    /* unsigned  peek:1 */
    ngx_int_t                     burst;   /* units; 0: refused, not delayed */
    ngx_int_t                     delay;   /* units that aren't delayed */

    /* of the worker: the place of a name without variables, once found */
    struct weir_handle            quota;
} ngx_http_weir_limit_t;


typedef struct {
    ngx_array_t                   limits;
    ngx_uint_t                    phases;
    ngx_uint_t                    log_level;
    ngx_flag_t                    dry_run;
    ngx_flag_t                    headers;
} ngx_http_weir_conf_t;


typedef struct {
    ngx_http_weir_limit_t        *limit;
    ngx_str_t                     name;
    uint64_t                      weight;
    ngx_uint_t                    peek;    /* unsigned  peek:1 */
} ngx_http_weir_ask_t;


typedef enum {
    ngx_http_weir_unknown = 0,
    ngx_http_weir_pass,
    ngx_http_weir_delayed,
    ngx_http_weir_delayed_dry_run,
    ngx_http_weir_limited,
    ngx_http_weir_limited_dry_run
} ngx_http_weir_verdict_e;


typedef struct {
    ngx_uint_t                    phases;  /* already checked */
    ngx_http_weir_verdict_e       verdict;
    ngx_array_t                   asked;   /* the last one may have refused */
    struct weir_reply            *reply;   /* NULL: details not wanted yet */

    ngx_array_t                   permits; /* struct weir_permit, till the end
                                              of the request; NULL: none yet */
    weir_duration                 wait;    /* the longest of the reservations */
    struct weir_reply            *delaying;    /* and its reply; NULL: none */
    ngx_event_t                   timer;
} ngx_http_weir_ctx_t;


/* ngx_http_weir_handler.c: requests */
ngx_int_t ngx_http_weir_preaccess_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_weir_precontent_handler(ngx_http_request_t *r);
/* Whether its quota has a place that is kept, limit->quota. */
ngx_uint_t ngx_http_weir_find(struct weir *weir, ngx_http_weir_limit_t *limit);
/* NGX_DECLINED: there is none, or no number, which is logged. */
ngx_int_t ngx_http_weir_read_units(ngx_http_request_t *r,
    ngx_http_complex_value_t *value, char *what, uint64_t *units);
/* NULL: no quota was checked. */
ngx_http_weir_ctx_t *ngx_http_weir_get_ctx(ngx_http_request_t *r);
weir_instant ngx_http_weir_now(void);

/* ngx_http_weir_delay.c: requests that wait for their turn */
/* NGX_OK, and ctx->wait; NGX_BUSY: refused, with the reason or NULL. */
ngx_int_t ngx_http_weir_reserve(ngx_http_request_t *r,
    ngx_http_weir_ctx_t *ctx, ngx_http_weir_ask_t *ask,
    struct weir_reply **why, weir_instant now);
ngx_int_t ngx_http_weir_delay(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx);

/* ngx_http_weir_charge.c: costs that are known afterwards */
ngx_int_t ngx_http_weir_log_handler(ngx_http_request_t *r);
/* What was asked turned out to weigh 'actual': the difference is charged, or
 * given back. A peek has charged nothing. */
void ngx_http_weir_settle(struct weir *weir, ngx_http_weir_ask_t *ask,
    uint64_t actual, weir_instant now);

/* ngx_http_weir_reply.c: what they are told of it */
struct weir_reply *ngx_http_weir_explain(ngx_http_request_t *r,
    ngx_http_weir_ctx_t *ctx);
void ngx_http_weir_log_refusal(ngx_http_request_t *r,
    ngx_http_weir_ctx_t *ctx, ngx_http_weir_limit_t *limit);
void ngx_http_weir_log_delay(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx);
ngx_int_t ngx_http_weir_add_headers(ngx_http_request_t *r,
    ngx_http_weir_ctx_t *ctx);
ngx_int_t ngx_http_weir_add_variables(ngx_conf_t *cf);

/* ngx_http_weir_worker.c: the limiter of a worker process */
ngx_int_t ngx_http_weir_init_process(ngx_cycle_t *cycle);
void ngx_http_weir_exit_process(ngx_cycle_t *cycle);
void ngx_http_weir_hear(void *context, const struct weir_event *event);
/* The worker's; NULL: it isn't open. Also for Lua. */
struct weir *ngx_http_weir_limiter(void);


extern ngx_module_t  ngx_http_weir_module;


#endif /* _NGX_HTTP_WEIR_MODULE_H_INCLUDED_ */
