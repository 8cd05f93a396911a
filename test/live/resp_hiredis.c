/* SPDX-License-Identifier: MIT
 * test/live/resp_hiredis.c - hiredis, used as usual, with the agent's RESP
 * listener: resp_hiredis PORT. Prints "ok". */

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what)
{
    fprintf(stderr, "resp_hiredis: %s\n", what);
    exit(1);
}

static void check_throttle(const redisReply *reply, long long limited)
{
    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 5)
        fail("CL.THROTTLE: no five numbers");
    for (size_t i = 0; i < 5; i++)
        if (reply->element[i]->type != REDIS_REPLY_INTEGER)
            fail("CL.THROTTLE: no number");
    if (reply->element[0]->integer != limited)
        fail("CL.THROTTLE: the wrong verdict");
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    redisContext *link = redisConnect("127.0.0.1", atoi(argv[1]));
    if (!link || link->err)
        fail("no connection");
    redisReply *reply = redisCommand(link, "PING");
    if (!reply || strcmp(reply->str, "PONG") != 0)
        fail("PING");
    freeReplyObject(reply);
    for (int i = 0; i < 12; i++)
        redisAppendCommand(link, "CL.THROTTLE %b 9 1 3600", "a key\0b",
                           (size_t)7);
    for (int i = 0; i < 12; i++) {
        if (redisGetReply(link, (void **)&reply) != REDIS_OK)
            fail(link->errstr);
        check_throttle(reply, i >= 10);
        freeReplyObject(reply);
    }
    reply = redisCommand(link, "GET x");
    if (!reply || reply->type != REDIS_REPLY_ERROR)
        fail("GET was answered");
    freeReplyObject(reply);
    redisFree(link);
    puts("ok");
    return 0;
}
