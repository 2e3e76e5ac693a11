/* etcd_http.h - questions to an etcd cluster over its JSON gateway, by libcurl.
 *
 * Any member may answer. One that does not is left for the next, round after round, until the
 * deadline. One thread at a time. */
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
    char *list; // the members, cut into texts
    const char *members[STRAIT_ETCD_MEMBERS_MAX];
    int n_members;
    int current; // who answered last
    int timeout_ms;
    char said[CURL_ERROR_SIZE]; // by libcurl, of the latest question
    char why[CURL_ERROR_SIZE];  // the latest failure that tells more than that time was over
};

/* `members` are URLs with commas between them. STRAIT_ECONFIG when they make no sense. */
strait_err strait_etcd_http_init(struct strait_etcd_http *http, const char *members,
                                 const strait_metastore_config *config);
void strait_etcd_http_fini(struct strait_etcd_http *http); // accepts a failed init

/* The answer to `request`, which the caller releases. STRAIT_ETIMEDOUT when no member answers
 * within the timeout. What is asked for may then have been done all the same, and on success more
 * than once. STRAIT_EAGAIN, without words, when etcd knows no such lease. */
strait_err strait_etcd_http_ask(struct strait_etcd_http *http, const char *path,
                                const json_t *request, json_t **out);

/* Follows a watch until `is_end` says so of an answer, or wait_ms have passed (STRAIT_ETIMEDOUT).
 * STRAIT_ECLOSED when the member went away meanwhile. */
strait_err strait_etcd_http_watch(struct strait_etcd_http *http, const json_t *request, int wait_ms,
                                  int (*is_end)(const json_t *answer));
