/* typed_calls.h: grammars of a call's arguments: as one JSON object by its schema, or one by one
 * with their types, between tags (Kimi K3). */
#ifndef LOCKSTEP_SERVER_TYPED_CALLS_H
#define LOCKSTEP_SERVER_TYPED_CALLS_H

#include "base/buf.h"
#include "schema/json_schema.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* The schemas that a grammar of calls needs, each with a rule. All zero before. */
struct call_rules {
    struct json_schema_rule *rules; /* [n] */
    size_t n, cap;
    json_t *kept; /* schemas that are in no request */
    bool failed;  /* no memory */
};

/* The name of a new rule; "" if there is no memory. name: NULL for one of its own. Both schemas are
 * borrowed until the grammar is written; root: as in json_schema_rule. */
const char *call_rules_add(struct call_rules *r, const char *name, const json_t *schema,
                           const json_t *root);
/* Forgets the rules from n on. */
void call_rules_cut(struct call_rules *r, size_t n);
void call_rules_deinit(struct call_rules *r);

/* A tag of Kimi K3, in GBNF; a text with quotes in it is written with \\\". */
#define K3_OPEN(tag) "<|open|> \"" tag "\" <|sep|>"
#define K3_CLOSE(tag) "<|close|> \"" tag "\" <|sep|>"
/* The rules that typed arguments need beside those of their schemas. */
#define K3_RULES                                                                           \
    "verbatim ::= ([^<] | (\"<\"+ \"|\")* \"<\"+ ([^<|] | \"|\" [^<c]))* (\"<\"+ \"|\")* " \
    "\"<\"*\n"                                                                             \
    "call-number ::= [1-9] [0-9]{0,2}\n"

/* A text as it stands in an attribute. */
void typed_attribute(struct buf *t, const char *text, size_t len);
/* Adds the expression of arguments by this schema: one by one if the schema says no more of them
 * than their names and types, else as an object in a block. anything: any arguments may come, or
 * none. */
void typed_arguments(struct buf *t, struct call_rules *r, const json_t *schema, bool anything);

#endif
