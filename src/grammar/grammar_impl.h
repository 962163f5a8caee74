/* grammar_impl.h: shared by the parts of the grammar engine. grammar_parse.c turns GBNF into a
 * tree, grammar_compile.c the tree into an automaton, and grammar.c runs it. */
#ifndef LOCKSTEP_GRAMMAR_GRAMMAR_IMPL_H
#define LOCKSTEP_GRAMMAR_GRAMMAR_IMPL_H

#include "base/status.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAMMAR_MAX_NESTING 64 /* of ( ) in one rule */
#define GRAMMAR_MAX_RULES (1 << 16)
#define GRAMMAR_MAX_NODES (1 << 18)  /* of the automaton */
#define GRAMMAR_MAX_REPEAT (1 << 16) /* {m,n} */
#define GRAMMAR_NO_LIMIT UINT32_MAX  /* {m,} */
#define CODE_POINT_MAX 0x10ffffu
/* Bytes from here on are in no UTF-8. In an automaton they stand for the tokens that a grammar
 * names, in the order in which it does. */
#define GRAMMAR_TOKEN_BYTE 0xf5
#define GRAMMAR_MAX_TOKENS (256 - GRAMMAR_TOKEN_BYTE)

/* --- the tree --- */

enum item_kind {
    ITEM_LITERAL,  /* bytes[a .. a+b) */
    ITEM_CLASS,    /* one character of ranges[a .. a+b) */
    ITEM_SEQUENCE, /* children[a .. a+b) one after the other; b 0: nothing */
    ITEM_CHOICE,   /* one of children[a .. a+b) */
    ITEM_REPEAT,   /* children[a], min to max times */
    ITEM_RULE      /* rule a */
};

struct grammar_item {
    enum item_kind kind;
    uint32_t a, b;
    uint32_t min, max;
};

struct grammar_range {
    uint32_t low, high; /* code points, both included */
};

struct grammar_rule {
    const char *name; /* in the GBNF text */
    uint32_t name_len;
    uint32_t item; /* UINT32_MAX: not defined (yet) */
    uint32_t line; /* of its first mention */
};

struct grammar_tree {
    struct grammar_item *items;
    struct grammar_range *ranges;
    struct grammar_rule *rules;
    uint32_t *children;
    uint8_t *bytes;
    size_t n_items, n_ranges, n_rules, n_children, n_bytes;
    size_t items_cap, ranges_cap, rules_cap, children_cap, bytes_cap;
    uint32_t root;                      /* a rule */
    int32_t tokens[GRAMMAR_MAX_TOKENS]; /* [n_tokens] those that it names */
    size_t n_tokens;
};

/* tree is all zero before; deinit it in any case. Its names borrow text. t: of the tokens that it
 * names; NULL: there are none. */
enum status grammar_parse(struct grammar_tree *tree, const char *text, size_t len,
                          const struct tokenizer *t, struct err *err);
void grammar_tree_deinit(struct grammar_tree *tree);

/* --- the automaton --- */

enum node_kind {
    NODE_BYTES, /* reads a byte from low to high, then next */
    NODE_SPLIT, /* next or other */
    NODE_CALL,  /* rule `other`, then next */
    NODE_END    /* of a rule */
};

struct grammar_node {
    uint8_t kind; /* enum node_kind */
    uint8_t low, high;
    bool can_end; /* some text leads from here to the end of the rule */
    uint32_t next, other;
};

struct grammar_automaton {
    struct grammar_node *nodes;
    uint32_t *starts; /* [n_rules] the first node of each rule */
    size_t n_nodes, n_rules, nodes_cap, starts_cap;
    uint32_t root;          /* a node */
    uint8_t class_of[256];  /* bytes that the grammar cannot tell apart have one class */
    uint8_t a_byte_of[256]; /* [n_classes] one of each */
    size_t n_classes;
};

/* a is all zero before; deinit it in any case. */
enum status grammar_compile(struct grammar_automaton *a, const struct grammar_tree *tree,
                            struct err *err);
void grammar_automaton_deinit(struct grammar_automaton *a);

#endif
