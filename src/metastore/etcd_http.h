/* etcd_http.h - requests to an etcd cluster over its JSON gateway, by libcurl.
 *
 * Any member may answer. If one does not, the next is tried, round after round, until the deadline.
 * One thread at a time uses it. */
#pragma once

#include "base/error.h"
#include "metastore/metastore.h"

#include <curl/curl.h>
#include <jansson.h>

enum {
    STRAIT_ETCD_MEMBERS_MAX = 16
};

struct strait_etcd_http {
    CURL *curl;
    struct curl_slist *headers;
    char *list; // the members' URLs, split in place
    const char *members[STRAIT_ETCD_MEMBERS_MAX];
    int n_members;
    int current; // the member that answered last
    int timeout_ms;
    char curl_error[CURL_ERROR_SIZE]; // libcurl's error text of the latest request
    char reason[CURL_ERROR_SIZE];     // the latest failure other than a timeout
};

/* `members` are URLs separated by commas. STRAIT_ECONFIG when one is invalid. */
strait_err strait_etcd_http_init(struct strait_etcd_http *http, const char *members,
                                 const strait_metastore_config *config);
void strait_etcd_http_fini(struct strait_etcd_http *http); // accepts a failed init

/* Sends `request` and writes the answer, which the caller releases. STRAIT_ETIMEDOUT when no member
 * answers within the timeout; the request may have been executed all the same, and on success more
 * than once. STRAIT_EAGAIN, without a detail, when etcd knows no such lease. */
strait_err strait_etcd_http_ask(struct strait_etcd_http *http, const char *path,
                                const json_t *request, json_t **out);

/* Follows a watch until `is_end` accepts an answer, or wait_ms have passed (STRAIT_ETIMEDOUT).
 * STRAIT_ECLOSED when the member closed the connection. */
strait_err strait_etcd_http_watch(struct strait_etcd_http *http, const json_t *request, int wait_ms,
                                  int (*is_end)(const json_t *answer));
