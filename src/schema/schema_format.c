/* schema_format.c: formats as regular expressions, from the RFCs that JSON Schema names. */
#include "schema/schema_format.h"

#include "base/util.h"

#include <stddef.h>

/* RFC 3339. Days by month; the 29th of February in leap years: those that 4 divides, of full
 * centuries those that 400 divides. No year 0, which few libraries read. */
#define YEAR "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
#define LEAP_YEAR "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define DATE                                               \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])" \
    "|(0[469]|11)-(0[1-9]|[12][0-9]|30)"                   \
    "|02-(0[1-9]|1[0-9]|2[0-8]))|" LEAP_YEAR "-02-29)"
#define HOUR_MINUTE "([01][0-9]|2[0-3]):[0-5][0-9]"
#define TIME HOUR_MINUTE ":[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]" HOUR_MINUTE ")"

/* RFC 3339, appendix A. */
#define D "[0-9]{1,9}"
#define DURATION_TIME "T(" D "H(" D "M(" D "S)?)?|" D "M(" D "S)?|" D "S)"
#define DURATION_DATE "(" D "Y(" D "M(" D "D)?)?|" D "M(" D "D)?|" D "D)"
#define DURATION "P(" D "W|" DURATION_DATE "(" DURATION_TIME ")?|" DURATION_TIME ")"

/* RFC 1123: labels of 63 characters, 253 in all. Few long labels, or more short ones. */
#define LABEL(n) "([a-zA-Z0-9]-?){0," n "}[a-zA-Z0-9]"
#define HOST \
    "((" LABEL("29") "\\.){0,3}" LABEL("29") "|(" LABEL("11") "\\.){0,9}" LABEL("11") ")"

/* RFC 5321: the local part has no quotes; the domain two labels at least, letters last. */
#define ATOM "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,32}"
#define EMAIL ATOM "(\\." ATOM "){0,2}@(" LABEL("29") "\\.){1,3}[a-zA-Z]{2,24}"

#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 "(" OCTET "\\.){3}" OCTET

/* RFC 4291. */
#define H "[0-9a-fA-F]{1,4}"
#define IPV6                                                                                \
    "((" H ":){7}" H "|(" H ":){6}" IPV4 "|::(" H ":){0,5}" IPV4 "|::((" H ":){0,6}" H ")?" \
    "|" H "::(" H ":){0,4}" IPV4 "|" H "::((" H ":){0,5}" H ")?"                            \
    "|(" H ":){2}(:|(:" H "){1,5}|:(" H ":){0,3}" IPV4 ")"                                  \
    "|(" H ":){3}(:|(:" H "){1,4}|:(" H ":){0,2}" IPV4 ")"                                  \
    "|(" H ":){4}(:|(:" H "){1,3}|:(" H ":){0,1}" IPV4 ")"                                  \
    "|(" H ":){5}(:|(:" H "){1,2}|:" IPV4 ")|(" H ":){6}(:|:" H ")|(" H ":){7}:)"

/* RFC 3986. */
#define PERCENT "%[0-9a-fA-F]{2}"
#define PCHAR "([a-zA-Z0-9._~!$&'()*+,;=:@-]|" PERCENT ")"
#define AUTHORITY                                                \
    "(([a-zA-Z0-9._~!$&'()*+,;=:-]|" PERCENT ")*@)?"             \
    "(\\[" IPV6 "\\]|([a-zA-Z0-9._~!$&'()*+,;=-]|" PERCENT ")*)" \
    "(:[0-9]*)?"
#define URI                                                                       \
    "[a-zA-Z][a-zA-Z0-9+.-]*:(//" AUTHORITY "(/" PCHAR "*)*|/?" PCHAR "+(/" PCHAR \
    "*)*|/?)(\\?(" PCHAR "|[/?])*)?(#(" PCHAR "|[/?])*)?"

const char *schema_format(const char *format) {
    static const struct {
        const char *format, *pattern;
    } formats[] = {
        {"date", "^" DATE "$"},
        {"time", "^" TIME "$"},
        {"date-time", "^" DATE "T" TIME "$"},
        {"duration", "^" DURATION "$"},
        {"uuid", "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"},
        {"hostname", "^" HOST "$"},
        {"email", "^" EMAIL "$"},
        {"ipv4", "^" IPV4 "$"},
        {"ipv6", "^" IPV6 "$"},
        {"uri", "^" URI "$"},
    };
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (str_eq(formats[i].format, format))
            return formats[i].pattern;
    return NULL;
}
