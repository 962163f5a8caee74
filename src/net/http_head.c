/* http_head.c: Parses a request's head. The head is copied once and split in place: every name
 * and value ends with a NUL within the copy. */
#include "net/http_head.h"

#include "base/hex.h"
#include "base/mem.h"
#include "base/util.h"

#include <ctype.h>
#include <strings.h>

static const struct http_fault fine = {0, NULL};

#define FAULT(status, sentence) ((struct http_fault){(status), (sentence)})

size_t http_head_end(const char *bytes, size_t len, size_t *seen) {
    size_t i = *seen;
    while (i < len) {
        const char *line = memchr(bytes + i, '\n', len - i);
        if (line == NULL)
            break;
        size_t next = (size_t)(line - bytes) + 1;
        if (next < len && bytes[next] == '\n')
            return next + 1;
        if (next + 1 < len && bytes[next] == '\r' && bytes[next + 1] == '\n')
            return next + 2;
        if (next + 1 >= len) /* what follows on it has not come */
            break;
        i = next;
    }
    const char *last = i < len ? memchr(bytes + i, '\n', len - i) : NULL;
    *seen = last != NULL ? (size_t)(last - bytes) : len;
    return 0;
}

struct http_fault http_head_limits(const char *bytes, size_t len) {
    if (len > HTTP_LINE_MAX && memchr(bytes, '\n', HTTP_LINE_MAX) == NULL)
        return FAULT(414, "the request line has more than 8192 bytes");
    if (len > HTTP_HEAD_MAX)
        return FAULT(431, "the request's headers have more than 32768 bytes");
    return fine;
}

/* ---- lines ------------------------------------------------------------------------------- */

/* Cuts the next line off *at, without its CR LF or LF; NULL: no line is left. */
static char *next_line(char **at, char *end) {
    char *line = *at, *stop = memchr(line, '\n', (size_t)(end - line));
    if (line == end)
        return NULL;
    *at = stop != NULL ? stop + 1 : end;
    stop = stop != NULL ? stop : end;
    if (stop > line && stop[-1] == '\r')
        stop--;
    *stop = '\0'; /* text has a byte more than the head */
    return line;
}

static bool is_token_char(char c) {
    return isalnum((unsigned char)c) || (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static size_t token_length(const char *s) {
    size_t n = 0;
    while (is_token_char(s[n]))
        n++;
    return n;
}

static bool has_controls(const char *s) {
    for (; *s != '\0'; s++)
        if (((unsigned char)*s < ' ' && *s != '\t') || *s == 0x7f)
            return true;
    return false;
}

/* ---- the target -------------------------------------------------------------------------- */

/* Decodes %XX, and + as a space if wanted, in place. Other escapes stay. False: a NUL. */
static bool unescape(char *s, bool plus) {
    char *to = s;
    for (; *s != '\0'; s++) {
        int high = *s == '%' ? hex_digit(s[1]) : -1;
        int low = high >= 0 ? hex_digit(s[2]) : -1;
        if (low >= 0) {
            *to = (char)(high * 16 + low);
            if (*to++ == '\0')
                return false;
            s += 2;
        } else {
            *to++ = plus && *s == '+' ? ' ' : *s;
        }
    }
    *to = '\0';
    return true;
}

static struct http_fault parse_query(struct http_head *h, char *query) {
    for (char *one = query, *next; one != NULL; one = next) {
        next = strchr(one, '&');
        if (next != NULL)
            *next++ = '\0';
        if (*one == '\0')
            continue;
        if (h->n_args == HTTP_ARGS_MAX)
            return FAULT(414, "the request's path has more than 64 arguments");
        char *value = strchr(one, '=');
        if (value != NULL)
            *value++ = '\0';
        if (!unescape(one, true) || (value != NULL && !unescape(value, true)))
            return FAULT(400, "the request's path contains an escaped NUL");
        h->args[h->n_args++] = (struct http_field){one, value != NULL ? value : ""};
    }
    return fine;
}

/* Its path; a proxy's form, http://host/path, means the path (RFC 9112, 3.2.2). */
static char *path_in(char *target) {
    size_t scheme = strncasecmp(target, "http://", 7) == 0    ? strlen("http://")
                    : strncasecmp(target, "https://", 8) == 0 ? strlen("https://")
                                                              : 0;
    if (scheme == 0)
        return target;
    char *host = target + scheme, *path = host + strcspn(host, "/?");
    if (*path == '/')
        return path;
    if (*path == '\0')
        return memcpy(target, "/", 2);
    path[-1] = '/'; /* http://host?query; the host is not needed */
    return path - 1;
}

static struct http_fault parse_target(struct http_head *h, char *target) {
    char *path = path_in(target), *query = strchr(path, '?');
    if (query != NULL)
        *query++ = '\0';
    bool whole = unescape(path, false);
    h->path = path;
    if (!whole)
        return FAULT(400, "the request's path contains an escaped NUL");
    return query != NULL ? parse_query(h, query) : fine;
}

/* ---- the request line -------------------------------------------------------------------- */

static struct http_fault parse_version(struct http_head *h, const char *version) {
    if (strlen(version) != 8 || !str_starts(version, "HTTP/") || version[6] != '.' ||
        !isdigit((unsigned char)version[5]) || !isdigit((unsigned char)version[7]))
        return FAULT(400, "the request line is not METHOD TARGET HTTP/1.1");
    if (version[5] != '1')
        return FAULT(505, "only HTTP/1.1 and HTTP/1.0 are supported");
    h->is_1_0 = version[7] == '0';
    return fine;
}

static struct http_fault parse_request_line(struct http_head *h, char *line) {
    static const char wrong[] = "the request line is not METHOD TARGET HTTP/1.1";
    size_t n = token_length(line);
    if (n == 0 || line[n] != ' ')
        return FAULT(400, wrong);
    char *target = line + n + 1, *version = strchr(target, ' ');
    line[n] = '\0';
    h->method = line;
    if (version != NULL)
        *version++ = '\0';
    if (*target == '\0' || has_controls(target))
        return FAULT(400, wrong);
    struct http_fault fault = parse_target(h, target);
    if (fault.status != 0)
        return fault;
    return version != NULL ? parse_version(h, version) : FAULT(400, wrong);
}

/* ---- the fields -------------------------------------------------------------------------- */

static struct http_fault parse_field(struct http_head *h, char *line) {
    size_t n = token_length(line);
    if (n == 0 || line[n] != ':') /* a blank before the colon, a folded line */
        return FAULT(400, "a line of the request's head is not a valid header (NAME: VALUE)");
    if (h->n_fields == HTTP_FIELDS_MAX)
        return FAULT(431, "the request has more than 100 headers");
    char *value = line + n + 1;
    line[n] = '\0';
    value += strspn(value, " \t");
    size_t len = strlen(value);
    while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
        value[--len] = '\0';
    if (has_controls(value))
        return FAULT(400, "a header of the request contains a control character");
    h->fields[h->n_fields++] = (struct http_field){line, value};
    return fine;
}

static struct http_fault check_host(const struct http_head *h) {
    size_t n = http_head_count(h, "Host");
    if (n > 1)
        return FAULT(400, "the request has more than one Host header");
    if (n == 0 && !h->is_1_0)
        return FAULT(400, "the request has no Host header");
    return fine;
}

struct http_fault http_head_parse(struct http_head *h, const char *bytes, size_t len) {
    *h = (struct http_head){.method = "", .path = ""};
    h->text = mem_alloc(len + 1);
    if (h->text == NULL)
        return FAULT(500, "no memory for a request");
    memcpy(h->text, bytes, len);
    h->text[len] = '\0';
    char *at = h->text, *end = at + len, *line = next_line(&at, end);
    bool has_nul = memchr(bytes, '\0', len) != NULL;
    struct http_fault fault = line != NULL ? parse_request_line(h, line)
                                           : FAULT(400, "the request has no request line");
    if (fault.status == 0 && has_nul)
        fault = FAULT(400, "the request's head contains a NUL");
    while (fault.status == 0 && (line = next_line(&at, end)) != NULL && *line != '\0')
        fault = parse_field(h, line);
    return fault.status == 0 ? check_host(h) : fault;
}

void http_head_deinit(struct http_head *h) {
    mem_free(h->text);
    h->text = NULL;
}

/* ---- what it says ------------------------------------------------------------------------ */

const char *http_head_field(const struct http_head *h, const char *name) {
    for (size_t i = 0; i < h->n_fields; i++)
        if (strcasecmp(h->fields[i].name, name) == 0)
            return h->fields[i].value;
    return NULL;
}

size_t http_head_count(const struct http_head *h, const char *name) {
    size_t n = 0;
    for (size_t i = 0; i < h->n_fields; i++)
        n += strcasecmp(h->fields[i].name, name) == 0;
    return n;
}

static bool lists(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *at = list; *at != '\0'; at += strcspn(at, ",")) {
        at += strspn(at, ", \t");
        if (strncasecmp(at, word, n) == 0 && strchr(", \t", at[n]) != NULL)
            return true;
    }
    return false;
}

bool http_head_lists(const struct http_head *h, const char *name, const char *word) {
    for (size_t i = 0; i < h->n_fields; i++)
        if (strcasecmp(h->fields[i].name, name) == 0 && lists(h->fields[i].value, word))
            return true;
    return false;
}
