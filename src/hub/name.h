/* name.h: what people call a model of a hub: ORG/REPO[:QUANT|FILE], with or without "hf:". */
#ifndef LOCKSTEP_HUB_NAME_H
#define LOCKSTEP_HUB_NAME_H

#include "base/status.h"

#include <stdbool.h>

#define HUB_PREFIX "hf:"
#define HUB_REPO_BYTES 208
#define HUB_FILE_BYTES 512 /* of a file's name within a repository, with its end */

struct hub_name {
    char repo[HUB_REPO_BYTES]; /* "ORG/REPO" */
    char want[HUB_FILE_BYTES]; /* a quantization or a file; "": what one would choose */
};

/* ST_BAD_INPUT: it has another form, or a part that could not be a plain name of a folder. */
enum status hub_name_parse(struct hub_name *out, const char *text, struct err *err);

/* Whether a name of a file, from a stranger, stays below the folder that it is put into: no
 * absolute path, no empty part, no "." or "..", no control characters. */
bool hub_file_name_is_safe(const char *name);

#endif
