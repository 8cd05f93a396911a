/* SPDX-License-Identifier: MIT
 * agent/agent_events.c - the events of an agent's limiter, for its log. */

#include "agent/agent_events.h"

#include "weir/weir.h"

static enum weir_log_level level_of_event(enum weir_event_type type)
{
    switch (type) {
    case WEIR_EVENT_ROOT_UP:
    case WEIR_EVENT_READY:
    case WEIR_EVENT_FRESH:
    case WEIR_EVENT_EXACT_BACK:
    case WEIR_EVENT_FORKED:
    case WEIR_EVENT_REPORTER:
        return WEIR_LOG_INFO;
    case WEIR_EVENT_ROOT_DOWN:
    case WEIR_EVENT_STALE:
    case WEIR_EVENT_TABLE_FULL:
    case WEIR_EVENT_STORE_CHANGED:
    case WEIR_EVENT_REPORT_BACKOFF:
    case WEIR_EVENT_LOST:
    case WEIR_EVENT_QUOTA_UNKNOWN:
    case WEIR_EVENT_EXACT_AWAY:
    case WEIR_EVENT_ZONE:
    case WEIR_EVENT_ADAPTIVE_FULL:
    case WEIR_EVENT_ELSEWHERE:
        return WEIR_LOG_WARNING;
    case WEIR_EVENT_CREDENTIAL:
    case WEIR_EVENT_TABLE:
    case WEIR_EVENT_DENIED:
        return WEIR_LOG_ERROR;
    }
    return WEIR_LOG_WARNING;
}

static const char *title_of_event(enum weir_event_type type)
{
    switch (type) {
    case WEIR_EVENT_ROOT_UP:
        return "a root is there";
    case WEIR_EVENT_ROOT_DOWN:
        return "a root can't be reached";
    case WEIR_EVENT_READY:
        return "ready: the quotas of a root are complete here";
    case WEIR_EVENT_STALE:
        return "no root answered for stale_after: on_stale decides";
    case WEIR_EVENT_FRESH:
        return "a root answers again";
    case WEIR_EVENT_TABLE_FULL:
        return "the table is full of names: raise --quotas-max";
    case WEIR_EVENT_STORE_CHANGED:
        return "a root has another quota store";
    case WEIR_EVENT_REPORT_BACKOFF:
        return "an overloaded root asks for fewer reports";
    case WEIR_EVENT_FORKED:
        return "a child of fork() is a limiter now";
    case WEIR_EVENT_LOST:
        return "events were lost";
    case WEIR_EVENT_CREDENTIAL:
        return "the credential shown to roots can't be used";
    case WEIR_EVENT_QUOTA_UNKNOWN:
        return "a quota is of a later version and passes all";
    case WEIR_EVENT_EXACT_AWAY:
        return "a store of exact quotas doesn't answer";
    case WEIR_EVENT_EXACT_BACK:
        return "a store of exact quotas answers again";
    case WEIR_EVENT_ZONE:
        return "a time zone isn't known here, its windows go by UTC";
    case WEIR_EVENT_ADAPTIVE_FULL:
        return "adaptive quotas beyond adaptive_max pass all";
    case WEIR_EVENT_ELSEWHERE:
        return "leases are handed out by a root that isn't connected";
    case WEIR_EVENT_TABLE:
        return "the shared table can't be used";
    case WEIR_EVENT_REPORTER:
        return "this process runs the shared table's limiter";
    case WEIR_EVENT_DENIED:
        return "the credential may not take from a quota, which is counted "
               "here alone";
    }
    return "news";
}

void weir_agent_log_events(struct weir *weir, struct weir_log *log)
{
    struct weir_event event;
    while (weir_event_next(weir, &event))
        weir_log_limited(log, WEIR_LOG_EVENT + event.type,
                         level_of_event(event.type), "%s%s%s",
                         title_of_event(event.type), event.text[0] ? ": " : "",
                         event.text);
}
