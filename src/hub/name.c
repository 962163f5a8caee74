/* name.c: Reads the names of a hub's models, and refuses those that could mean another folder. */
#include "hub/name.h"

#include "base/util.h"

#include <limits.h>
#include <stdio.h>

#define PART_MAX 96

/* ORG or REPO: n letters. A hub allows no "--", which stands for the slash in the cache. */
static bool is_part(const char *s, size_t n) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-_.";
    if (n == 0 || n > PART_MAX || *s == '.' || *s == '-' || strspn(s, letters) < n)
        return false;
    for (size_t i = 0; i + 1 < n; i++)
        if ((s[i] == '-' || s[i] == '.') && s[i + 1] == s[i])
            return false;
    return true;
}

bool hub_file_name_is_safe(const char *name) {
    size_t all = strlen(name);
    if (all == 0 || all >= HUB_FILE_BYTES)
        return false;
    for (const char *p = name; *p != '\0'; p++)
        if ((unsigned char)*p < 32 || *p == 127 || *p == '\\')
            return false;
    for (const char *part = name;; part += strcspn(part, "/") + 1) {
        size_t n = strcspn(part, "/");
        if (n == 0 || n > NAME_MAX || (n == 1 && part[0] == '.') ||
            (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        if (part[n] == '\0')
            return true;
    }
}

enum status hub_name_parse(struct hub_name *out, const char *text, struct err *err) {
    struct hub_name made = {"", ""};
    const char *repo = str_starts(text, HUB_PREFIX) ? text + strlen(HUB_PREFIX) : text;
    size_t n = strcspn(repo, ":"), n_org = strcspn(repo, "/");
    if (n_org + 1 >= n || !is_part(repo, n_org) || !is_part(repo + n_org + 1, n - n_org - 1))
        return err_set(err, ST_BAD_INPUT,
                       "%s: the name of a hub's model is ORG/REPO, ORG/REPO:QUANT or "
                       "ORG/REPO:FILE",
                       text);
    snprintf(made.repo, sizeof made.repo, "%.*s", (int)n, repo);
    if (repo[n] == ':') {
        const char *want = repo + n + 1;
        if (!hub_file_name_is_safe(want))
            return err_set(err, ST_BAD_INPUT,
                           "%s: what follows the colon is no name of a quantization or a file",
                           text);
        snprintf(made.want, sizeof made.want, "%s", want);
    }
    *out = made;
    return ST_OK;
}
