/* fetch.h - reads one address of another process's page. */
#pragma once

#include "base/json.h"

/* Gets `path`, such as "/api/v1/state", of the page at `url`, "http://HOST:PORT/?token=TOKEN", and
 * parses it. STRAIT_ECONFIG: the URL is not of this form. STRAIT_ECLOSED: nobody answers there.
 * STRAIT_EAUTH: the token is missing or wrong. STRAIT_EDATA: it is not a page of this program.
 * Waits for at most a few seconds. The caller releases *out. */
strait_err strait_fetch_json(const char *url, const char *path, json_t **out);
