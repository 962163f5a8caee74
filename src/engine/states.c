/* states.c: slots for states: a list of free ones, and which page each snapshot belongs to. */
#include "engine/states.h"

#include "base/mem.h"
#include "base/util.h"

struct state {
    uint32_t n_holders;
    uint32_t page; /* the page of the snapshot; PAGE_NONE: none */
    uint32_t next_free;
    uint64_t used; /* the clock when it was kept or found last */
};

struct states {
    struct state *list; /* [n] */
    uint32_t n, free;
    size_t n_free;
    uint32_t *by_page; /* [n_pages] slots */
    struct pages *pages;
    uint64_t clock;
};

static void put_free(struct states *s, uint32_t slot) {
    s->list[slot].next_free = s->free;
    s->free = slot;
    s->n_free++;
}

/* A snapshot is one no more. */
static void unkeep(struct states *s, uint32_t slot) {
    struct state *st = &s->list[slot];
    s->by_page[st->page] = STATE_NONE;
    st->page = PAGE_NONE;
    if (st->n_holders == 0)
        put_free(s, slot);
}

static void page_is_forgotten(void *states, uint32_t page) {
    struct states *s = states;
    if (s->by_page[page] != STATE_NONE)
        unkeep(s, s->by_page[page]);
}

enum status states_open(struct states **out, uint32_t n_slots, struct pages *pages,
                        uint32_t n_pages, struct err *err) {
    struct states *s = mem_calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a table of states");
    *s = (struct states){.n = n_slots, .free = STATE_NONE, .pages = pages};
    s->list = mem_calloc(n_slots, sizeof *s->list);
    s->by_page = mem_calloc(n_pages, sizeof *s->by_page);
    if (s->list == NULL || s->by_page == NULL) {
        states_close(s);
        return err_set(err, ST_NO_MEMORY, "no memory for a table of %u states", n_slots);
    }
    for (uint32_t i = n_slots;
         i-- > 0;) { /* the first first: memory becomes resident in order */
        s->list[i].page = PAGE_NONE;
        put_free(s, i);
    }
    for (uint32_t i = 0; i < n_pages; i++)
        s->by_page[i] = STATE_NONE;
    pages_on_forget(pages, page_is_forgotten, s);
    *out = s;
    return ST_OK;
}

void states_close(struct states *s) {
    if (s == NULL)
        return;
    mem_free(s->list);
    mem_free(s->by_page);
    mem_free(s);
}

static bool is_idle(const struct state *st) {
    return st->n_holders == 0 && st->page != PAGE_NONE;
}

/* The least recently used snapshot that no sequence holds. */
static uint32_t oldest(const struct states *s) {
    uint32_t best = STATE_NONE;
    for (uint32_t i = 0; i < s->n; i++)
        if (is_idle(&s->list[i]) &&
            (best == STATE_NONE || s->list[i].used < s->list[best].used))
            best = i;
    return best;
}

uint32_t states_take(struct states *s) {
    uint32_t slot = s->free;
    if (slot == STATE_NONE && (slot = oldest(s)) != STATE_NONE)
        unkeep(s, slot);
    if (slot == STATE_NONE)
        return STATE_NONE;
    s->free = s->list[slot].next_free;
    s->n_free--;
    s->list[slot].n_holders = 1;
    return slot;
}

void states_hold(struct states *s, uint32_t slot) {
    s->list[slot].n_holders++;
    s->list[slot].used = ++s->clock;
}

void states_release(struct states *s, uint32_t slot) {
    if (slot == STATE_NONE)
        return;
    BUG_ON(slot >= s->n || s->list[slot].n_holders == 0);
    if (--s->list[slot].n_holders == 0 && s->list[slot].page == PAGE_NONE)
        put_free(s, slot);
}

void states_keep(struct states *s, uint32_t slot, uint32_t page) {
    BUG_ON(s->list[slot].n_holders == 0 || s->list[slot].page != PAGE_NONE);
    if (s->by_page[page] != STATE_NONE) {
        s->list[s->by_page[page]].used = ++s->clock;
        return;
    }
    s->list[slot].page = page;
    s->list[slot].used = ++s->clock;
    s->by_page[page] = slot;
}

uint32_t states_of(const struct states *s, uint32_t page) {
    return s->by_page[page];
}

void states_drop(struct states *s, uint32_t page) {
    uint32_t slot = s->by_page[page];
    if (slot != STATE_NONE && s->list[slot].n_holders == 0)
        unkeep(s, slot);
}

struct states_count states_count(const struct states *s) {
    struct states_count c = {.total = s->n};
    for (uint32_t i = 0; i < s->n; i++) {
        c.held += s->list[i].n_holders != 0;
        c.kept += is_idle(&s->list[i]);
    }
    return c;
}

size_t states_available(const struct states *s) {
    return s->n_free + states_count(s).kept;
}
