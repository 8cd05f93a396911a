/* SPDX-License-Identifier: MIT
 * base/error.c - one sentence for each error code. */

#include "core/base/base.h"

static const char *const sentences[] = {
    [-WEIR_OK] = "success",
    [-WEIR_EINVAL] = "an argument is outside its range: see the function's "
                     "comment in weir/weir.h",
    [-WEIR_ENOMEM] = "out of memory: ask for a smaller table or give the "
                     "process more",
    [-WEIR_ENAME] = "bad name: 1 to 255 bytes of UTF-8 without NUL or "
                    "control characters",
    [-WEIR_EQUOTA] = "the quota's fields contradict each other",
    [-WEIR_EPARENT] = "the parent doesn't exist: create it first",
    [-WEIR_ECYCLE] = "the quota would be its own ancestor: choose another "
                     "parent",
    [-WEIR_EDEPTH] = "the chain would be longer than 16 quotas: flatten the "
                     "tree",
    [-WEIR_EEXIST] = "it exists already: choose another name or change that "
                     "one",
    [-WEIR_ENOENT] = "there is no such thing: check the spelling",
    [-WEIR_ECHILDREN] = "the quota has children: remove them or give them "
                        "another parent first",
    [-WEIR_EFULL] = "no room: raise the bound or use fewer",
    [-WEIR_ETIMEOUT] = "it took longer than the time given: wait longer or "
                       "look at the roots",
    [-WEIR_ESYNTAX] = "it can't be parsed",
    [-WEIR_ETOOBIG] = "over the bound: send or store less at once",
    [-WEIR_EPROTOCOL] = "the peer broke the protocol: is it a Weir of another "
                        "version, or no Weir?",
    [-WEIR_ESTORE] = "the quota store can't be used",
    [-WEIR_ELOCKED] = "the quota store is locked by another process: try "
                      "again when it is done",
    [-WEIR_ESCHEMA] = "the quota store was made by another version of Weir: "
                      "upgrade the older of the two",
    [-WEIR_ESYSTEM] = "a system call failed: errno says more",
    [-WEIR_ECONNECT] = "no root can be reached: is `weir serve` running, and "
                       "is the address right?",
    [-WEIR_ECLOSED] = "the limiter was closed",
    [-WEIR_ENOTREADY] = "the root has not read its quotas yet: try again "
                        "soon, or look at its store",
    [-WEIR_ECREDENTIAL] = "no credential that the root knows: give a client "
                          "certificate or a token",
    [-WEIR_EDENIED] = "the credential's role doesn't allow that: ask for "
                      "another one",
    [-WEIR_ECHANGED] = "it has been changed since: look at it again",
    [-WEIR_ETLS] = "TLS failed: are certificate, key and authority the right "
                   "ones?",
    [-WEIR_ETABLE] = "the shared table can't be used: is it of this user, and "
                     "of this version of Weir?",
};

const char *weir_strerror(int error)
{
    if (error > 0 || error <= -(int)WEIR_COUNT_OF(sentences))
        return "unknown error";
    return sentences[-error];
}
